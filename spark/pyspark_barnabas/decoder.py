"""From record batches as fetched to Arrow record batches, without a Python object per record.

May touch:  pyarrow, numpy, scan.py, barnabas_wire.records.   Must not touch: sockets, Spark sessions.
Invariants: a batch is opened only after its CRC was found right; offsets come out ascending and inside [start, end); control
    batches never come out; the columns are exactly those of the schema asked for; at once no more is unpacked than one batch
    and UNPACKED_BYTES.
Read next:  scan.py, then reader.py.

How: numba walks the varints and writes down positions and lengths only; Arrow then copies all keys and all values in C++ by
one `take` over a binary array whose odd slots are the gaps. Measured on one core: 11–18 M records of 100 bytes a second,
against 0.3 M in plain Python; slicing bytes inside numba is half as fast as this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.records.batch import HEADER_BYTES, BatchHeader, crc_is_valid, iterate_batches
from barnabas_wire.records.compression import CompressionType, decompress
from pyspark_barnabas.aborted import AbortedTransactions
from pyspark_barnabas.scan import (
    HEADER_COUNT,
    HEADERS_AT,
    INT_COLUMNS,
    KEY_AT,
    KEY_SIZE,
    LONG_COLUMNS,
    OFFSET,
    RECORD_BYTES_MIN,
    RECORD_END,
    SECTION_COLUMNS,
    TIMESTAMP,
    VALUE_AT,
    VALUE_SIZE,
    scan_headers,
    scan_records,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int32]
    Longs = npt.NDArray[np.int64]

ROWS_PER_BATCH_MAX = 65_536
"""Rows of one Arrow batch: below 10 k Spark's per-batch cost shows, above 64 k nothing is gained (measured)."""
DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes that one compressed batch may unpack to."""
_MILLIS_MAX = (1 << 63) // 1000
"""Spark's timestamps are int64 microseconds. A producer that wrote nanoseconds gets the last of them, in the year 294247: filters and
the order of times stay right, and no producer can wedge a query."""
UNPACKED_BYTES = 16 * 1024 * 1024
"""Compressed batches are unpacked and decoded together until they pass this size."""


class MalformedRecords(KafkaError):
    """A batch whose CRC or records are not what its header says."""

    code = ErrorCode.CORRUPT_MESSAGE


class FetchedBatch(NamedTuple):
    """One batch that holds wanted offsets: its header and where its records stand in the fetch."""

    header: BatchHeader
    first: int
    end: int


class FetchPlan(NamedTuple):
    """What of a fetch is wanted, known from the headers alone."""

    batches: list[FetchedBatch]
    next_offset: int
    """Where to fetch next; the start when the fetch holds no whole batch."""


class RecordDecoder:
    """Decodes fetches of one partition into the columns of one schema."""

    def __init__(self, *, topic: str, partition: int, schema: pa.Schema) -> None:
        """`schema` holds any of key, value, topic, partition, offset, timestamp, timestampType, headers."""
        self._topic = topic
        self._partition = partition
        self._schema = schema

    def plan(self, fetched: memoryview, *, start: int, end: int, aborted: Sequence[tuple[int, int]] = ()) -> FetchPlan:
        """The whole batches with offsets in [start, end); a cut last batch is left out.

        aborted: (producer id, first offset) of transactions whose records are passed over, as a read_committed fetch names them.
        Raises MalformedRecords for a batch whose CRC is wrong.
        """
        wanted: list[FetchedBatch] = []
        next_offset = start
        transactions = AbortedTransactions(aborted)
        for position, header in iterate_batches(fetched):
            is_aborted = transactions.holds(header, fetched[position + HEADER_BYTES :])
            if header.base_offset >= end:
                next_offset = end  # what lies between was compacted away
                break
            next_offset = max(next_offset, header.next_offset)
            if header.next_offset <= start or header.is_control or is_aborted:
                continue
            if not crc_is_valid(fetched, position, header):
                raise self._malformed(header, "fails its CRC check")
            wanted.append(FetchedBatch(header, position + HEADER_BYTES, position + header.size_bytes))
        return FetchPlan(wanted, min(next_offset, end))

    def decode(self, fetched: memoryview, plan: FetchPlan, *, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records of offsets [start, end) of the planned batches.

        Raises MalformedRecords when a batch's records are not what its header says.
        """
        if all(batch.header.compression == CompressionType.NONE for batch in plan.batches):
            yield from self._decode(fetched, plan.batches, start, end)
            return
        group: list[FetchedBatch] = []
        unpacked = bytearray()
        for header, first, last in plan.batches:
            records = decompress(header.compression, fetched[first:last], bytes_max=DECOMPRESSED_BYTES_MAX)
            group.append(FetchedBatch(header, len(unpacked), len(unpacked) + len(records)))
            unpacked += records
            if len(unpacked) >= UNPACKED_BYTES:
                yield from self._decode(memoryview(unpacked), group, start, end)
                group, unpacked = [], bytearray()
        yield from self._decode(memoryview(unpacked), group, start, end)

    def _decode(
        self, payload: memoryview, batches: list[FetchedBatch], start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        if not batches:
            return
        data = np.frombuffer(payload, dtype=np.uint8)
        assert data.shape[0] < 1 << 31, "positions are int32: fetch and unpack less at once"
        sections = np.empty((len(batches), SECTION_COLUMNS), dtype=np.int64)
        append_times = np.zeros(len(batches), dtype=np.int32)
        for place, (header, first, last) in enumerate(batches):
            append_times[place] = header.is_log_append_time
            sections[place] = (
                first,
                last,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp_ms,
                header.record_count,
                header.max_timestamp_ms if header.is_log_append_time else -1,
            )
        # A count in a header is no reason to allocate: what the records take at least bounds them.
        counted = int(np.maximum(sections[:, 5], 0).sum())
        rows_max = min(counted, data.shape[0] // RECORD_BYTES_MIN)
        longs = np.empty((LONG_COLUMNS, rows_max), dtype=np.int64)
        ints = np.empty((INT_COLUMNS, rows_max), dtype=np.int32)
        section_rows = np.zeros(len(batches), dtype=np.int64)
        rows = int(scan_records(data, sections, start, end, longs, ints, section_rows))
        if rows < 0:
            raise self._malformed(batches[-1 - rows].header, "does not contain the records that its header counts")
        types = np.repeat(append_times, section_rows)
        source = pa.py_buffer(payload)
        # Pieces of equal size: a fetch of a few rows more than a piece must not leave a tiny batch.
        pieces = -(-rows // ROWS_PER_BATCH_MAX)
        for piece in range(pieces):
            part = slice(rows * piece // pieces, rows * (piece + 1) // pieces)
            yield self._batch(source, data, longs[:, part], ints[:, part], types[part])

    def _batch(self, source: pa.Buffer, data: Bytes, longs: Longs, ints: Ints, types: Ints) -> pa.RecordBatch:
        rows = longs.shape[1]
        columns = []
        for field in self._schema:
            if field.name == "key":
                column = _gather(source, ints[KEY_AT], ints[KEY_SIZE])
            elif field.name == "value":
                column = _gather(source, ints[VALUE_AT], ints[VALUE_SIZE])
            elif field.name == "topic":
                column = _repeat(self._topic.encode(), rows)
            elif field.name == "partition":
                column = _column(np.full(rows, self._partition, dtype=np.int32), pa.int32())
            elif field.name == "offset":
                column = _column(longs[OFFSET], pa.int64())
            elif field.name == "timestamp":
                micros = (
                    np.clip(longs[TIMESTAMP], -_MILLIS_MAX, _MILLIS_MAX) * 1000
                )  # a product past int64 wraps in silence
                column = _column(micros, pa.int64()).cast(field.type)
            elif field.name == "timestampType":
                column = _column(types, pa.int32())
            elif field.name == "headers":
                column = self._headers(source, data, longs, ints, field.type)
            else:
                raise AssertionError(f"{field.name} is not a column of format barnabas")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _headers(self, source: pa.Buffer, data: Bytes, longs: Longs, ints: Ints, kind: pa.DataType) -> pa.Array:
        """The list<struct<key, value>> column; a record without headers has null, as in Spark's Kafka source."""
        at, count, record_end = ints[HEADERS_AT], ints[HEADER_COUNT], ints[RECORD_END]
        # A header takes at least two bytes: counts that say more are lies, and no reason to allocate.
        total = int(count.sum(dtype=np.int64))
        if total > data.shape[0] // 2:
            raise MalformedRecords(f"{self._topic}-{self._partition}: record headers do not contain what they count")
        parts = np.empty((4, total), dtype=np.int32)
        found = int(scan_headers(data, at, count, record_end, parts))
        if found < 0:
            raise MalformedRecords(
                f"the headers of the record at offset {longs[OFFSET, -1 - found]} of {self._topic}-{self._partition} "
                "do not contain what they count"
            )
        items = pa.StructArray.from_arrays(
            [_text(_gather(source, parts[0], parts[1])), _gather(source, parts[2], parts[3])],
            fields=list(kind.value_type),
        )
        bounds = np.zeros(count.shape[0] + 1, dtype=np.int32)
        np.cumsum(count, out=bounds[1:])
        validity = _validity(count == 0)
        return pa.ListArray.from_buffers(kind, count.shape[0], [validity, pa.py_buffer(bounds)], children=[items])

    def _malformed(self, header: BatchHeader, what: str) -> MalformedRecords:
        return MalformedRecords(
            f"the batch at offsets {header.base_offset} to {header.last_offset} of {self._topic}-{self._partition} {what}; "
            f"to pass over it, start at {header.next_offset}"
        )


def _gather(source: pa.Buffer, at: Ints, size: Ints) -> pa.Array:
    """Copy the pieces (at, size) of source into one array; size -1 is null. `at` ascends and pieces do not overlap."""
    rows = at.shape[0]
    if rows == 0:
        return pa.array([], type=pa.binary())
    bounds = np.empty(2 * rows, dtype=np.int32)
    bounds[0::2] = at
    bounds[1::2] = at + np.maximum(size, 0)
    whole = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(bounds), source])
    return whole.take(_column(np.arange(0, 2 * rows, 2, dtype=np.int32), pa.int32(), size < 0))


def _column(values: Ints | Longs, kind: pa.DataType, is_null: Bools | None = None) -> pa.Array:
    """Contiguous numbers as they lie. pa.array() would load pandas to ask whether they are a series: 0.15 CPU seconds of each worker."""
    validity = None if is_null is None else _validity(is_null)
    return pa.Array.from_buffers(kind, values.shape[0], [validity, pa.py_buffer(values)])


def _validity(is_null: Bools) -> pa.Buffer | None:
    """Arrow's bitmap, least significant bit first; None where nothing is null."""
    return pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None


def _text(column: pa.Array) -> pa.Array:
    """Bytes as text; what is no UTF-8 is replaced as Java does, so that no producer can wedge a query."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([piece.decode("utf-8", "replace") for piece in column.to_pylist()], type=pa.string())


def _repeat(text: bytes, rows: int) -> pa.Array:
    bounds = np.arange(rows + 1, dtype=np.int32) * np.int32(len(text))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(bounds), pa.py_buffer(text * rows)])
