"""The scan for last values gives what opening every record gives, and refuses what is no batch."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import CorruptBatch, Record, build_batch, iterate_batches, iterate_records
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.control import ControlRecordType, encode_control_key
from barnabas_wire.records.last_values import OpenTransactions, PendingValue, collect_last_values

KEYS = st.one_of(st.none(), st.binary(max_size=3), st.sampled_from([bytes(63), bytes(64), bytes(200)]))
VALUES = st.one_of(st.none(), st.binary(max_size=80), st.sampled_from([bytes(64), bytes(9_000)]))
CONTENT = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, VALUES, st.integers(0, 2**40), st.booleans()), min_size=1, max_size=9),
        st.sampled_from(list(CompressionType)),
        st.booleans(),
    ),
    max_size=6,
)


def built(content: list[tuple[list[tuple[bytes | None, bytes | None, int, bool]], CompressionType, bool]]) -> bytes:
    """Batches of (key, value, time, has headers), with gaps between offsets as compaction leaves them."""
    out, offset = b"", 0
    for rows, compression, is_control in content:
        records = []
        for key, value, time_ms, has_headers in rows:
            headers = (("h", b"x"), ("i", None)) if has_headers else ()
            records.append(Record(offset, time_ms, key, value, headers))
            offset += 1 + time_ms % 70
        out += build_batch(records, compression=compression, is_control=is_control)
    return out


def scanned(
    batches: bytes, slice_bytes: int = 1 << 30, transactions: OpenTransactions | None = None
) -> tuple[dict[bytes, bytes | None], list[tuple[int, int, int]]]:
    last: dict[bytes, bytes | None] = {}
    still_open = {} if transactions is None else transactions
    return last, list(collect_last_values(batches, last, slice_bytes=slice_bytes, open_transactions=still_open))


@settings(max_examples=60, deadline=None)
@given(CONTENT, st.integers(1, 5_000))
def test_the_scan_gives_what_opening_every_record_gives(content: list, slice_bytes: int) -> None:
    batches = built(content)
    expected: dict[bytes, bytes | None] = {}
    records = keyless = next_offset = 0
    for position, header in iterate_batches(batches):
        next_offset = header.next_offset
        if header.is_control:
            continue
        for record in iterate_records(batches[position : position + header.size_bytes]):
            records += 1
            if record.key is None:
                keyless += 1
            else:
                expected[record.key] = record.value
    last, yielded = scanned(batches, slice_bytes)
    assert last == expected
    assert sum(count for _, count, _ in yielded) == records
    assert sum(without for _, _, without in yielded) == keyless
    assert (yielded[-1][0] if yielded else 0) == next_offset
    assert scanned(batches + batches[:40])[0] == expected, "a partial last batch is left out"


@settings(max_examples=60, deadline=None)
@given(CONTENT, st.data())
def test_damaged_bytes_are_refused_in_kafkas_words(content: list, data: st.DataObject) -> None:
    batches = bytearray(built(content))
    if not batches:
        return
    for _ in range(data.draw(st.integers(1, 4))):
        batches[data.draw(st.integers(0, len(batches) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(KafkaError):
        scanned(bytes(batches))


def test_a_slice_ends_within_a_large_batch() -> None:
    batch = build_batch([Record(i, 0, b"k%d" % i, bytes(100)) for i in range(1_000)])
    _, yielded = scanned(batch, 5_000)
    assert len(yielded) > 10
    assert [offset for offset, _, _ in yielded[:-1]] == [0] * (len(yielded) - 1), "not past what is read only in part"
    assert yielded[-1][0] == 1_000


@pytest.mark.parametrize("cut", [61, 62, 70, 80])
def test_records_that_pass_the_end_of_their_batch_are_refused(cut: int) -> None:
    batch = bytearray(build_batch([Record(0, 0, b"key", b"value")]))
    batch = batch[: min(cut, len(batch) - 1)]
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    with pytest.raises(CorruptBatch):
        scanned(bytes(batch))


def written(offset: int, key: bytes, value: bytes | None, producer_id: int = -1) -> bytes:
    records = [Record(offset, 0, key, value)]
    return build_batch(records, is_transactional=producer_id >= 0, producer_id=producer_id, producer_epoch=0)


def marker(offset: int, producer_id: int, kind: ControlRecordType) -> bytes:
    records = [Record(offset, 0, encode_control_key(kind), bytes(6))]
    return build_batch(records, is_transactional=True, is_control=True, producer_id=producer_id, producer_epoch=0)


def test_what_a_transaction_wrote_counts_from_its_marker_on() -> None:
    still_open: OpenTransactions = {}
    log = written(0, b"k", b"old") + written(1, b"k", b"new", 7) + written(2, b"j", None, 7)
    assert scanned(log, transactions=still_open)[0] == {b"k": b"old"}
    assert still_open == {7: {b"k": PendingValue(Offset(1), b"new"), b"j": PendingValue(Offset(2), None)}}
    assert scanned(marker(3, 7, ControlRecordType.COMMIT), transactions=still_open)[0] == {b"k": b"new", b"j": None}
    assert not still_open
    assert scanned(log + marker(3, 7, ControlRecordType.ABORT))[0] == {b"k": b"old"}
    assert scanned(log + marker(3, 8, ControlRecordType.COMMIT))[0] == {b"k": b"old"}, "another producer's marker"


def test_of_a_key_the_highest_offset_wins_whenever_its_transaction_ends() -> None:
    first, second = written(0, b"k", b"first", 7), written(1, b"k", b"second", 8)
    one, two = (marker(offset, producer_id, ControlRecordType.COMMIT) for offset, producer_id in ((2, 7), (3, 8)))
    assert scanned(first + second + one + two)[0] == {b"k": b"second"}
    assert scanned(first + second + marker(2, 8, ControlRecordType.COMMIT) + marker(3, 7, ControlRecordType.COMMIT))[
        0
    ] == {b"k": b"second"}
    assert scanned(first + written(1, b"k", b"plain") + one)[0] == {b"k": b"plain"}


def test_a_control_record_that_is_none_is_refused() -> None:
    records = [Record(0, 0, b"x", None)]
    with pytest.raises(CorruptBatch):
        scanned(build_batch(records, is_transactional=True, is_control=True, producer_id=1, producer_epoch=0))
