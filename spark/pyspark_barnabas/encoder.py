"""From Arrow record batches to records sections, ready for a producer, without a Python object per record.

May touch:  pyarrow, numpy, record_layout.py, barnabas_wire.records.   Must not touch: sockets, Spark sessions.
Invariants: every row becomes one record of one section; rows of one partition keep their order; a section is no larger than the
    partition's bound unless it holds one record alone; what a row lacks is said with the name of the column.
Read next:  record_layout.py, then writer.py.

The columns are those of Spark's own Kafka sink: value, and any of key, topic, partition, headers. Arrow's buffers are read where they
lie; numba writes each record once, into the space that its batch will be sent from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas_wire.client.producer import RecordsSection
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import HEADER_BYTES
from barnabas_wire.records.compression import CompressionType, compress
from pyspark_barnabas.record_layout import (
    BATCH_COLUMNS,
    HEADER_PART_BYTES_MAX,
    RECORD_BYTES_MAX,
    choose_slots,
    lay_out,
    order_by_slot,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Bools = npt.NDArray[np.bool_]
    Longs = npt.NDArray[np.int64]

_NOTHING = np.empty(0, dtype=np.uint8)
_NO_BOUNDS = np.empty(0, dtype=np.int64)
_NO_NULLS = np.empty(0, dtype=np.bool_)


class RowError(ValueError):
    """A row that cannot be written: the message names the column."""


class _Pieces(NamedTuple):
    """A column of bytes: its buffer, where each row begins (one more than rows), which are null."""

    data: Bytes
    bounds: Longs
    is_null: Bools


class RecordEncoder:
    """Encodes the rows of one write. Keeps, per topic, which partition rows without a key go to."""

    def __init__(
        self,
        *,
        topic: str | None,
        partition_count: Callable[[str], int],
        batch_bytes: int,
        record_bytes_max: int,
        compression: CompressionType = CompressionType.NONE,
        compression_level: int | None = None,
        ignores_keys: bool = False,
        sticky_bytes: int = 16384,
        seed: int = 0,
    ) -> None:
        """topic: for every row, whatever its column topic says; None: the column decides.

        batch_bytes: most bytes of a batch, uncompressed. record_bytes_max: of a record; larger ones are refused.
        sticky_bytes: rows without a key go to one partition until it got so many, then to the next.
        """
        self._topic = topic
        self._partition_count = partition_count
        self._batch_bytes = batch_bytes
        self._record_bytes_max = record_bytes_max
        self._compression = compression
        self._level = compression_level
        self._ignores_keys = ignores_keys
        self._sticky_bytes = sticky_bytes
        self._seed = seed
        self._sticky: dict[str, tuple[int, int]] = {}

    def encode(
        self, columns: Mapping[str, pa.Array], rows: int, *, bytes_max: int | None = None
    ) -> Iterator[tuple[TopicPartition, RecordsSection]]:
        """The sections of those rows, partition after partition. `columns` has value, and any of key, topic, partition, headers.

        bytes_max: a smaller bound of a batch than the encoder's own. Raises RowError.
        """
        if not rows:
            return
        values = _pieces(columns["value"])
        keys = _pieces(columns["key"]) if "key" in columns else _nulls(rows)
        topics, codes = self._topics(columns, rows)
        counts = np.array([self._partition_count(name) for name in topics], dtype=np.int32)
        bases = np.zeros(len(topics), dtype=np.int32)
        np.cumsum(counts[:-1], out=bases[1:])
        slots = self._slots(columns, rows, topics, codes, counts, bases, keys, values)
        header_bounds, names, contents = _headers(columns.get("headers"))

        ends = np.zeros(int(counts.sum()), dtype=np.int64)
        order = np.empty(rows, dtype=np.int64)
        order_by_slot(slots, ends, order)
        limit = min(self._batch_bytes, bytes_max or self._batch_bytes) - HEADER_BYTES
        space = (
            _size(keys)
            + _size(values)
            + _size(names)
            + _size(contents)
            + rows * RECORD_BYTES_MAX
            + max(0, names.bounds.shape[0] - 1) * HEADER_PART_BYTES_MAX
        )
        out = np.empty(space, dtype=np.uint8)
        # Any two batches of a partition that follow each other hold more than the limit together.
        most = min(rows, int(np.count_nonzero(np.diff(ends, prepend=0))) + 2 * space // max(limit, 1) + 1)
        batches = np.empty((most, BATCH_COLUMNS), dtype=np.int64)
        limits = np.full(ends.shape[0], limit, dtype=np.int64)
        found = int(
            lay_out(
                keys.data, keys.bounds, keys.is_null, values.data, values.bounds, values.is_null,
                header_bounds, names.data, names.bounds, contents.data, contents.bounds, contents.is_null,
                order, ends, limits, out, batches,
            )
        )  # fmt: skip
        assert found >= 0, "the space for the records was counted wrong"
        partitions = [
            TopicPartition(name, index) for name, count in zip(topics, counts, strict=True) for index in range(count)
        ]
        now_ms = int(time.time() * 1000)
        whole = memoryview(out)  # type: ignore[arg-type]  # numpy declares no buffer before Python 3.12
        for slot, first, end, count in batches[:found].tolist():
            if count == 1 and end - first > self._record_bytes_max:
                raise RowError(
                    f"a record of {end - first} bytes for {partitions[slot]} is larger than kafka.max.request.size="
                    f"{self._record_bytes_max}: raise it, and the topic's max.message.bytes"
                )
            payload = whole[first:end]
            yield partitions[slot], self._section(payload, count, now_ms)

    def _section(self, payload: memoryview, count: int, now_ms: int) -> RecordsSection:
        if self._compression == CompressionType.NONE:
            return RecordsSection(payload, 0, count, now_ms)
        return RecordsSection(
            compress(self._compression, payload, level=self._level), int(self._compression), count, now_ms
        )

    def _topics(self, columns: Mapping[str, pa.Array], rows: int) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The topics of the rows, and each row's place among them."""
        if self._topic is not None:
            return [self._topic], np.zeros(rows, dtype=np.int32)
        column = columns["topic"]
        if column.null_count:
            raise RowError('null topic present in the data: use the option "topic" to set a topic for all rows')
        coded = column.dictionary_encode()
        return coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)

    def _slots(
        self,
        columns: Mapping[str, pa.Array],
        rows: int,
        topics: Sequence[str],
        codes: npt.NDArray[np.int32],
        counts: npt.NDArray[np.int32],
        bases: npt.NDArray[np.int32],
        keys: _Pieces,
        values: _Pieces,
    ) -> npt.NDArray[np.int32]:
        wanted = np.full(rows, -1, dtype=np.int32)
        if "partition" in columns:
            column = columns["partition"]
            wanted = np.ascontiguousarray(column.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int32)
            if bool(((wanted < 0) & ~_is_null(column)).any()):
                raise RowError(f"partition {int(wanted.min())} is below 0: leave it null to have it chosen by the key")
        sticky = np.zeros(2 * len(topics), dtype=np.int64)
        for place, name in enumerate(topics):
            partition, filled = self._sticky.get(name, (self._seed, 0))
            sticky[2 * place : 2 * place + 2] = partition % counts[place], filled
        slots = np.empty(rows, dtype=np.int32)
        wrong = int(
            choose_slots(
                keys.data, keys.bounds, keys.is_null, codes, wanted, bases, counts, values.bounds, sticky,
                self._sticky_bytes, self._ignores_keys, slots,
            )
        )  # fmt: skip
        if wrong >= 0:
            name, count = topics[codes[wrong]], counts[codes[wrong]]
            raise RowError(
                f"partition {wanted[wrong]} of topic {name} does not exist: it has partitions 0 to {count - 1}"
            )
        for place, name in enumerate(topics):
            self._sticky[name] = int(sticky[2 * place]), int(sticky[2 * place + 1])
        return slots


def _size(pieces: _Pieces) -> int:
    return int(pieces.bounds[-1] - pieces.bounds[0]) if pieces.bounds.shape[0] else 0


def _is_null(column: pa.Array) -> Bools:
    if not column.null_count:
        return np.zeros(len(column), dtype=np.bool_)
    return np.ascontiguousarray(column.is_null().to_numpy(zero_copy_only=False))


def _pieces(column: pa.Array) -> _Pieces:
    """The bytes of a string or binary column as they lie in Arrow's buffers."""
    kind = column.type
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not wide and not pa.types.is_string(kind) and not pa.types.is_binary(kind):
        column = column.cast(pa.binary())
    _, offsets, data = column.buffers()
    rows = len(column)
    if not rows or offsets is None:
        return _Pieces(_NOTHING, np.zeros(rows + 1, dtype=np.int64), _is_null(column))
    bounds = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)[column.offset : column.offset + rows + 1]
    held = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else _NOTHING
    return _Pieces(held, np.ascontiguousarray(bounds, dtype=np.int64), _is_null(column))


def _nulls(rows: int) -> _Pieces:
    return _Pieces(_NOTHING, np.zeros(rows + 1, dtype=np.int64), np.ones(rows, dtype=np.bool_))


def _headers(column: pa.Array | None) -> tuple[Longs, _Pieces, _Pieces]:
    """(where each row's headers begin, names, contents); no bounds at all when there is no header in any row."""
    none = _Pieces(_NOTHING, _NO_BOUNDS, _NO_NULLS)
    if column is None or column.null_count == len(column):
        return _NO_BOUNDS, none, none
    if column.null_count:
        # a null list may stand over items that do not count: take lists again from what counts
        column = column.take(pa.array(np.arange(len(column), dtype=np.int64)))
        column = column.fill_null(pa.scalar([], type=column.type))
    bounds = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    items = column.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    bounds -= bounds[0]
    if not len(items):
        return _NO_BOUNDS, none, none
    names, contents = items.flatten()
    if items.null_count or names.null_count:
        raise RowError("a record header has a null key: Kafka has no such header")
    return bounds, _pieces(names), _pieces(contents)
