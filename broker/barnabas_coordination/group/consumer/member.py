"""One member of a consumer group: what it says of itself, what it has, and what it still has to give up.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: never changed in place, each record makes another; nothing is both assigned and pending; pending is empty unless the
            member is UNREVOKED.
Read next:  group.py, which keeps the members; reconciliation.py, which leads one to its target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final

from barnabas_coordination.group.consumer.records import AssignmentValue, HeldPartitions, MemberMetadata, MemberState
from barnabas_coordination.group.led_records import LEAVES_FOR_A_WHILE, NO_MEMBER_EPOCH, Partitions
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass

MEMBER_BYTES: Final = 300
"""What a member takes that sends next to nothing: 50,000 of them fill what one group may take."""

Owned = Mapping[Uuid, frozenset[int]]
"""Topic id -> the partitions that a member says it owns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """As the records have it."""

    member_id: str
    metadata: MemberMetadata
    epoch: int = 0
    previous_epoch: int = NO_MEMBER_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: HeldPartitions = field(default_factory=dict)
    pending: HeldPartitions = field(default_factory=dict)
    """The partitions to be given up."""

    @property
    def regex(self) -> str:
        """The regular expression that it subscribes with; empty where it has none."""
        return self.metadata.topic_regex or ""

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.metadata.classic is not None

    @property
    def is_stable(self) -> bool:
        """Whether it has what it can have, all of its target."""
        return self.state is MemberState.STABLE

    @property
    def size(self) -> int:
        """About how many bytes its own words take."""
        return size_of(self.metadata)

    @property
    def is_revoking(self) -> bool:
        """Whether it still has something to give up."""
        return self.state is MemberState.UNREVOKED_PARTITIONS

    @property
    def has_left_for_a_while(self) -> bool:
        """Whether it is a static member that left and may come back."""
        return self.epoch == LEAVES_FOR_A_WHILE

    def to_value(self) -> AssignmentValue:
        """What a record of its assignment has."""
        return AssignmentValue(self.epoch, self.previous_epoch, self.state, self.assigned, self.pending)

    def with_assignment(self, value: AssignmentValue) -> ConsumerMember:
        """As that record says."""
        return replace(
            self,
            epoch=value.epoch,
            previous_epoch=value.previous_epoch,
            state=value.state,
            assigned=value.assigned,
            pending=value.pending,
        )

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch in which it got a partition that it holds; None for one that it does not hold."""
        for held in (self.assigned, self.pending):
            found = held.get(topic_id, {}).get(partition)
            if found is not None:
                return found
        return None


def is_same_set(one: HeldPartitions, other: HeldPartitions) -> bool:
    """Whether both are the same partitions, whatever their epochs."""
    return one.keys() == other.keys() and all(of.keys() == other[topic_id].keys() for topic_id, of in one.items())


def is_within(owned: Owned, held: HeldPartitions) -> bool:
    """Whether all that is owned is held."""
    return all(partitions <= held.get(topic_id, {}).keys() for topic_id, partitions in owned.items())


def touches(owned: Owned, held: HeldPartitions) -> bool:
    """Whether something owned is held."""
    return any(not partitions.isdisjoint(held.get(topic_id, {})) for topic_id, partitions in owned.items())


def partitions_of(held: HeldPartitions) -> Partitions:
    """Without the epochs, in ascending order."""
    return {topic_id: tuple(sorted(of)) for topic_id, of in held.items() if of}


def size_of(metadata: MemberMetadata) -> int:
    """Bytes of memory that a member takes by what it says of itself, about."""
    texts = (metadata.instance_id, metadata.rack_id, metadata.client_id, metadata.client_host, metadata.topic_regex)
    size = (
        MEMBER_BYTES + sum(len(text) for text in texts if text) + sum(len(name) + 50 for name in metadata.topic_names)
    )
    offered = () if metadata.classic is None else metadata.classic.protocols
    return size + sum(len(name) + len(said) for name, said in offered)
