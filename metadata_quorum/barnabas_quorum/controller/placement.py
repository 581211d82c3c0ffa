"""Where the replicas of new partitions go: striped over racks, hosts and brokers.

May touch:  its arguments, among them the Random.   Must not touch: the image.
Invariants: no broker twice in a partition; the first replica is an active broker; the same brokers and the same seed
            give the same placement.
Read next:  topics.py, which uses it.

Soft rules, in order: spread each partition over racks, then over hosts (a broker that names none is one of its own), so that two of its
replicas share a host only where no other is left; put replicas on active brokers; give everyone the same number of
leaders (within one of each other) and of replicas (within two, where racks are even). Ties are broken at random, so that the
followers of one leader are not always the same two brokers and a lost broker's load spreads. Kafka's placer lets racks take
turns to lead; here the brokers of a small rack do not lead more than those of a big one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId


class PlaceableBroker(NamedTuple):
    """A registered broker as placement sees it."""

    id: BrokerId
    rack: str | None
    is_active: bool
    host: str | None = None

    @property
    def lost_with(self) -> object:
        """What is lost at once with this broker: its host, or it alone."""
        return self.id if self.host is None else self.host


def place_replicas(
    brokers: Iterable[PlaceableBroker], *, partition_count: int, replication_factor: int, random: Random
) -> list[tuple[BrokerId, ...]]:
    """The replica list of each new partition, preferred leader first.

    Raises KafkaError INVALID_REPLICATION_FACTOR when there are fewer brokers than replicas, or none active to lead.
    """
    ordered = sorted(brokers, key=lambda broker: broker.id)
    if replication_factor > len(ordered):
        raise KafkaError.of(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is more than the {len(ordered)} registered brokers; "
            "lower it, or start more brokers",
        )
    if not any(broker.is_active for broker in ordered):
        raise KafkaError.of(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"all {len(ordered)} registered brokers are fenced, so nobody could lead; wait for one to come up",
        )
    led: Counter[BrokerId] = Counter()
    held: Counter[BrokerId] = Counter()
    placed = []
    for _ in range(partition_count):
        replicas = _place_one(ordered, replication_factor, led, held, random)
        led[replicas[0]] += 1
        held.update(replicas)
        placed.append(replicas)
    return placed


def _place_one(
    brokers: list[PlaceableBroker],
    replication_factor: int,
    led: Counter[BrokerId],
    held: Counter[BrokerId],
    random: Random,
) -> tuple[BrokerId, ...]:
    racks_used: Counter[str | None] = Counter()
    hosts_used: Counter[object] = Counter()

    def take(candidates: list[PlaceableBroker], load: Callable[[PlaceableBroker], tuple[int, ...]]) -> BrokerId:
        loads = [load(broker) for broker in candidates]
        least = min(loads)
        chosen = random.choice([broker for broker, its in zip(candidates, loads, strict=True) if its == least])
        racks_used[chosen.rack] += 1
        hosts_used[chosen.lost_with] += 1
        return chosen.id

    replicas = [
        take([broker for broker in brokers if broker.is_active], lambda broker: (led[broker.id], held[broker.id]))
    ]
    while len(replicas) < replication_factor:
        replicas.append(
            take(
                [broker for broker in brokers if broker.id not in replicas],
                lambda broker: (
                    racks_used[broker.rack] > 0,
                    hosts_used[broker.lost_with],
                    racks_used[broker.rack],
                    not broker.is_active,
                    held[broker.id],
                ),
            )
        )
    return tuple(replicas)
