"""Record batches: header, stamp, checksum, building and opening, and what a hostile one may not do."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import (
    CRC_START,
    HEADER_BYTES,
    CorruptBatch,
    Record,
    build_batch,
    crc_is_valid,
    header_name,
    header_name_bytes,
    iterate_batches,
    iterate_records,
    read_header,
    stamp,
)
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.crc32c import crc32c

RECORDS = [
    Record(7, 1000, b"key", b"value"),
    Record(8, 900, None, b""),
    Record(9, 5000, b"", None, (("name", b"content"), ("name", None), ("", b""))),
    Record(12, 1001, b"k" * 300, b"v" * 70_000),
]

header_strategy = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20))
record_strategy = st.tuples(
    st.integers(0, 2**40),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(header_strategy, max_size=3).map(tuple),
)


@given(
    st.lists(record_strategy, min_size=1, max_size=20), st.integers(0, 2**60), st.sampled_from(list(CompressionType))
)
@settings(max_examples=150, deadline=None)
def test_what_is_built_is_what_is_read(fields: list, base: int, compression: CompressionType) -> None:
    records = [Record(base + n, time, key, value, headers) for n, (time, key, value, headers) in enumerate(fields)]
    batch = build_batch(records, compression=compression)
    header = read_header(batch)
    assert list(iterate_records(batch)) == records
    assert (header.base_offset, header.next_offset) == (base, base + len(records))
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)
    assert header.size_bytes == len(batch) and header.record_count == len(records)
    assert header.compression is compression and crc_is_valid(batch, 0, header)


def test_header_fields_lie_where_kafka_puts_them() -> None:
    batch = build_batch(
        RECORDS, leader_epoch=Epoch(3), producer_id=11, producer_epoch=2, base_sequence=5, is_control=True
    )
    assert struct.unpack_from(">qiib", batch) == (7, len(batch) - 12, 3, 2)
    assert struct.unpack_from(">I", batch, 17)[0] == crc32c(batch[CRC_START:])
    assert struct.unpack_from(">hiqqqhii", batch, 21) == (0x20, 5, 1000, 5000, 11, 2, 5, 4)
    assert read_header(batch).is_control and not read_header(batch).is_transactional


def test_stamping_leaves_the_checksum_right() -> None:
    buffer = bytearray(b"xx" + build_batch(RECORDS))
    stamp(memoryview(buffer), 2, base_offset=Offset(2**40), leader_epoch=Epoch(9))
    header = read_header(buffer, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 9)
    assert crc_is_valid(buffer, 2, header)
    assert [record.offset for record in iterate_records(buffer[2:])] == [2**40 + n for n in (0, 1, 2, 5)]


def test_log_append_time_dates_every_record_by_the_batch() -> None:
    batch = bytearray(build_batch(RECORDS[:3]))
    batch[22] |= 0x08
    assert {record.timestamp_ms for record in iterate_records(batch)} == {5000}


def test_batches_are_iterated_up_to_a_partial_one() -> None:
    first, second = build_batch(RECORDS), build_batch([RECORDS[0]])
    for cut in range(len(second)):
        found = [position for position, _ in iterate_batches(memoryview(first + second[:cut]))]
        assert found == [0]
    assert [position for position, _ in iterate_batches(first + second)] == [0, len(first)]


def test_every_prefix_and_a_tail_is_refused() -> None:
    batch = build_batch(RECORDS[:3])
    for cut in range(len(batch)):
        with pytest.raises(CorruptBatch):
            list(iterate_records(batch[:cut]))
    assert list(iterate_records(batch + b"tail")) == RECORDS[:3]


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_under_the_checksum_is_seen(data: st.DataObject) -> None:
    batch = bytearray(build_batch(RECORDS[:3]))
    position = data.draw(st.integers(17, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    header = read_header(batch)
    assert not crc_is_valid(batch, 0, header)


@given(st.binary(max_size=120), st.integers(-(2**31), 2**31 - 1))
@settings(max_examples=500, deadline=None)
def test_garbage_behind_a_header_never_leaves_the_decoder(payload: bytes, count: int) -> None:
    head = bytearray(build_batch([RECORDS[0]])[:HEADER_BYTES])
    head[8:12] = struct.pack(">i", HEADER_BYTES - 12 + len(payload))
    head[57:61] = struct.pack(">i", count)
    with contextlib.suppress(CorruptBatch):
        list(iterate_records(bytes(head) + payload))


@given(st.binary(max_size=20))
@example(b"\xff")
@example(b"\xed\xb3\xbf")
def test_a_headers_name_may_be_any_bytes_and_keeps_them(raw: bytes) -> None:
    """Kafka's brokers never look at it, so no producer may wedge what opens records: ListOffsets by time, dumps, compaction."""
    record = Record(0, 1, None, None, ((header_name(raw), b"x"),))
    batch = build_batch([record])
    assert raw in batch
    (read,) = iterate_records(batch)
    assert read == record and header_name_bytes(read.headers[0][0]) == raw


@pytest.mark.parametrize("length", [0, -1, 48, -(2**31), 2**31 - 1])
def test_an_impossible_length_is_refused(length: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[8:12] = struct.pack(">i", length)
    with pytest.raises(CorruptBatch):
        list(iterate_records(batch))


def test_offsets_must_rise_and_records_must_be_there() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
    with pytest.raises(ValueError, match="does not rise"):
        build_batch([RECORDS[1], RECORDS[0]])
