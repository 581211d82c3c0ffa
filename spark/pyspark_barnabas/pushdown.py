"""What a query's filters say about where its records lie. Pure but for the look at who calls.

May touch:  pyspark's filter classes, the frames above.      Must not touch: sockets.
Invariants: only what cannot hold a wanted record is left out; Spark evaluates every filter again.
Read next:  source.py.

Spark 4.3 has filter pushdown off by default, and refuses every read of a source whose reader knows filters while it is off. So
whether the reader may know them depends on the session, and a data source cannot see it: the planner's own variables say it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from math import floor
from typing import Any

from barnabas_wire.records.partitioning import partition_for_key
from pyspark_barnabas.offsets import OffsetRange
from pyspark_barnabas.spark_versions import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_PLANNER = "pyspark.sql.worker.plan_data_source_read"
_PUSHING_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
_EVERYTHING = 1 << 63


@dataclass(frozen=True, slots=True)
class Pruning:
    """What may hold a wanted record."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_end: int = _EVERYTHING
    timestamp_ms_min: int | None = None
    keys: frozenset[bytes] | None = None

    @property
    def without_end(self) -> Pruning:
        """What may decide which record is the latest of its key: later ones do, even where a filter does not let them through."""
        return replace(self, offset_end=_EVERYTHING)

    def of_key(self, whole: OffsetRange, partition_count: int) -> bool:
        """Whether a wanted key can be in the partition, where Kafka's Java producer chose it by the key."""
        if self.keys is None:
            return True
        return whole.partition.partition in {partition_for_key(key, partition_count) for key in self.keys}

    def of_range(self, whole: OffsetRange) -> OffsetRange | None:
        """The part of a range that topic, partition and offset leave; None when nothing is left."""
        key, start, end = whole
        if self.topics is not None and key.topic not in self.topics:
            return None
        if self.partitions is not None and key.partition not in self.partitions:
            return None
        start, end = max(start, self.offset_min), min(end, self.offset_end)
        return OffsetRange(key, start, end) if start < end else None


def narrowed(filters: Iterable[Filter]) -> Pruning:
    """All filters together; those that say nothing about where records lie are passed over."""
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min, offset_end = 0, _EVERYTHING
    since: int | None = None
    keys: frozenset[bytes] | None = None
    for one in filters:
        column = ".".join(getattr(one, "attribute", ()))
        values = _values(one)
        if column == "topic" and values is not None:
            topics = frozenset(values) if topics is None else topics & frozenset(values)
        elif column == "partition" and values is not None:
            partitions = frozenset(values) if partitions is None else partitions & frozenset(values)
        elif column == "key" and values and all(isinstance(value, bytes | bytearray) for value in values):
            # No value at all may mean null, which a key can be.
            keys = frozenset(map(bytes, values)) if keys is None else keys & frozenset(map(bytes, values))
        elif column in ("offset", "partition"):
            low, end = _bounds(one, values)
            if column == "offset":
                offset_min, offset_end = max(offset_min, low), min(offset_end, end)
        elif column == "timestamp":
            low_ms = _since_ms(one, values)
            if low_ms is not None:
                since = low_ms if since is None else max(since, low_ms)
    return Pruning(topics, partitions, offset_min, offset_end, since, keys)


def is_on() -> bool:
    """Whether the planner that calls would give a reader its filters (spark.sql.python.filterPushdown.enabled)."""
    frame = sys._getframe()
    above = frame.f_back
    while above is not None:
        name = above.f_globals.get("__spec__")
        module = name.name if name is not None else above.f_globals.get("__name__")
        if module == _PUSHING_PLANNER:
            return True
        if module == _PLANNER and "enable_pushdown" in above.f_locals:
            return bool(above.f_locals["enable_pushdown"])
        above = above.f_back
    return False


def _values(one: Filter) -> tuple[Any, ...] | None:
    """The only values that a column may have."""
    if isinstance(one, EqualTo | EqualNullSafe):
        return () if one.value is None else (one.value,)
    return tuple(value for value in one.value if value is not None) if isinstance(one, In) else None


def _bounds(one: Filter, values: tuple[Any, ...] | None) -> tuple[int, int]:
    """(least, end) of a whole number."""
    if values is not None:
        return (min(values), max(values) + 1) if values else (_EVERYTHING, 0)
    if isinstance(one, GreaterThan):
        return one.value + 1, _EVERYTHING
    if isinstance(one, GreaterThanOrEqual):
        return one.value, _EVERYTHING
    if isinstance(one, LessThan):
        return 0, one.value
    if isinstance(one, LessThanOrEqual):
        return 0, one.value + 1
    return 0, _EVERYTHING


def _since_ms(one: Filter, values: tuple[Any, ...] | None) -> int | None:
    """The earliest time that a wanted record may have. Later times say nothing: records need not be in the order of theirs."""
    if values is None:
        values = (one.value,) if isinstance(one, GreaterThan | GreaterThanOrEqual) else ()
    # Without a time zone nobody knows which instant is meant.
    if not values or not all(isinstance(value, datetime) and value.tzinfo is not None for value in values):
        return None
    earliest: float = min(value.timestamp() for value in values)
    return max(0, floor(earliest * 1000))
