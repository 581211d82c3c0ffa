"""A topology checked against the topics that there are: the partition counts of its internal topics, what is missing.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a topology is ready iff every topic of it is there with as many partitions as it must have; a partition count that the
            application fixes is kept; with the same topics the result is the same.
Read next:  topology.py; heartbeat.py, the user.

In Kafka's order, and the first step that fails says what is wrong: the sources; the counts of repartition topics, which follow from
who writes them; copartitioned topics; changelogs, which have a partition for each task; and what is there already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from barnabas_coordination.group.streams.errors import InvalidTopology
from barnabas_coordination.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.lazy_dataclass import dataclass

NAMES_SHOWN_MAX: Final = 3


class StatusCode(IntEnum):
    """Why a group does not run, by Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6
    """Known from version 1 of the heartbeat on."""


class Status(NamedTuple):
    """One of them, in words."""

    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTopology:
    """What came out of it."""

    status: Status | None = None
    """What is in the way; None: the topology is ready."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """Internal topic -> partitions; empty where they could not be decided."""
    task_counts: Mapping[str, int] = field(default_factory=dict)
    """Subtopology -> tasks; likewise."""
    missing: tuple[InternalTopic, ...] = ()
    """Topics to be made, with the partitions that they must have."""

    @property
    def is_ready(self) -> bool:
        """Whether the application can run."""
        return self.status is None


class _InTheWay(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def configure(topology: Topology, topics: TopicsImage) -> ConfiguredTopology:
    """Hold a topology against the topics. Raises InvalidTopology where no topics could make it run."""
    try:
        return _configure(topology, topics)
    except _InTheWay as found:
        return ConfiguredTopology(status=found.status)


def _configure(topology: Topology, topics: TopicsImage) -> ConfiguredTopology:
    missing_sources = [name for name in topology.source_topics if topics.get(name) is None]
    if missing_sources:
        raise _InTheWay(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_shown(missing_sources)} are missing.")
    counts = {name: _existing(topics, name) for name in topology.source_topics}
    fixed = {
        topic.name: topic.partitions
        for part in topology.subtopologies
        for topic in part.repartition_sources
        if topic.partitions > 0
    }
    counts.update(fixed)
    _decide_repartitions(topology, counts)
    for part in topology.subtopologies:
        for group in part.copartitions:
            _copartition(part, group, fixed, counts)
    task_counts = {}
    for part in topology.subtopologies:
        if not part.inputs:
            raise InvalidTopology(f"subtopology {part.subtopology_id} reads no topic")
        task_counts[part.subtopology_id] = max(counts[name] for name in part.inputs)
        for topic in part.changelogs:
            counts[topic.name] = task_counts[part.subtopology_id]
    wanted = {
        topic.name: topic for part in topology.subtopologies for topic in (*part.repartition_sources, *part.changelogs)
    }
    decided = {name: counts[name] for name in wanted}
    for name, count in sorted(decided.items()):
        found = topics.get(name)
        if found is not None and len(found.partitions) != count:
            raise _InTheWay(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {count}, found {len(found.partitions)}",
            )
    missing = tuple(
        topic._replace(partitions=decided[name]) for name, topic in sorted(wanted.items()) if topics.get(name) is None
    )
    status = None
    if missing:
        names = _shown(topic.name for topic in missing)
        status = Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(status=status, partition_counts=decided, task_counts=task_counts, missing=missing)


def _existing(topics: TopicsImage, name: str) -> int:
    topic = topics.get(name)
    assert topic is not None, "it was looked for"
    return len(topic.partitions)


def _decide_repartitions(topology: Topology, counts: dict[str, int]) -> None:
    """A repartition topic has as many partitions as the largest topic that its writers read. What feeds back into what its writers
    read counts as far as it is known, as with Kafka."""
    writers: dict[str, list[Subtopology]] = {}
    for part in topology.subtopologies:
        for name in part.repartition_sinks:
            writers.setdefault(name, []).append(part)
    undecided = {
        topic.name for part in topology.subtopologies for topic in part.repartition_sources if topic.name not in counts
    }
    unwritten = sorted(undecided - writers.keys())
    if unwritten:
        raise InvalidTopology(f"nothing writes the repartition topics {_shown(unwritten)}")
    readers: dict[str, set[str]] = {}
    """Topic -> the undecided ones that follow from it."""
    waits: dict[str, int] = {}
    known: list[tuple[int, str]] = []
    """How many of the topics that one follows from are undecided, for those of which one is decided: the next first."""
    for name in undecided:
        inputs = {of for part in writers[name] for of in part.inputs}
        for of in inputs:
            readers.setdefault(of, set()).add(name)
        waits[name] = len(inputs & undecided)
        if waits[name] < len(inputs):
            known.append((waits[name], name))
    heapify(known)
    while known:
        _, name = heappop(known)
        if name not in undecided:
            continue
        counts[name] = max(counts[of] for part in writers[name] for of in part.inputs if of in counts)
        undecided.discard(name)
        for reader in readers.get(name, ()):
            if reader in undecided:
                waits[reader] -= 1
                heappush(known, (waits[reader], reader))
    if undecided:
        raise InvalidTopology(
            f"the partitions of the repartition topics {_shown(undecided)} follow from each other: fix the count of one of them"
        )


def _copartition(part: Subtopology, group: CopartitionGroup, fixed: Mapping[str, int], counts: dict[str, int]) -> None:
    """Make the topics of a copartition group agree."""
    sources = [part.source_topics[place] for place in group.source_topics]
    repartitions = [part.repartition_sources[place].name for place in group.repartition_source_topics]
    external = {name: counts[name] for name in sources}
    if external:
        count = _same(external)
        for name in repartitions:
            if name in fixed and fixed[name] != count:
                raise _InTheWay(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{fixed[name]}] of repartition topic [{name}] doesn't match number of partitions [{count}] of "
                    "the source topic.",
                )
    elif repartitions:
        of_fixed = {name: fixed[name] for name in repartitions if name in fixed}
        count = _same(of_fixed) if of_fixed else max(counts[name] for name in repartitions)
    counts.update(dict.fromkeys(repartitions, count) if repartitions else {})


def _same(counts: Mapping[str, int]) -> int:
    found = set(counts.values())
    if len(found) > 1:
        raise _InTheWay(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{_shown(counts)}]",
        )
    return found.pop()


def _shown(names: Collection[str] | Iterable[str]) -> str:
    """At most NAMES_SHOWN_MAX of the names."""
    found = sorted(names)
    more = len(found) - NAMES_SHOWN_MAX
    return ", ".join(found[:NAMES_SHOWN_MAX]) + (f" and {more} additional topics" if more > 0 else "")
