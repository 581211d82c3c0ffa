"""A group of the consumer protocol: its epochs, members and targets, which records alone change, and what is derived of them.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: group epoch and assignment epoch never fall while the group lives, the second is never past the first; a partition has one
            holder, who has it assigned or pending revocation; the counts are those of the members.
Read next:  member.py; heartbeat.py, fencing.py and target.py, the steps; ../shard.py, which keeps the groups of one partition.

State is derived, never stored: no members: Empty; a group epoch past the assignment epoch: Assigning; a member that is not STABLE
at the assignment epoch: Reconciling; else Stable.

Not obvious:
- The records of a compacted log come in any order: a member's assignment before what it says of itself, a member before its group.
  Each makes what is missing, with the values that a new group or member has. A tombstone of what is not there changes nothing.
- A group may be in the log by its members alone: one whose first member subscribes by a regular expression has no epoch
  before that is resolved.
- Of two holders of a partition, which only a foreign log can have, the one with the higher member epoch is believed.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Final

from barnabas_coordination.group.consumer.member import ConsumerMember
from barnabas_coordination.group.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ConsumerRecord,
    GroupValue,
    MemberMetadata,
    RegexValue,
)
from barnabas_coordination.group.consumer.soft_state import SoftState
from barnabas_coordination.group.led_group import FIRST_EPOCH, LedGroupState, RecordKinds
from barnabas_coordination.group.led_records import Partitions
from barnabas_coordination.group.messages import OffsetToCommit
from barnabas_coordination.group.protocols import CONSUMER_PROTOCOL_TYPE
from barnabas_wire.kafka.ids import Uuid

NOTHING: Final[Partitions] = {}


class ConsumerGroupState(StrEnum):
    """States by the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup(LedGroupState[ConsumerMember, Partitions, SoftState]):
    """One group."""

    type_name = "consumer"
    protocol_type: Final = CONSUMER_PROTOCOL_TYPE
    value: GroupValue
    kinds = RecordKinds(
        metadata=ConsumerGroupMetadataRecord,
        member=ConsumerGroupMemberMetadataRecord,
        target=ConsumerGroupTargetAssignmentMetadataRecord,
        member_target=ConsumerGroupTargetAssignmentMemberRecord,
        assignment=ConsumerGroupCurrentMemberAssignmentRecord,
    )
    member_type = ConsumerMember
    unknown_metadata = MemberMetadata(client_id="", client_host="")
    nothing = NOTHING

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, GroupValue(FIRST_EPOCH), SoftState())
        self.regexes: dict[str, RegexValue] = {}
        """What each was resolved to; one that is not resolved yet is not here."""
        self.has_partition_metadata = False
        """Whether the log has what former versions of Kafka wrote of the topics."""
        self.holders: dict[Uuid, dict[int, str]] = {}
        """Topic id -> partition -> the member that has it, or still has to revoke it."""
        self.topic_counts: Counter[str] = Counter()
        """How many members name a topic."""
        self.regex_counts: Counter[str] = Counter()
        self.assignor_votes: Counter[str] = Counter()
        self.classic_count = 0
        """Members that speak the classic protocol."""

    # ---- derived -------------------------------------------------------------------------------------------------

    @property
    def metadata_hash(self) -> int:
        """The hash of the metadata of the topics subscribed to."""
        return self.value.metadata_hash

    @property
    def state(self) -> ConsumerGroupState:
        """See LedGroupState.state."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.STABLE if self.is_settled else ConsumerGroupState.RECONCILING

    @property
    def protocol(self) -> str | None:
        """The assignor that most members ask for; None where the broker's default serves."""
        votes = self.assignor_votes
        return min(votes, key=lambda name: (-votes[name], name)) if votes else None

    def holder(self, topic_id: Uuid, partition: int) -> str | None:
        """The member that has a partition, or still has to revoke it."""
        return self.holders.get(topic_id, {}).get(partition)

    def held_since(self, member: ConsumerMember, offset: OffsetToCommit) -> int | None:
        """The epoch since which a member has a partition; None where it has not."""
        return member.assignment_epoch(offset.topic_id, offset.partition)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to it, by its name or by a regular expression. What one matches that is not resolved yet is
        unknown: it counts, lest offsets of a living group expire meanwhile."""
        return self.topic_counts[topic] > 0 or any(
            regex not in self.regexes or topic in self.regexes[regex].topics for regex in self.regex_counts
        )

    def copy(self) -> ConsumerGroup:
        """A draft, on which a step may replay what it is about to write."""
        draft = super().copy()
        draft.has_partition_metadata = self.has_partition_metadata
        draft.regexes = dict(self.regexes)
        return draft

    # ---- replay --------------------------------------------------------------------------------------------------

    def replay(self, record: ConsumerRecord) -> None:
        """Change state by one record of this group that is not its tombstone."""
        match record:
            case ConsumerGroupMemberMetadataRecord(_, member_id, metadata):
                self.replay_member(member_id, metadata)
            case ConsumerGroupCurrentMemberAssignmentRecord(_, member_id, value):
                self.replay_assignment(member_id, value)
            case ConsumerGroupMetadataRecord(_, group):
                self.replay_metadata(group)
            case ConsumerGroupTargetAssignmentMetadataRecord(_, target):
                self.replay_target(target)
            case ConsumerGroupTargetAssignmentMemberRecord(_, member_id, partitions):
                self.replay_member_target(member_id, partitions)
            case ConsumerGroupRegularExpressionRecord(_, regex, resolved):
                if resolved is None:
                    self.regexes.pop(regex, None)
                else:
                    self.regexes[regex] = resolved
            case ConsumerGroupPartitionMetadataRecord(_, is_tombstone):
                self.has_partition_metadata = not is_tombstone

    def _hold(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.pending):
            for topic_id, partitions in held.items():
                holders = self.holders.setdefault(topic_id, {})
                for partition in partitions:
                    other = self.members.get(holders.get(partition, ""))
                    if other is None or other.epoch <= member.epoch:
                        holders[partition] = member.member_id

    def _release(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.pending):
            for topic_id, partitions in held.items():
                holders = self.holders.get(topic_id, {})
                for partition in partitions:
                    if holders.get(partition) == member.member_id:
                        del holders[partition]
                if not holders:
                    self.holders.pop(topic_id, None)

    def _count(self, member: ConsumerMember, sign: int) -> None:
        super()._count(member, sign)
        metadata = member.metadata
        for name in metadata.topic_names:
            _add(self.topic_counts, name, sign)
        if member.regex:
            _add(self.regex_counts, member.regex, sign)
        if metadata.server_assignor:
            _add(self.assignor_votes, metadata.server_assignor, sign)
        self.classic_count += sign * member.is_classic


def _add(counts: Counter[str], key: str, sign: int) -> None:
    counts[key] += sign
    if not counts[key]:
        del counts[key]
