"""Where a query stands: what its checkpoint holds, what is lost, and how a limit is shared among partitions. Pure.

May touch:  its arguments.            Must not touch: sockets, Spark, the clock.
Invariants: offsets of a topic count only for the topic id they were read from; a limited end lies between start and latest,
    and every partition that lags moves; what is lost is reported once, in words.
Read next:  source.py; checkpoint.py, which takes out what Spark's own source cannot read.

The JSON is that of Spark's Kafka source with the topic's id beside its offsets, {"flights":{"id":"q4vZ…","0":5}}. Names
alone cannot distinguish a topic from another that was made under its name later: its offsets would be read into the middle of the
new one. A micro-batch that has a partition for the first time also holds where that partition begins in it,
{"flights":{"id":"q4vZ…","0":5,"1":3,"from":{"1":0}}}: planned again after a crash, it begins there again, or says what was
lost meanwhile. A checkpoint without either, as Spark's Kafka source writes it, is taken over as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TOPIC_ID = "id"
BEGUN = "from"
RECORDS_BEHIND = "recordsBehind"
SECONDS_BEHIND = "secondsBehind"
"""Keys beside a topic's partitions; a partition is a number, so they cannot meet. The last two stand in the progress alone."""


class SourcePartition(NamedTuple):
    """A partition by topic name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[SourcePartition, int]
"""Next offset to read, per partition."""
OffsetsJson = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Position:
    """Offsets, and the id of each topic they belong to (missing: not known)."""

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    begun: Offsets = field(default_factory=dict)
    """Where partitions begin that the micro-batch ending here has for the first time."""


class OffsetRange(NamedTuple):
    """Offsets start … end − 1 of one partition."""

    partition: SourcePartition
    start: int
    end: int


def to_json(position: Position) -> OffsetsJson:
    """The form Spark keeps in its checkpoint; equal positions give equal text."""
    found: OffsetsJson = {}
    for key in sorted(position.offsets):
        if key.topic not in found:
            found[key.topic] = {TOPIC_ID: position.topic_ids[key.topic]} if key.topic in position.topic_ids else {}
        found[key.topic][str(key.partition)] = position.offsets[key]
    for key in sorted(position.begun):
        found[key.topic].setdefault(BEGUN, {})[str(key.partition)] = position.begun[key]
    return found


def from_json(value: Mapping[str, Mapping[str, Any]]) -> Position:
    """The opposite of to_json; reads the form of Spark's Kafka source too."""
    return Position(
        {
            SourcePartition(topic, int(index)): int(at)
            for topic, parts in value.items()
            for index, at in parts.items()
            if index.isdecimal()
        },
        {topic: str(parts[TOPIC_ID]) for topic, parts in value.items() if TOPIC_ID in parts},
        {
            SourcePartition(topic, int(index)): int(at)
            for topic, parts in value.items()
            for index, at in parts.get(BEGUN, {}).items()
        },
    )


def stripped(value: Mapping[str, Mapping[str, Any]]) -> OffsetsJson:
    """The same offsets in the form that Spark's Kafka source reads: partitions alone."""
    return {topic: {index: at for index, at in parts.items() if index.isdecimal()} for topic, parts in value.items()}


def remade(then: Position, now_ids: Mapping[str, str]) -> set[str]:
    """Topics of `then` whose name belongs to another topic now."""
    return {topic for topic, known in then.topic_ids.items() if now_ids.get(topic, known) != known}


def losses(then: Position, now: Position) -> list[str]:
    """What a query that stood at `then` can no longer read, in words; `now` holds the ends of all partitions."""
    others = remade(then, now.topic_ids)
    losses = [f"topic {topic} was deleted and made again" for topic in sorted(others)]
    for key in sorted(then.offsets):
        if key.topic in others:
            continue
        if key not in now.offsets:
            losses.append(f"{key} is gone")
        elif now.offsets[key] < then.offsets[key]:
            losses.append(f"{key} ends at {now.offsets[key]}, the query is at {then.offsets[key]}")
    return losses


def range_losses(wanted: Iterable[OffsetRange], earliest: Offsets, latest: Offsets) -> list[str]:
    """What of planned ranges is not in the log any more, in words. Both maps hold every partition of the ranges."""
    losses = []
    for key, start, end in wanted:
        if earliest[key] > start:
            losses.append(f"{key} begins at {earliest[key]}, offsets from {start} on were removed")
        if latest[key] < end:
            losses.append(f"{key} ends at {latest[key]}, but was to be read up to {end}")
    return losses


def clipped(wanted: Iterable[OffsetRange], earliest: Offsets, latest: Offsets) -> list[OffsetRange]:
    """What of planned ranges is still in the log."""
    held = [OffsetRange(key, max(start, earliest[key]), min(end, latest[key])) for key, start, end in wanted]
    return [part for part in held if part.start < part.end]


def carried(then: Position, now: Position) -> Offsets:
    """The offsets of `then` that still mean something: same topic, partition still there, no further than its end."""
    others = remade(then, now.topic_ids)
    return {
        key: min(at, now.offsets[key])
        for key, at in then.offsets.items()
        if key.topic not in others and key in now.offsets
    }


def missing(known: Iterable[SourcePartition], offsets: Collection[SourcePartition]) -> list[SourcePartition]:
    """Partitions that have no offset yet: new ones, which start at their earliest."""
    return sorted(key for key in known if key not in offsets)


def limited_end(start: Mapping[SourcePartition, int], latest: Offsets, limit: int | None) -> Offsets:
    """Ends of a micro-batch of at most about `limit` offsets, shared in proportion to each partition's backlog.

    `start` covers every partition of `latest`. A partition that lags gets at least one offset, so that none starves; hence
    the sum may pass the limit by the number of partitions.
    """
    backlog = {key: max(0, latest[key] - start[key]) for key in latest}
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return dict(latest)
    return {
        key: start[key] + min(behind, max(1, behind * limit // total)) if behind else latest[key]
        for key, behind in backlog.items()
    }


def ranges(start: Mapping[SourcePartition, int], end: Mapping[SourcePartition, int]) -> list[OffsetRange]:
    """The non-empty ranges between two offset maps, in the order of partitions."""
    return [OffsetRange(key, start[key], end[key]) for key in sorted(end) if key in start and end[key] > start[key]]
