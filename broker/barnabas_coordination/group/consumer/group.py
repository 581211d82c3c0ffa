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
- A group may be in the log by its members alone: one whose first member subscribes by a regular expression has no epoch of its own
  before that is resolved.
- Of two holders of a partition, which only a foreign log can have, the one with the higher member epoch is believed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import StrEnum
from typing import Final

from barnabas_coordination.group.consumer.member import ConsumerMember, new_member, size_of
from barnabas_coordination.group.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ConsumerRecord,
    HeldPartitions,
    MemberMetadata,
    MemberState,
    Partitions,
    RegexValue,
)
from barnabas_coordination.group.consumer.soft_state import SoftState
from barnabas_coordination.group.messages import OffsetToCommit
from barnabas_coordination.group.protocols import CONSUMER_PROTOCOL_TYPE
from barnabas_coordination.group.states import GroupStats
from barnabas_wire.kafka.ids import Uuid

FIRST_EPOCH: Final = 1
"""The epoch of a new group; the first change makes it 2."""
NOTHING: Final[Partitions] = {}
_UNKNOWN_METADATA: Final = MemberMetadata(client_id="", client_host="")


class ConsumerGroupState(StrEnum):
    """States by the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """One group. `replay` alone changes it, but for `soft` and `stats`."""

    type_name: Final = "consumer"
    protocol_type: Final = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        """When the targets were made; 0: nothing holds the next ones back."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.targets: dict[str, Partitions] = {}
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
        self.bytes = 0
        """About how many bytes the members' own words take."""
        self._stable_at: Counter[int] = Counter()
        """STABLE members by epoch."""
        self.soft = SoftState()
        self.stats = GroupStats()

    def __repr__(self) -> str:
        epochs = f"epoch {self.epoch}, targets of {self.assignment_epoch}"
        return f"consumer {self.state.value}, {epochs}, {len(self.members)} members"

    # ---- derived -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """See above."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if self._stable_at[self.assignment_epoch] != len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def protocol(self) -> str | None:
        """The assignor that most members ask for; None where the broker's default serves."""
        votes = self.assignor_votes
        return min(votes, key=lambda name: (-votes[name], name)) if votes else None

    def target(self, member_id: str) -> Partitions:
        """What a member is to have."""
        return self.targets.get(member_id, NOTHING)

    def holder(self, topic_id: Uuid, partition: int) -> str | None:
        """The member that has a partition, or still has to revoke it."""
        return self.holders.get(topic_id, {}).get(partition)

    def held_since(self, member: ConsumerMember, offset: OffsetToCommit) -> int | None:
        """The epoch since which a member has a partition; None where it has not."""
        return member.assignment_epoch(offset.topic_id, offset.partition)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to it, by its name or by a regular expression."""
        return self.topic_counts[topic] > 0 or any(
            topic in self.regexes[regex].topics for regex in self.regex_counts if regex in self.regexes
        )

    def copy(self) -> ConsumerGroup:
        """A draft, on which a step may replay what it is about to write."""
        draft = ConsumerGroup(self.group_id)
        draft.epoch, draft.metadata_hash = self.epoch, self.metadata_hash
        draft.assignment_epoch = self.assignment_epoch
        draft.assignment_timestamp_ms = self.assignment_timestamp_ms
        draft.has_partition_metadata = self.has_partition_metadata
        draft.targets, draft.regexes = dict(self.targets), dict(self.regexes)
        draft.soft = self.soft
        for member in self.members.values():
            draft._put(member)
        return draft

    # ---- replay --------------------------------------------------------------------------------------------------

    def replay(self, record: ConsumerRecord) -> None:
        """Change state by one record of this group that is not its tombstone."""
        match record:
            case ConsumerGroupMemberMetadataRecord(_, member_id, metadata):
                self._replay_metadata(member_id, metadata)
            case ConsumerGroupCurrentMemberAssignmentRecord(_, member_id, value):
                member = self.members.get(member_id)
                if value is not None:
                    self._put((member or new_member(member_id, _UNKNOWN_METADATA)).with_assignment(value))
                elif member is not None:
                    self._put(new_member(member_id, member.metadata))
            case ConsumerGroupMetadataRecord(_, group):
                if group is not None:
                    self.epoch, self.metadata_hash = group
            case ConsumerGroupTargetAssignmentMetadataRecord(_, target):
                if target is not None:
                    self.assignment_epoch, self.assignment_timestamp_ms = target
            case ConsumerGroupTargetAssignmentMemberRecord(_, member_id, partitions):
                if partitions is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = partitions
            case ConsumerGroupRegularExpressionRecord(_, regex, resolved):
                if resolved is None:
                    self.regexes.pop(regex, None)
                else:
                    self.regexes[regex] = resolved
            case ConsumerGroupPartitionMetadataRecord(_, is_tombstone):
                self.has_partition_metadata = not is_tombstone

    def _replay_metadata(self, member_id: str, metadata: MemberMetadata | None) -> None:
        member = self.members.get(member_id)
        if metadata is None:
            self._drop(member_id)
        elif member is None:
            self._put(new_member(member_id, metadata))
        else:
            self._put(replace(member, metadata=metadata))

    def _put(self, member: ConsumerMember) -> None:
        self._drop(member.member_id, is_kept=True)
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.metadata.instance_id is not None:
            self.static_members[member.metadata.instance_id] = member.member_id
        for held in (member.assigned, member.pending):
            for topic_id, partitions in held.items():
                holders = self.holders.setdefault(topic_id, {})
                for partition in partitions:
                    other = self.members.get(holders.get(partition, ""))
                    if other is None or other.epoch <= member.epoch:
                        holders[partition] = member.member_id

    def _drop(self, member_id: str, *, is_kept: bool = False) -> None:
        member = self.members.get(member_id) if is_kept else self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        for held in (member.assigned, member.pending):
            self._release(member_id, held)

    def _release(self, member_id: str, held: HeldPartitions) -> None:
        for topic_id, partitions in held.items():
            holders = self.holders.get(topic_id, {})
            for partition in partitions:
                if holders.get(partition) == member_id:
                    del holders[partition]
            if not holders:
                self.holders.pop(topic_id, None)

    def _count(self, member: ConsumerMember, sign: int) -> None:
        metadata = member.metadata
        for name in metadata.topic_names:
            _add(self.topic_counts, name, sign)
        if member.regex:
            _add(self.regex_counts, member.regex, sign)
        if metadata.server_assignor:
            _add(self.assignor_votes, metadata.server_assignor, sign)
        if member.state is MemberState.STABLE:
            _add(self._stable_at, member.epoch, sign)
        self.classic_count += sign * member.is_classic
        self.bytes += sign * size_of(metadata)


def _add(counts: Counter[str] | Counter[int], key: str | int, sign: int) -> None:
    counts[key] += sign  # type: ignore[index]
    if not counts[key]:  # type: ignore[index]
        del counts[key]
