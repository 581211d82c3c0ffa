"""The topology of a Streams application: its subtopologies, and the topics that they read, write and keep their stores in.

May touch:  its arguments.            Must not touch: everything else.
Invariants: equal applications have equal topologies: what a client lists in whatever order is in one order here.
Read next:  internal_topics.py, which holds it against the topics that there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas_wire.lazy_dataclass import dataclass


class InternalTopic(NamedTuple):
    """A topic that the application needs and the coordinator has made."""

    name: str
    partitions: int = 0
    """0: to be decided."""
    replication_factor: int = 0
    """0 or less: the cluster's default."""
    configs: tuple[tuple[str, str], ...] = ()
    """Sorted."""


class CopartitionGroup(NamedTuple):
    """Topics that must have as many partitions as each other; their places in the lists of the subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """A part of the application that is connected. Its tasks are the partitions of what it reads."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    """Topics of others that it reads. Sorted, as all lists here."""
    source_topic_regex: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    """Where its stores are kept: with one it is stateful."""
    repartition_sinks: tuple[str, ...] = ()
    """Internal topics that it writes for other subtopologies."""
    repartition_sources: tuple[InternalTopic, ...] = ()
    """Internal topics that it reads."""
    copartitions: tuple[CopartitionGroup, ...] = ()

    @property
    def is_stateful(self) -> bool:
        """Whether copies of its tasks on other instances serve a purpose."""
        return bool(self.changelogs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every topic that it reads."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_sources))

    def in_order(self) -> Subtopology:
        """The same with every list sorted, and the places in its copartition groups moved along."""
        sources, moved_sources = _sorted(self.source_topics)
        read = sorted(self.repartition_sources, key=lambda topic: topic.name)
        _, moved_read = _sorted([topic.name for topic in self.repartition_sources])
        return Subtopology(
            subtopology_id=self.subtopology_id,
            source_topics=sources,
            source_topic_regex=self.source_topic_regex,
            changelogs=tuple(map(_in_order, sorted(self.changelogs, key=lambda topic: topic.name))),
            repartition_sinks=tuple(sorted(self.repartition_sinks)),
            repartition_sources=tuple(map(_in_order, read)),
            copartitions=tuple(
                sorted(
                    CopartitionGroup(
                        tuple(sorted(moved_sources[place] for place in group.source_topics)),
                        group.source_topic_regex,
                        tuple(sorted(moved_read[place] for place in group.repartition_source_topics)),
                    )
                    for group in self.copartitions
                )
            ),
        )


def _sorted(names: Sequence[str]) -> tuple[tuple[str, ...], dict[int, int]]:
    """Names in order, and former place -> place."""
    order = sorted(range(len(names)), key=lambda place: names[place])
    return tuple(names[place] for place in order), {place: now for now, place in enumerate(order)}


def _in_order(topic: InternalTopic) -> InternalTopic:
    return topic._replace(configs=tuple(sorted(topic.configs)))


@dataclass(frozen=True, slots=True)
class Topology:
    """What the application consists of; its epoch is the client's."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @property
    def source_topics(self) -> frozenset[str]:
        """Topics of others: they must be there."""
        internal = {topic.name for part in self.subtopologies for topic in part.repartition_sources}
        return frozenset(name for part in self.subtopologies for name in part.source_topics) - internal

    @property
    def inputs(self) -> frozenset[str]:
        """Every topic that it reads."""
        return frozenset(name for part in self.subtopologies for name in part.inputs)

    @property
    def internal_topics(self) -> frozenset[str]:
        """The names of its internal topics."""
        return frozenset(
            topic.name for part in self.subtopologies for topic in (*part.repartition_sources, *part.changelogs)
        )

    @property
    def topics(self) -> frozenset[str]:
        """Every topic whose partitions matter."""
        return self.source_topics | self.internal_topics

    def in_order(self) -> Topology:
        """The same, whatever order the client named its parts in."""
        parts = sorted(self.subtopologies, key=lambda part: part.subtopology_id)
        return Topology(self.epoch, tuple(part.in_order() for part in parts))
