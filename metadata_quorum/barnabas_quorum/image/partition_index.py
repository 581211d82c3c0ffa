"""What is known of all partitions without visiting them: how many, where, and which of them are not as they should be.

May touch:  rpds, PartitionRegistration.   Must not touch: records, asyncio, clock, files, controller.
Invariants: derived from the partitions alone, so equal partitions give an equal index, in whatever order they came; kept up at
            a cost of what changed, never of what there is.
Read next:  topics.py, which holds one in every image; controller/partitions.py, which asks it.

Why so coarse?  A broker's entry names topics, not partitions, with how many of its replicas each holds: about a hundredth of the
memory where topics have a hundred partitions, and a change of an ISR or a leader leaves it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from rpds import HashTrieMap, HashTrieSet

from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_wire.kafka.ids import BrokerId, Uuid
from barnabas_wire.lazy_dataclass import dataclass

_NONE: HashTrieMap[Uuid, int] = HashTrieMap()


class PartitionKey(NamedTuple):
    """A partition by topic id."""

    topic_id: Uuid
    partition_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionIndex:
    """An index of the partitions of all topics of one image."""

    partition_count: int = 0
    replica_counts: Mapping[BrokerId, int] = field(default_factory=dict)
    """How many replicas each broker holds; a broker without any is not in it."""
    leader_counts: Mapping[BrokerId, int] = field(default_factory=dict)
    """How many partitions each broker leads; NO_BROKER for those without a leader; nobody with none."""
    topics_of: Mapping[BrokerId, HashTrieMap[Uuid, int]] = field(default_factory=dict)
    """By broker: the topics it holds replicas of, and how many of each."""
    unsettled: HashTrieSet[PartitionKey] = field(default_factory=HashTrieSet)
    """Partitions that are not settled (below)."""

    def topic_ids_of(self, broker_id: BrokerId) -> Iterable[Uuid]:
        """Topics of which the broker holds a replica, in no particular order."""
        held: Iterable[Uuid] = self.topics_of.get(broker_id, _NONE)
        return held


EMPTY_INDEX = PartitionIndex()


def is_settled(partition: PartitionRegistration) -> bool:
    """Led by its preferred leader, all replicas in sync and whole, nothing under way: nobody who looks for work finds any here."""
    replicas = partition.replicas
    return (
        partition.leader == replicas[0]
        and (partition.isr == replicas or set(partition.isr) >= set(replicas))
        and not (partition.adding_replicas or partition.removing_replicas or partition.elr or partition.last_known_elr)
        and not partition.faults
    )


class PartitionIndexDelta:
    """The index after changes. `change` each partition once, then `apply`."""

    __slots__ = ("_held", "_image", "_leaders", "_partitions", "_replicas", "_unsettled")

    def __init__(self, image: PartitionIndex) -> None:
        self._image = image
        self._partitions = image.partition_count
        self._replicas: dict[BrokerId, int] = dict(image.replica_counts)
        self._leaders: dict[BrokerId, int] = dict(image.leader_counts)
        self._held: dict[BrokerId, dict[Uuid, int]] = {}
        """By broker: how many replicas more (or fewer) of a topic."""
        self._unsettled = image.unsettled

    def change(
        self,
        topic_id: Uuid,
        partition_id: int,
        before: PartitionRegistration | None,
        after: PartitionRegistration | None,
    ) -> None:
        """One partition came, went or changed."""
        self._partitions += (after is not None) - (before is not None)
        if before is not None:
            _count(self._leaders, before.leader, -1)
        if after is not None:
            _count(self._leaders, after.leader, 1)
        was_settled = before is None or is_settled(before)
        is_settled_now = after is None or is_settled(after)
        if was_settled != is_settled_now:
            key = PartitionKey(topic_id, partition_id)
            self._unsettled = self._unsettled.discard(key) if is_settled_now else self._unsettled.insert(key)
        were = () if before is None else before.replicas
        are = () if after is None else after.replicas
        if were == are:
            return
        for replica in are:
            self._hold(replica, topic_id, 1)
        for replica in were:
            self._hold(replica, topic_id, -1)

    def _hold(self, broker_id: BrokerId, topic_id: Uuid, more: int) -> None:
        _count(self._replicas, broker_id, more)
        held = self._held.get(broker_id)
        if held is None:
            held = self._held[broker_id] = {}
        held[topic_id] = held.get(topic_id, 0) + more

    def apply(self) -> PartitionIndex:
        """The index with all of it."""
        topics_of = self._image.topics_of
        if self._held:
            topics_of = dict(topics_of)
            for broker_id, changes in self._held.items():
                held = topics_of.get(broker_id, _NONE)
                for topic_id, more in changes.items():
                    count = held.get(topic_id, 0) + more
                    if count:
                        held = held.insert(topic_id, count)
                    elif topic_id in held:
                        held = held.remove(topic_id)
                if len(held):
                    topics_of[broker_id] = held
                else:
                    topics_of.pop(broker_id, None)
        return PartitionIndex(
            partition_count=self._partitions,
            replica_counts=self._replicas,
            leader_counts=self._leaders,
            topics_of=topics_of,
            unsettled=self._unsettled,
        )


def _count(counts: dict[BrokerId, int], broker_id: BrokerId, more: int) -> None:
    count = counts.get(broker_id, 0) + more
    if count:
        counts[broker_id] = count
    else:
        counts.pop(broker_id, None)
