"""Fetched batches become Arrow columns: equal to what the record-by-record reader says, and malformed ones are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_wire.records.batch import HEADER_BYTES, Record, build_batch
from barnabas_wire.records.compression import CompressionType
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

blobs = st.one_of(st.none(), st.binary(max_size=40))
record_parts = st.tuples(
    blobs, blobs, st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3), st.integers(0, 2_000_000_000_000)
)


def rows_of(batches: list[pa.RecordBatch]) -> list[dict]:
    """All rows as dicts."""
    return [row for batch in batches for row in batch.to_pylist()]


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(record_parts, min_size=1, max_size=6), min_size=1, max_size=4),
    kind=st.sampled_from(list(CompressionType)),
    skipped=st.integers(0, 5),
)
def test_columns_equal_the_records_written(batches: list, kind: CompressionType, skipped: int) -> None:
    written: list[Record] = []
    data = b""
    for index, parts in enumerate(batches):
        records = [
            Record(len(written) + place, stamp, key, value, tuple(headers))
            for place, (key, value, headers, stamp) in enumerate(parts)
        ]
        data += build_batch(records, compression=kind if index % 2 == 0 else CompressionType.NONE)
        written += records
    decoder = RecordDecoder(topic="t", partition=3, schema=SCHEMA)
    decoded = decoder.decode(data, start=skipped, end=len(written) - 1)
    expected = [record for record in written if skipped <= record.offset < len(written) - 1]
    rows = rows_of(decoded.batches)
    assert [row["offset"] for row in rows] == [record.offset for record in expected]
    for row, record in zip(rows, expected, strict=True):
        assert (row["key"], row["value"], row["topic"], row["partition"]) == (record.key, record.value, "t", 3)
        assert int(row["timestamp"].timestamp() * 1000 + 0.5) == record.timestamp_ms
        headers = None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]]
        assert headers == (list(record.headers) or None)


def test_control_batches_never_come_out_but_move_the_offset() -> None:
    marker = build_batch([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")], is_control=True)
    data = marker + build_batch([Record(1, 1, None, b"v")])
    decoder = RecordDecoder(topic="t", partition=0, schema=SCHEMA)
    assert [row["offset"] for row in rows_of(decoder.decode(data, start=0, end=10).batches)] == [1]
    assert decoder.decode(marker, start=0, end=10).next_offset == 1


def test_a_cut_last_batch_is_left_out() -> None:
    first = build_batch([Record(0, 1, None, b"v")])
    second = build_batch([Record(1, 1, None, b"w")])
    decoded = RecordDecoder(topic="t", partition=0, schema=SCHEMA).decode(first + second[:-1], start=0, end=10)
    assert (len(rows_of(decoded.batches)), decoded.next_offset) == (1, 1)


@pytest.mark.parametrize("place", range(HEADER_BYTES, HEADER_BYTES + 9))
@pytest.mark.parametrize("byte", [0x7F, 0xFF, 0x80])
def test_a_lying_length_is_refused_or_harmless(place: int, byte: int) -> None:
    data = bytearray(build_batch([Record(0, 1, b"k", b"v", (("h", b"x"),)), Record(1, 1, b"k", b"v")]))
    data[place] = byte
    decoder = RecordDecoder(topic="t", partition=0, schema=SCHEMA)
    try:
        decoded = decoder.decode(bytes(data), start=0, end=10)
    except (MalformedRecords, pa.ArrowInvalid):
        return
    assert sum(batch.num_rows for batch in decoded.batches) <= 2


def test_a_lying_record_count_is_refused() -> None:
    data = bytearray(build_batch([Record(0, 1, b"k", b"v")]))
    data[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(MalformedRecords, match="does not hold what it says"):
        RecordDecoder(topic="t", partition=0, schema=SCHEMA).decode(bytes(data), start=0, end=10)
