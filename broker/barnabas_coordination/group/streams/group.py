"""A Streams group: its epochs, topology, members and targets, which records alone change, and what is derived of them.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: group epoch and assignment epoch never fall while the group lives, the second is never past the first; who holds a task is
            what the members have assigned or pending revocation.
Read next:  member.py; heartbeat.py, fencing.py and target.py, the steps; ../shard.py, which keeps the groups of one partition.

State is derived, never stored: no members: Empty; a topology that was not found ready: NotReady; a group epoch past the assignment
epoch: Assigning; a member that is not STABLE at the assignment epoch: Reconciling; else Stable.

Not obvious: as with consumer groups the records of a compacted log come in any order, and each makes what is missing. The topology
stays when the last member goes: an application with another one needs another group, or this one deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Final

from barnabas_coordination.group.consumer.group import FIRST_EPOCH
from barnabas_coordination.group.messages import OffsetToCommit
from barnabas_coordination.group.states import GroupStats
from barnabas_coordination.group.streams.member import StreamsMember, new_member, size_of
from barnabas_coordination.group.streams.records import (
    NO_TOPOLOGY,
    GroupValue,
    MemberMetadata,
    MemberState,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
    StreamsRecord,
)
from barnabas_coordination.group.streams.soft_state import StreamsSoftState
from barnabas_coordination.group.streams.tasks import NO_TASKS, Role, Task, Tasks
from barnabas_coordination.group.streams.topology import Topology

_UNKNOWN_METADATA: Final = MemberMetadata(client_id="", client_host="")


class StreamsGroupState(StrEnum):
    """States by the names that StreamsGroupDescribe shows."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsGroup:
    """One group. `replay` alone changes it, but for `soft` and `stats`."""

    type_name: Final = "streams"
    protocol_type: Final = "streams"
    protocol: str | None = None
    """Its members do not choose the assignor."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.value = GroupValue(FIRST_EPOCH)
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        """When the targets were made; 0: nothing holds the next ones back."""
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.targets: dict[str, Tasks] = {}
        self.holders: dict[Task, set[tuple[str, Role]]] = {}
        """The members that have a task, or still have to revoke it, with their roles."""
        self.bytes = 0
        """About how many bytes the members' own words take."""
        self._stable_at: Counter[int] = Counter()
        """STABLE members by epoch."""
        self.soft = StreamsSoftState()
        self.stats = GroupStats()

    # ---- derived -------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The group's epoch."""
        return self.value.epoch

    @property
    def state(self) -> StreamsGroupState:
        """See above."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.value.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if self._stable_at[self.assignment_epoch] != len(self.members):
            return StreamsGroupState.RECONCILING
        return StreamsGroupState.STABLE

    @property
    def topology_epoch(self) -> int:
        """The epoch of the topology; NO_TOPOLOGY without one."""
        return NO_TOPOLOGY if self.topology is None else self.topology.epoch

    def target(self, member_id: str) -> Tasks:
        """What a member is to have."""
        return self.targets.get(member_id, NO_TASKS)

    def others(self, task: Task, member_id: str) -> Iterator[tuple[str, Role]]:
        """Process and role of each other member that has a task, or still has to revoke it."""
        for holder, role in self.holders.get(task, ()):
            if holder != member_id:
                yield self.members[holder].process_id, role

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the application of the members reads it."""
        return bool(self.members) and self.topology is not None and topic in self.topology.inputs

    def held_since(self, member: StreamsMember, offset: OffsetToCommit) -> int | None:
        """The epoch since which a member has the task of a partition; None where it has not."""
        if self.topology is None:
            return None
        since = [
            member.active_since(Task(part.subtopology_id, offset.partition))
            for part in self.topology.subtopologies
            if offset.topic in part.inputs
        ]
        return max((epoch for epoch in since if epoch is not None), default=None)

    def copy(self) -> StreamsGroup:
        """A draft, on which a step may replay what it is about to write."""
        draft = StreamsGroup(self.group_id)
        draft.value, draft.topology = self.value, self.topology
        draft.assignment_epoch = self.assignment_epoch
        draft.assignment_timestamp_ms = self.assignment_timestamp_ms
        draft.targets = dict(self.targets)
        draft.soft = self.soft
        for member in self.members.values():
            draft._put(member)
        return draft

    # ---- replay --------------------------------------------------------------------------------------------------

    def replay(self, record: StreamsRecord) -> None:
        """Change state by one record of this group that is not its tombstone."""
        match record:
            case StreamsGroupMemberMetadataRecord(_, member_id, metadata):
                member = self.members.get(member_id)
                if metadata is None:
                    self._drop(member_id)
                    self.members.pop(member_id, None)
                elif member is None:
                    self._put(new_member(member_id, metadata))
                else:
                    self._put(replace(member, metadata=metadata))
            case StreamsGroupCurrentMemberAssignmentRecord(_, member_id, value):
                member = self.members.get(member_id)
                if value is not None:
                    self._put((member or new_member(member_id, _UNKNOWN_METADATA)).with_assignment(value))
                elif member is not None:
                    self._put(new_member(member_id, member.metadata))
            case StreamsGroupMetadataRecord(_, group):
                if group is not None:
                    self.value = group
            case StreamsGroupTargetAssignmentMetadataRecord(_, target):
                if target is not None:
                    self.assignment_epoch, self.assignment_timestamp_ms = target
            case StreamsGroupTargetAssignmentMemberRecord(_, member_id, tasks):
                if tasks is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = tasks
            case StreamsGroupTopologyRecord(_, topology):
                self.topology = topology

    def _put(self, member: StreamsMember) -> None:
        self._drop(member.member_id)
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.metadata.instance_id is not None:
            self.static_members[member.metadata.instance_id] = member.member_id
        for held in (member.assigned, member.pending):
            for role, task in held.by_role():
                self.holders.setdefault(task, set()).add((member.member_id, role))

    def _drop(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        self._count(member, -1)
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        for held in (member.assigned, member.pending):
            for role, task in held.by_role():
                holders = self.holders.get(task, set())
                holders.discard((member_id, role))
                if not holders:
                    self.holders.pop(task, None)

    def _count(self, member: StreamsMember, sign: int) -> None:
        if member.state is MemberState.STABLE:
            self._stable_at[member.epoch] += sign
        self.bytes += sign * size_of(member.metadata)
