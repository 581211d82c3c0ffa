"""What assignors are given, and how they are called.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a former target has no partition that another member's has.
Read next:  uniform.py, range.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field
from typing import Final

from barnabas_coordination.group.led_records import Partitions
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass

Targets = Mapping[str, Partitions]
"""Member id -> the partitions that it is to have."""
Assigning = Generator[None, None, Targets]
Assignor = Callable[["Subscribers"], Assigning]

WORK_BEFORE_GIVING_WAY: Final = 2_000
"""Partitions that an assignor handles between two turns that it gives to others: 1 to 2 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member of the group."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    topics: frozenset[Uuid]
    """The existing topics that it subscribes to."""
    target: Partitions
    """The former one, of which as much as possible is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribers:
    """A group."""

    members: Sequence[Subscriber]
    partition_counts: Mapping[Uuid, int]
    """Topic id -> how many partitions it has, for each topic that a member subscribes to."""
    partition_racks: Mapping[Uuid, Sequence[frozenset[str]]] = field(default_factory=dict)
    """Topic id -> the racks of each partition's replicas, in the order of the partitions; for assignors that look at racks."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether all subscribe to the same topics."""
        return len({member.topics for member in self.members}) <= 1

    @property
    def partition_count(self) -> int:
        """How many partitions all topics have together."""
        return sum(self.partition_counts.values())


def run(assigning: Assigning) -> Targets:
    """The targets, at one go."""
    while True:
        try:
            next(assigning)
        except StopIteration as done:
            targets: Targets = done.value
            return targets


def to_partitions(given: Mapping[Uuid, Sequence[int]]) -> Partitions:
    """Topics by their ids, partitions in ascending order, without what is empty."""
    return {topic_id: tuple(sorted(given[topic_id])) for topic_id in sorted(given) if given[topic_id]}
