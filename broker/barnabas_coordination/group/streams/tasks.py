"""Tasks: the parts of a Streams application, one for each partition of a subtopology's input, and what a member does with one.

May touch:  its arguments.            Must not touch: everything else.
Invariants: never changed in place.
Read next:  topology.py, which says how many there are; member.py, which has some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple


class Role(IntEnum):
    """What a member does with a task."""

    ACTIVE = 0
    """It works, and commits."""
    STANDBY = 1
    """It keeps a copy of the stores, so as to take over fast."""
    WARMUP = 2
    """It makes a copy of the stores, so as to take over soon. Kafka 4.4 hands out none."""


class Task(NamedTuple):
    """One partition of one subtopology's input."""

    subtopology: str
    partition: int


class Tasks(NamedTuple):
    """Tasks by their roles."""

    active: frozenset[Task] = frozenset()
    standby: frozenset[Task] = frozenset()
    warmup: frozenset[Task] = frozenset()

    def __bool__(self) -> bool:
        return any(self[role] for role in Role)

    def is_within(self, other: Tasks) -> bool:
        """Whether each is in the other in the same role."""
        return all(self[role] <= other[role] for role in Role)

    def touches(self, other: Tasks) -> bool:
        """Whether one is in the other in the same role."""
        return any(not self[role].isdisjoint(other[role]) for role in Role)


NO_TASKS: Final = Tasks()


class HeldTasks(NamedTuple):
    """Tasks that a member has; the active ones with the assignment epoch in which it got them."""

    active: Mapping[Task, int]
    standby: frozenset[Task] = frozenset()
    warmup: frozenset[Task] = frozenset()

    @property
    def tasks(self) -> Tasks:
        """The tasks without their epochs."""
        return Tasks(frozenset(self.active), self.standby, self.warmup)

    def by_role(self) -> Iterator[tuple[Role, Task]]:
        """Each with its role."""
        for role in Role:
            for task in self[role]:
                yield role, task


NOTHING_HELD: Final = HeldTasks({})


def by_subtopology(tasks: Iterable[Task]) -> dict[str, list[int]]:
    """Subtopology -> partitions, both in order."""
    found: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        found.setdefault(subtopology, []).append(partition)
    return found
