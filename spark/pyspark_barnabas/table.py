"""A compacted topic as a table: of each key the latest record before a fixed end, read twice so that values need no memory.

May touch:  reader.py, pyarrow.       Must not touch: sockets, Spark's driver.
Invariants: a row is the latest record of its key in its partition below the end offset, and no tombstone; records without a key are
    left out, as by Kafka's cleaner; what the cleaner took between the two reads is reported, never passed over.
Read next:  reader.py, which reads the ranges; source.py, which makes one task of each partition.

Memory of a task: its distinct keys, some 16 bytes more for each, and the batches under way; not their values. The first read finds the
offsets of the latest records, the second lets exactly these through. Compaction may remove one of them in between, when a newer
record of the key came behind the end: no state of the table as of that end can be had any more, so that is data loss.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from pyspark_barnabas.options import SourceOptions
from pyspark_barnabas.reader import DataLossError, Range, read_range

if TYPE_CHECKING:
    import numpy.typing as npt

logger = logging.getLogger(__name__)

ROWS_PENDING_MIN = 262_144
"""Rows that are gathered at least before what is superseded among them is dropped."""
_OFFSET, _VALUE = StructField("offset", LongType()), StructField("value", BinaryType())
_LOOKED_AT = StructType([StructField("key", BinaryType()), _VALUE, _OFFSET])


def read_table(wanted: Range, options: SourceOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the latest record of every key of the range.

    Raises DataLossError when compaction removed some of them meanwhile and failOnDataLoss is true, and what read_range raises.
    """
    latest = latest_offsets(read_range(wanted, options, _LOOKED_AT))
    names = schema.fieldNames()
    whole = StructType([*schema.fields, *(field for field in (_OFFSET, _VALUE) if field.name not in names)])
    found = 0
    for batch in read_range(wanted, options, whole) if latest.size else ():
        offsets = batch.column("offset").to_numpy()
        at = np.searchsorted(latest, offsets)
        kept = latest[np.minimum(at, latest.size - 1)] == offsets
        found += int(np.count_nonzero(kept))
        if kept.any():
            yield batch.filter(pa.array(kept)).select(names)
    lost = latest.size - found
    if not lost:
        return
    what = (
        f"compaction of {wanted.topic}-{wanted.partition} removed the latest records of {lost} keys below offset {wanted.end} while "
        "they were read: newer ones came behind it"
    )
    if options.is_data_loss_fatal:
        raise DataLossError(f"{what}. Run the query again, or set failOnDataLoss=false to leave these keys out")
    logger.warning("%s; left out as failOnDataLoss=false", what)


def latest_offsets(batches: Iterator[pa.RecordBatch]) -> npt.NDArray[np.int64]:
    """The offsets, ascending, of the records that are the last of their key and no tombstone. Batches have key, value, offset."""
    held = pa.table({"key": pa.array([], pa.large_binary()), "place": pa.array([], pa.int64())})
    pending: list[pa.Table] = []
    rows = 0
    for batch in batches:
        is_live = pc.is_valid(batch.column("value"))
        # One number orders by offset and remembers whether the record lives.
        place = pc.add(pc.multiply(batch.column("offset"), 2), is_live.cast(pa.int64()))
        seen = pa.table({"key": batch.column("key").cast(pa.large_binary()), "place": place})
        pending.append(seen.filter(pc.is_valid(seen.column("key"))))
        rows += batch.num_rows
        if rows >= max(ROWS_PENDING_MIN, held.num_rows):
            held, pending, rows = _merged([held, *pending]), [], 0
    places = _merged([held, *pending]).column("place").to_numpy()
    return np.sort(places[places & 1 == 1] >> 1)


def _merged(parts: list[pa.Table]) -> pa.Table:
    grouped = pa.concat_tables(parts).group_by("key").aggregate([("place", "max")])
    return pa.table({"key": grouped.column("key"), "place": grouped.column("place_max")}).combine_chunks()
