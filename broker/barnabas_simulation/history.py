"""Reads a whole history: what was sent, what was acknowledged and where, and what the log holds in the end.

Laws judged
    lost        an acknowledged record is nowhere in the log
    duplicated  a record is in the log more than once (an idempotent producer may not)
    misplaced   an acknowledged record is not at the offset that its acknowledgement named
    reordered   of two records of one producer in one partition, the later sent comes first (max.in.flight with idempotence)
    invented    the log holds a record that was never sent
A record that was not acknowledged may be in the log or not: the producer does not know, and neither is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """Where a record is, by its acknowledgement or in the log."""

    topic: str
    partition: int
    offset: int
    """-1: the acknowledgement named none, as librdkafka's where a later batch of the producer was acknowledged and this one's own
    answer was lost: then it must be in the log, wherever."""


class Verdict(NamedTuple):
    """Ids (or places) that break each law; all empty in a clean history."""

    lost: list[int]
    duplicated: list[int]
    misplaced: list[int]
    reordered: list[tuple[int, int]]
    invented: list[int]
    acknowledged: int
    in_log: int

    @property
    def is_clean(self) -> bool:
        """No law broken."""
        return not (self.lost or self.duplicated or self.misplaced or self.reordered or self.invented)

    def __str__(self) -> str:
        counts = {
            name: len(getattr(self, name)) for name in ("lost", "duplicated", "misplaced", "reordered", "invented")
        }
        found = ", ".join(f"{name} {count}" for name, count in counts.items())
        return f"{self.acknowledged} acknowledged, {self.in_log} in the log: {found}"


def judge(
    *,
    sent: Iterable[int],
    acknowledged: Mapping[int, Place],
    log: Mapping[tuple[str, int], Sequence[tuple[int, int]]],
    is_idempotent: bool = True,
) -> Verdict:
    """Judge one producer's history.

    Args:
        sent: ids in the order in which they were handed to the producer; ids ascend.
        acknowledged: id -> where the cluster said it is.
        log: (topic, partition) -> (offset, id) in the order of the log.
        is_idempotent: False permits duplicates and reordering (retries without idempotence).
    """
    known = set(sent)
    copies: Counter[int] = Counter()
    where: dict[Place, int] = {}
    reordered: list[tuple[int, int]] = []
    for (topic, partition), records in log.items():
        previous = -1
        for offset, record_id in records:
            copies[record_id] += 1
            where[Place(topic, partition, offset)] = record_id
            if record_id < previous:
                reordered.append((previous, record_id))
            previous = max(previous, record_id)
    return Verdict(
        lost=sorted(record_id for record_id in acknowledged if copies[record_id] == 0),
        duplicated=sorted(record_id for record_id, count in copies.items() if count > 1) if is_idempotent else [],
        misplaced=sorted(
            record_id
            for record_id, place in acknowledged.items()
            if place.offset >= 0 and where.get(place) != record_id
        ),
        reordered=reordered if is_idempotent else [],
        invented=sorted(record_id for record_id in copies if record_id not in known),
        acknowledged=len(acknowledged),
        in_log=sum(copies.values()),
    )
