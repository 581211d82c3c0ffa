"""Fetched batches become Arrow columns: equal to what the record-by-record reader says, and malformed ones are refused."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_wire.records import compression
from barnabas_wire.records.batch import CRC_START, HEADER_BYTES, Record, build_batch
from barnabas_wire.records.compression import CompressionType, CorruptCompressedData
from barnabas_wire.records.crc32c import crc32c
from pyspark_barnabas import decoder as decoder_module
from pyspark_barnabas.decoder import MalformedRecords, RecordDecoder

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(pa.field("element", HEADER))),
    ]
)
FOREVER = 1 << 62

blobs = st.one_of(st.none(), st.binary(max_size=40))
record_parts = st.tuples(
    blobs, blobs, st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3), st.integers(0, 2_000_000_000_000)
)


def decode(data: bytes | bytearray, *, start: int = 0, end: int = FOREVER, schema: pa.Schema = SCHEMA) -> list[dict]:
    """All rows of a fetch as dicts."""
    decoder = RecordDecoder(topic="t", partition=3, schema=schema)
    view = memoryview(data)
    plan = decoder.plan(view, start=start, end=end)
    return [row for batch in decoder.decode(view, plan, start=start, end=end) for row in batch.to_pylist()]


def next_offset(data: bytes, *, start: int = 0, end: int = FOREVER) -> int:
    """Where the fetch says to go on."""
    plan = RecordDecoder(topic="t", partition=3, schema=SCHEMA).plan(memoryview(data), start=start, end=end)
    return plan.next_offset


def signed(data: bytearray) -> bytes:
    """The one batch with its CRC made right again after a change."""
    struct.pack_into(">I", data, CRC_START - 4, crc32c(bytes(data[CRC_START:])))
    return bytes(data)


def with_log_append_time(batch: bytes, *, at_ms: int) -> bytes:
    """The batch as a leader with message.timestamp.type=LogAppendTime stores it."""
    data = bytearray(batch)
    data[22] |= 0x08
    struct.pack_into(">q", data, 35, at_ms)
    return signed(data)


def millis(row: dict) -> int:
    """A row's timestamp in ms."""
    return round(row["timestamp"].timestamp() * 1000)


@settings(max_examples=80, deadline=None)
@given(
    batches=st.lists(st.lists(record_parts, min_size=1, max_size=6), min_size=1, max_size=4),
    kinds=st.lists(st.sampled_from(list(CompressionType)), min_size=4, max_size=4),
    append_times=st.lists(st.one_of(st.none(), st.integers(0, 2_000_000_000_000)), min_size=4, max_size=4),
    skipped=st.integers(0, 5),
)
def test_columns_equal_the_records_written(batches: list, kinds: list, append_times: list, skipped: int) -> None:
    written: list[Record] = []
    stamps: list[tuple[int, int]] = []
    data = b""
    for index, parts in enumerate(batches):
        records = [
            Record(len(written) + place, stamp, key, value, tuple(headers))
            for place, (key, value, headers, stamp) in enumerate(parts)
        ]
        batch = build_batch(records, compression=kinds[index])
        append_ms = append_times[index]
        data += batch if append_ms is None else with_log_append_time(batch, at_ms=append_ms)
        written += records
        stamps += [(record.timestamp_ms, 0) if append_ms is None else (append_ms, 1) for record in records]
    rows = decode(data, start=skipped, end=len(written) - 1)
    expected = [record for record in written if skipped <= record.offset < len(written) - 1]
    assert [row["offset"] for row in rows] == [record.offset for record in expected]
    for row, record in zip(rows, expected, strict=True):
        assert (row["key"], row["value"], row["topic"], row["partition"]) == (record.key, record.value, "t", 3)
        assert (millis(row), row["timestampType"]) == stamps[record.offset]
        headers = None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]]
        assert headers == (list(record.headers) or None)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_every_compression_gives_the_same_rows(kind: CompressionType) -> None:
    records = [Record(at, 1000 + at, b"k%d" % at, b"v" * (at % 50), (("h", None),)) for at in range(500)]
    rows = decode(build_batch(records, compression=kind))
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(r.offset, r.key, r.value) for r in records]


def test_a_skipped_start_does_not_shift_the_timestamp_types_of_later_batches() -> None:
    first = with_log_append_time(build_batch([Record(at, 1, None, b"v") for at in range(3)]), at_ms=77)
    second = build_batch([Record(at, 5, None, b"v") for at in range(3, 6)])
    rows = decode(first + second, start=2)
    assert [(row["offset"], row["timestampType"], millis(row)) for row in rows] == [
        (2, 1, 77),
        (3, 0, 5),
        (4, 0, 5),
        (5, 0, 5),
    ]


def test_empty_and_null_are_told_apart() -> None:
    rows = decode(
        build_batch(
            [
                Record(0, 1, None, b"", (("", None), ("e", b""))),
                Record(1, 1, b"", None),
            ]
        )
    )
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [
        (None, b"", [{"key": "", "value": None}, {"key": "e", "value": b""}]),
        (b"", None, None),
    ]


def test_only_the_columns_asked_for_come_out_in_their_order() -> None:
    schema = pa.schema([SCHEMA.field("offset"), SCHEMA.field("value")])
    decoder = RecordDecoder(topic="t", partition=0, schema=schema)
    data = memoryview(build_batch([Record(0, 1, b"k", b"v", (("h", b"x"),))]))
    (batch,) = decoder.decode(data, decoder.plan(data, start=0, end=9), start=0, end=9)
    assert batch.schema == schema
    assert batch.to_pydict() == {"offset": [0], "value": [b"v"]}


def test_many_rows_come_in_pieces_of_nearly_equal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_module, "ROWS_PER_BATCH_MAX", 100)
    data = memoryview(build_batch([Record(at, 1, None, b"v") for at in range(205)]))
    decoder = RecordDecoder(topic="t", partition=0, schema=SCHEMA)
    batches = list(decoder.decode(data, decoder.plan(data, start=0, end=205), start=0, end=205))
    assert [batch.num_rows for batch in batches] == [68, 68, 69]
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(205))


def test_compressed_batches_are_unpacked_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_module, "UNPACKED_BYTES", 1000)
    unpacked: list[int] = []
    original = compression.decompress

    def counted(*arguments: Any, **limits: Any) -> bytes:
        unpacked.append(1)
        return original(*arguments, **limits)

    monkeypatch.setattr(decoder_module, "decompress", counted)
    data = b"".join(build_batch([Record(at, 1, None, b"v" * 600)], compression=CompressionType.ZSTD) for at in range(6))
    decoder = RecordDecoder(topic="t", partition=0, schema=SCHEMA)
    view = memoryview(data)
    batches = decoder.decode(view, decoder.plan(view, start=0, end=6), start=0, end=6)
    assert next(batches)["offset"].to_pylist() == [0, 1]
    assert len(unpacked) == 2
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == [2, 3, 4, 5]


def test_control_batches_never_come_out_but_move_the_offset() -> None:
    marker = build_batch([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")], is_control=True)
    data = marker + build_batch([Record(1, 1, None, b"v")])
    assert [row["offset"] for row in decode(data, end=10)] == [1]
    assert next_offset(marker) == 1


def test_a_cut_last_batch_is_left_out_wherever_it_is_cut() -> None:
    first = build_batch([Record(0, 1, None, b"v")])
    second = build_batch([Record(1, 1, None, b"w")])
    for cut in range(len(second)):
        data = first + second[:cut]
        assert ([row["offset"] for row in decode(data)], next_offset(data)) == ([0], 1)


def test_nothing_whole_means_stay_where_you_are() -> None:
    assert next_offset(b"", start=7) == 7
    assert next_offset(build_batch([Record(7, 1, None, b"v")])[:-1], start=7) == 7


def test_a_gap_up_to_the_end_is_passed_over() -> None:
    """What lies between was compacted away: without this a reader would ask for offset 3 for ever."""
    data = build_batch([Record(2, 1, None, b"v")]) + build_batch([Record(9, 1, None, b"w")])
    assert ([row["offset"] for row in decode(data, end=6)], next_offset(data, end=6)) == ([2], 6)


@pytest.mark.parametrize("place", range(CRC_START, HEADER_BYTES + 9))
def test_a_changed_byte_fails_the_crc(place: int) -> None:
    data = bytearray(build_batch([Record(4, 1, b"k", b"v"), Record(5, 1, b"k", b"v")]))
    data[place] ^= 0x01
    with pytest.raises(MalformedRecords, match=r"of t-3 fails its CRC check; to pass over it, start at \d+"):
        decode(data)


@pytest.mark.parametrize("place", range(HEADER_BYTES, HEADER_BYTES + 14))
@pytest.mark.parametrize("byte", [0x7F, 0xFF, 0x80, 0x02])
def test_a_lying_length_is_refused_or_harmless(place: int, byte: int) -> None:
    data = bytearray(build_batch([Record(0, 1, b"k", b"v", (("h", b"x"),)), Record(1, 1, b"k", b"v")]))
    data[place] = byte
    try:
        rows = decode(signed(data))
    except MalformedRecords:
        return
    assert [row["offset"] for row in rows] == [0, 1]


def test_random_damage_under_a_right_crc_never_yields_a_foreign_offset() -> None:
    chance = random.Random(7)
    sound = build_batch([Record(at, 1, b"key", b"value", (("h", b"x"),)) for at in range(20)])
    refused = 0
    for _ in range(2000):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(HEADER_BYTES, len(data))] = chance.randrange(256)
        try:
            offsets = [row["offset"] for row in decode(signed(data))]
        except MalformedRecords:
            refused += 1
            continue
        assert offsets == sorted(set(offsets)) and set(offsets) <= set(range(20))
    assert refused > 500


@pytest.mark.parametrize("count", [2**31 - 1, 2, 0, -1, -(2**31)])
def test_a_lying_record_count_is_refused(count: int) -> None:
    for kind in (CompressionType.NONE, CompressionType.ZSTD):
        data = bytearray(build_batch([Record(0, 1, b"k", b"v")], compression=kind))
        struct.pack_into(">i", data, 57, count)
        with pytest.raises(
            MalformedRecords, match="does not contain the records that its header counts; to pass over it, start at 1"
        ):
            decode(with_log_append_time(bytes(data), at_ms=1))


def test_offsets_beyond_the_batchs_own_last_are_refused() -> None:
    data = bytearray(build_batch([Record(0, 1, None, b"v"), Record(1, 1, None, b"v")]))
    struct.pack_into(">i", data, 23, 0)
    with pytest.raises(MalformedRecords):
        decode(signed(data))


def test_a_header_count_beyond_the_record_is_refused() -> None:
    data = bytearray(build_batch([Record(0, 1, None, b"v" * 30, (("h", b"x"),)), Record(1, 1, None, b"v")]))
    place = data.index(b"v" * 30) + 30
    assert data[place] == 2
    data[place] = 4
    with pytest.raises(MalformedRecords, match="headers of the record at offset 0"):
        decode(signed(data))


def test_a_header_key_that_is_no_text_is_replaced_as_java_does() -> None:
    data = bytearray(build_batch([Record(0, 1, None, None, (("ab", b"x"),))]))
    data[data.index(b"ab")] = 0xFF
    (row,) = decode(signed(data))
    assert row["headers"] == [{"key": "\ufffdb", "value": b"x"}]


@pytest.mark.parametrize("at_ms", [1_760_000_000_000_000_000, (1 << 63) - 1, -(1 << 62)])
def test_a_time_that_microseconds_cannot_hold_is_the_last_that_they_can(at_ms: int) -> None:
    schema = pa.schema([SCHEMA.field("timestamp")])
    data = build_batch([Record(0, at_ms, None, None)])
    decoder = RecordDecoder(topic="t", partition=0, schema=schema)
    plan = decoder.plan(memoryview(data), start=0, end=FOREVER)
    (batch,) = decoder.decode(memoryview(data), plan, start=0, end=FOREVER)
    limit = (1 << 63) // 1000 * 1000
    assert batch.column(0).cast(pa.int64())[0].as_py() == (limit if at_ms > 0 else -limit)


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_module, "DECOMPRESSED_BYTES_MAX", 1 << 20)
    for kind in CompressionType:
        if kind != CompressionType.NONE:
            with pytest.raises(CorruptCompressedData):
                decode(build_batch([Record(0, 1, None, bytes((1 << 20) + 1))], compression=kind))


def test_a_record_that_is_longer_than_its_parts_is_refused() -> None:
    data = bytearray(build_batch([Record(0, 1, b"key", b"value")]))
    place = data.index(b"value") - 1
    data[place] -= 2  # a value of four bytes: its fifth is taken for the header count
    data[place + 5] = 0
    with pytest.raises(MalformedRecords, match="does not contain the records that its header counts"):
        decode(signed(data), schema=pa.schema([SCHEMA.field("value")]))


def test_a_record_that_is_longer_than_its_headers_is_refused() -> None:
    data = bytearray(build_batch([Record(0, 1, b"key", b"value", (("h", b"xy"),))]))
    data[data.index(b"xy") - 1] -= 2
    with pytest.raises(MalformedRecords, match="the headers of the record at offset 0 of t-3"):
        decode(signed(data))
