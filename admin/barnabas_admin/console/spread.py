"""How evenly a topic lies over the brokers, in Kafka-Eagle's three figures, which its users compare.

May touch:  its arguments.            Must not touch: everything else.
Invariants: integer per cent, rounded down; of no broker or no partition each figure is 0.
Read next:  pages.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from barnabas_wire.lazy_dataclass import dataclass

SPREAD_LOW = 80
"""Below this per cent of brokers with a replica, the topic does not use the cluster."""
SKEW_HIGH = 30
"""Above this per cent of brokers that have more than their share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Per cent of the brokers: with a replica, with more than their share of replicas, with more than their share of leaders."""

    spread: int
    skew: int
    leader_skew: int
    replicas: dict[int, int]
    """Broker -> replicas of the topic."""
    leaders: dict[int, int]
    """Broker -> partitions of the topic that it leads."""


def spread_of(partitions: Iterable[tuple[int, Sequence[int]]], brokers: Iterable[int]) -> Spread:
    """The figures of a topic whose partitions are (leader, replicas), -1 for no leader.

    A broker has more than its share when it has more than the rounded-up mean of all brokers.
    """
    known = sorted(set(brokers))
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    count = 0
    for leader, assigned in partitions:
        count += 1
        replicas.update(assigned)
        leaders[leader] += 1
    return Spread(
        spread=_per_cent(sum(replicas[broker] > 0 for broker in known), len(known)),
        skew=_over_share(replicas, replicas.total(), known),
        leader_skew=_over_share(leaders, count, known),
        replicas={broker: replicas[broker] for broker in known},
        leaders={broker: leaders[broker] for broker in known},
    )


def _over_share(counts: Counter[int], total: int, brokers: Sequence[int]) -> int:
    if not brokers:
        return 0
    share = -(-total // len(brokers))
    return _per_cent(sum(counts[broker] > share for broker in brokers), len(brokers))


def _per_cent(part: int, whole: int) -> int:
    return part * 100 // whole if whole else 0
