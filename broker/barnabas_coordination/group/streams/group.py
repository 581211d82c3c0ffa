"""A Streams group: its epochs, topology, members and targets, which records alone change, and what is derived of them.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: group epoch and assignment epoch never fall while the group lives, the second is never past the first; the
            holders of a task are what the members have assigned or pending revocation.
Read next:  member.py; heartbeat.py, fencing.py and target.py, the steps; ../shard.py, which keeps the groups of one partition.

State is derived, never stored: no members: Empty; a topology that was not found ready: NotReady; a group epoch past the assignment
epoch: Assigning; a member that is not STABLE at the assignment epoch: Reconciling; else Stable.

Not obvious: as with consumer groups the records of a compacted log come in any order, and each makes what is missing. The topology
stays when the last member goes: an application with another one needs another group, or this one deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from barnabas_coordination.group.led_group import FIRST_EPOCH, LedGroupState, RecordKinds
from barnabas_coordination.group.messages import OffsetToCommit
from barnabas_coordination.group.streams.member import StreamsMember
from barnabas_coordination.group.streams.records import (
    NO_TOPOLOGY,
    GroupValue,
    MemberMetadata,
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


class StreamsGroupState(StrEnum):
    """States by the names that StreamsGroupDescribe shows."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsGroup(LedGroupState[StreamsMember, Tasks, StreamsSoftState]):
    """One group."""

    type_name = "streams"
    protocol_type: Final = "streams"
    protocol: str | None = None
    """Its members do not choose the assignor."""
    value: GroupValue
    kinds = RecordKinds(
        metadata=StreamsGroupMetadataRecord,
        member=StreamsGroupMemberMetadataRecord,
        target=StreamsGroupTargetAssignmentMetadataRecord,
        member_target=StreamsGroupTargetAssignmentMemberRecord,
        assignment=StreamsGroupCurrentMemberAssignmentRecord,
    )
    member_type = StreamsMember
    unknown_metadata = MemberMetadata(client_id="", client_host="")
    nothing = NO_TASKS

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, GroupValue(FIRST_EPOCH), StreamsSoftState())
        self.topology: Topology | None = None
        self.holders: dict[Task, set[tuple[str, Role]]] = {}
        """The members that have a task, or still have to revoke it, with their roles."""

    # ---- derived -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        """See LedGroupState.state."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.value.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        return StreamsGroupState.STABLE if self.is_settled else StreamsGroupState.RECONCILING

    @property
    def topology_epoch(self) -> int:
        """The epoch of the topology; NO_TOPOLOGY without one."""
        return NO_TOPOLOGY if self.topology is None else self.topology.epoch

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
        draft = super().copy()
        draft.topology = self.topology
        return draft

    # ---- replay --------------------------------------------------------------------------------------------------

    def replay(self, record: StreamsRecord) -> None:
        """Change state by one record of this group that is not its tombstone."""
        match record:
            case StreamsGroupMemberMetadataRecord(_, member_id, metadata):
                self.replay_member(member_id, metadata)
            case StreamsGroupCurrentMemberAssignmentRecord(_, member_id, value):
                self.replay_assignment(member_id, value)
            case StreamsGroupMetadataRecord(_, group):
                self.replay_metadata(group)
            case StreamsGroupTargetAssignmentMetadataRecord(_, target):
                self.replay_target(target)
            case StreamsGroupTargetAssignmentMemberRecord(_, member_id, tasks):
                self.replay_member_target(member_id, tasks)
            case StreamsGroupTopologyRecord(_, topology):
                self.topology = topology

    def _hold(self, member: StreamsMember) -> None:
        for held in (member.assigned, member.pending):
            for role, task in held.by_role():
                self.holders.setdefault(task, set()).add((member.member_id, role))

    def _release(self, member: StreamsMember) -> None:
        for held in (member.assigned, member.pending):
            for role, task in held.by_role():
                holders = self.holders.get(task, set())
                holders.discard((member.member_id, role))
                if not holders:
                    self.holders.pop(task, None)
