"""Offset ranges: what a batch or micro-batch covers, and how a limit is shared among partitions. Pure.

May touch:  its arguments.            Must not touch: sockets, Spark, the clock.
Invariants: an offset map covers every partition it was resolved for; a limited end lies between start and latest;
    JSON is that of Spark's Kafka source, {"topic":{"0":5}}, so a checkpoint is read by either.
Read next:  reader.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class SourcePartition(NamedTuple):
    """A partition by topic name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[SourcePartition, int]
"""Next offset to read, per partition."""


class OffsetRange(NamedTuple):
    """Offsets start … end − 1 of one partition."""

    partition: SourcePartition
    start: int
    end: int


def to_json(offsets: Mapping[SourcePartition, int]) -> dict[str, dict[str, int]]:
    """The form Spark keeps in its checkpoint."""
    found: dict[str, dict[str, int]] = {}
    for key in sorted(offsets):
        found.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
    return found


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The opposite of to_json."""
    return {
        SourcePartition(topic, int(index)): int(at) for topic, parts in value.items() for index, at in parts.items()
    }


def limited_end(
    start: Mapping[SourcePartition, int], latest: Mapping[SourcePartition, int], limit: int | None
) -> Offsets:
    """Ends of a micro-batch of at most about `limit` offsets, shared in proportion to each partition's backlog.

    A partition that lags gets at least one offset, so that none starves; hence the sum may pass the limit by the number of
    partitions. A partition whose log became shorter keeps its start.
    """
    backlog = {key: max(0, latest[key] - start.get(key, latest[key])) for key in latest}
    total = sum(backlog.values())
    ends: Offsets = {}
    for key, behind in backlog.items():
        begin = start.get(key, latest[key])
        if limit is None or total <= limit:
            ends[key] = begin + behind
        else:
            ends[key] = begin + min(behind, max(1, behind * limit // total)) if behind else begin
    return ends


def ranges(start: Mapping[SourcePartition, int], end: Mapping[SourcePartition, int]) -> list[OffsetRange]:
    """The non-empty ranges between two offset maps, in the order of partitions."""
    return [OffsetRange(key, start[key], end[key]) for key in sorted(end) if key in start and end[key] > start[key]]


def missing(known: Iterable[SourcePartition], offsets: Mapping[SourcePartition, int]) -> list[SourcePartition]:
    """Partitions that have no offset yet: new ones, which start at their earliest."""
    return sorted(key for key in known if key not in offsets)
