"""A share group: its epochs, members, targets and share states, which records alone change, and what is derived of them.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: those of ../led_group.py; a partition's share state is begun, being begun or neither, never two of them.
Read next:  member.py; partitions.py for the share states; heartbeat.py and fencing.py, the steps; ../shard.py, which keeps the groups
            of one partition.

A group without members is Empty, any other Stable: nothing is revoked, so there is nothing to wait for. It never becomes a group of
another protocol, and goes by being deleted alone: its share states are somebody's backlog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum
from typing import Final

from barnabas_coordination.group.led_group import FIRST_EPOCH, LedGroupState, RecordKinds
from barnabas_coordination.group.led_records import Partitions
from barnabas_coordination.group.led_targets import TargetJob
from barnabas_coordination.group.share.member import ShareMember
from barnabas_coordination.group.share.records import (
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
    ShareGroupValue,
    ShareMemberMetadata,
    ShareRecord,
    StatePartitions,
)
from barnabas_coordination.shard import Ticket
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass

NOTHING: Final[Partitions] = {}
PartitionOf = tuple[Uuid, int]


class ShareGroupState(StrEnum):
    """States by the names that ShareGroupDescribe shows."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that is answered once share states were begun, or all of their topics forgotten."""

    ticket: Ticket
    written: StatePartitions
    """What its record says."""
    topic_ids: frozenset[Uuid] = frozenset()
    """Those to be forgotten."""
    partitions: frozenset[PartitionOf] = frozenset()
    """Those to be begun."""
    deletes_group: bool = False
    begun: dict[PartitionOf, KafkaError | None] = field(default_factory=dict)
    """What came of each partition."""
    ended: dict[Uuid, KafkaError | None] = field(default_factory=dict)
    """What came of each topic."""


@dataclass(slots=True)
class ShareSoftState:
    """What one group has in memory alone: it is gone after a failover."""

    target_job: TargetJob | None = None
    settled: tuple[TopicsImage, StatePartitions, int] | None = None
    """Topics, share states and assignment epoch by which nothing was found that waits to be assigned."""
    beginning: dict[PartitionOf, int] = field(default_factory=dict)
    """What share coordinators are being asked to begin, by the state epoch."""
    asked: dict[PartitionOf, int] = field(default_factory=dict)
    """The epoch in which each partition that is being begun was last asked for."""
    ending: set[Uuid] = field(default_factory=set)
    """Topics whose states share coordinators are being asked to forget."""
    waiting: list[Waiting] = field(default_factory=list)


class ShareGroup(LedGroupState[ShareMember, Partitions, ShareSoftState]):
    """One group."""

    type_name = "share"
    protocol_type: Final = "share"
    protocol: str | None = None
    """Its members do not choose the assignor."""
    value: ShareGroupValue
    kinds = RecordKinds(
        metadata=ShareGroupMetadataRecord,
        member=ShareGroupMemberMetadataRecord,
        target=ShareGroupTargetAssignmentMetadataRecord,
        member_target=ShareGroupTargetAssignmentMemberRecord,
        assignment=ShareGroupCurrentMemberAssignmentRecord,
    )
    member_type = ShareMember
    unknown_metadata = ShareMemberMetadata(client_id="", client_host="")
    nothing = NOTHING

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, ShareGroupValue(FIRST_EPOCH), ShareSoftState())
        self.topic_counts: Counter[str] = Counter()
        """How many members name a topic."""
        self.states = StatePartitions()

    # ---- derived -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ShareGroupState:
        """See LedGroupState.state."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member names it."""
        return self.topic_counts[topic] > 0

    def beginning(self) -> Iterator[PartitionOf]:
        """Partitions whose share states are being begun."""
        for topic_id, topic in self.states.beginning.items():
            for partition in topic.starts:
                yield topic_id, partition

    # ---- replay --------------------------------------------------------------------------------------------------

    def replay(self, record: ShareRecord) -> None:
        """Change state by one record of this group that is not its tombstone."""
        match record:
            case ShareGroupMemberMetadataRecord(_, member_id, metadata):
                self.replay_member(member_id, metadata)
            case ShareGroupCurrentMemberAssignmentRecord(_, member_id, assignment):
                self.replay_assignment(member_id, assignment)
            case ShareGroupMetadataRecord(_, value):
                self.replay_metadata(value)
            case ShareGroupTargetAssignmentMetadataRecord(_, target):
                self.replay_target(target)
            case ShareGroupTargetAssignmentMemberRecord(_, member_id, partitions):
                self.replay_member_target(member_id, partitions)
            case ShareGroupStatePartitionMetadataRecord(_, states):
                self.states = states or StatePartitions()

    def _count(self, member: ShareMember, sign: int) -> None:
        super()._count(member, sign)
        for name in member.metadata.topic_names:
            self.topic_counts[name] += sign
            if not self.topic_counts[name]:
                del self.topic_counts[name]
