"""StreamsGroupHeartbeat: the one request of a member of a Streams group. It joins, keeps, changes and leads a member to its target.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: one heartbeat is one batch of records, all or nothing; a step raises KafkaError only before it has begun anything; a
            heartbeat that changes nothing writes nothing.
Read next:  internal_topics.py, reconciliation.py, target.py, fencing.py; KIP-1071.

In order: find the member, or make one; take over what it says; take the topology of the first, and hold it against the topics; bump the
group's epoch if something of this is new; make targets if they are due; lead this one member on; arm its session; answer.

Not obvious:
- The topology is the first member's. A member with a newer one or another one is refused, one with an older one is told
  so.
- What the topology came to is derived of topology and topics alone: a new coordinator finds the same, and bumps nothing.
- While the first members of a group wait for more, targets are made by the timer, not here.
- A member that shows that it missed an answer is told its tasks again, where Kafka leaves it to the next change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from barnabas_coordination.group.admission import refuse_unreleased, require_memory
from barnabas_coordination.group.epochs import are_targets_due, check_epoch
from barnabas_coordination.group.led_group import replace_static
from barnabas_coordination.group.led_records import JOINS
from barnabas_coordination.group.led_targets import TargetJob, is_in_the_making, make
from barnabas_coordination.group.states import revocation_timer, session_timer
from barnabas_coordination.group.streams import fencing, target
from barnabas_coordination.group.streams.endpoints import endpoints_of
from barnabas_coordination.group.streams.errors import InvalidStreamsRequest
from barnabas_coordination.group.streams.group import StreamsGroup
from barnabas_coordination.group.streams.internal_topics import ConfiguredTopology, Status, StatusCode
from barnabas_coordination.group.streams.member import StreamsMember, size_of
from barnabas_coordination.group.streams.messages import (
    EndpointPartitions,
    StreamsHeartbeat,
    StreamsHeartbeatOutcome,
    StreamsSurroundings,
)
from barnabas_coordination.group.streams.reconciliation import reconcile
from barnabas_coordination.group.streams.records import (
    NO_TOPOLOGY,
    GroupValue,
    MemberMetadata,
    MemberState,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTopologyRecord,
)
from barnabas_coordination.group.streams.soft_state import NO_OFFSETS, TaskOffsets
from barnabas_coordination.group.streams.tasks import NO_TASKS, NOTHING_HELD, Task, Tasks
from barnabas_coordination.shard import CoordinatorResult, Ticket


def heartbeat(
    group: StreamsGroup, request: StreamsHeartbeat, ticket: Ticket, around: StreamsSurroundings
) -> CoordinatorResult:
    """A member joins, or is there. `group` may be a new one, which no record has founded yet.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
    INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY.
    """
    step = Step(group, request, around)
    step.run()
    step.arm()
    step.answer(ticket)
    return step.out


OFFSETS_MAX: Final = 100_000
"""Offsets of tasks that one group keeps for all its members; beyond, no more are noted."""


class Step:
    """One step: the group as its records so far leave it, and the member on its way."""

    def __init__(self, group: StreamsGroup, request: StreamsHeartbeat, around: StreamsSurroundings) -> None:
        self.group = group
        """A draft, once a static member returned."""
        self.soft = group.soft
        self.request = request
        self.around = around
        self.out = CoordinatorResult()
        self.was_empty = not group.members
        self.needs_bump = False

    def run(self) -> None:
        """Everything but timers and answer."""
        self.say(self.find())
        self.configure()
        self.note()
        self.bump()
        self.assign()
        self.lead_on()

    # ---- who it is -----------------------------------------------------------------------------------------------

    def find(self) -> StreamsMember:
        """The member as it was before."""
        request, group = self.request, self.group
        instance_id = request.instance_id
        if instance_id is None or request.epoch != JOINS:
            member = group.members.get(request.member_id)
            if instance_id is not None:
                member = group.find(request.member_id, instance_id)
            if member is None:
                return self._new()
            owned = request.owned
            is_owned = owned is not None and owned.is_within(member.assigned.tasks)
            check_epoch(member, request.epoch, owns_what_it_has=is_owned)
            return member
        present_id = group.static_members.get(instance_id)
        if present_id is None:
            return group.members.get(request.member_id) or self._new()
        present = group.members[present_id]
        if not present.has_left_for_a_while:
            raise refuse_unreleased(instance_id, present_id, "instance")
        return self._replace(present)

    def _new(self) -> StreamsMember:
        return self.group.admit(
            self.request.member_id,
            self.request.epoch,
            size_max=self.around.size_max,
            size_key="group.streams.max.size",
        )

    def _replace(self, gone: StreamsMember) -> StreamsMember:
        """The same instance under another id: it has what the other had."""
        back = replace(
            gone,
            member_id=self.request.member_id,
            epoch=0,
            previous_epoch=0,
            state=MemberState.STABLE,
            pending=NOTHING_HELD,
        )
        self.group = replace_static(self.group, gone, back, self.out)
        return back

    # ---- what it says --------------------------------------------------------------------------------------------

    def say(self, before: StreamsMember) -> None:
        """Take over what the member says of itself."""
        group = self.group
        metadata = _said(before.metadata, self.request)
        self.before = before
        self.member = replace(before, metadata=metadata)
        self.is_new = before.member_id not in group.members
        freed = 0 if self.is_new else size_of(before.metadata)
        require_memory(group.group_id, group.bytes - freed + size_of(metadata))
        if not self.is_new and metadata == before.metadata:
            return
        self.out.records.append(StreamsGroupMemberMetadataRecord(group.group_id, self.member.member_id, metadata))
        is_static = not self.is_new and metadata.instance_id is not None
        self.needs_bump = not is_static or _is_placed_otherwise(metadata, before.metadata)

    def configure(self) -> None:
        """Take the topology of the first member, and hold it against the topics of now."""
        group, topics, said = self.group, self.around.topics, self.request.topology
        topology = group.topology
        if topology is None:
            if said is None:
                raise InvalidStreamsRequest(f"group {group.group_id} has no topology yet: join again")
            topology = said
            self.out.records.append(StreamsGroupTopologyRecord(group.group_id, topology))
        elif said is not None and said.epoch >= topology.epoch and said.in_order() != topology.in_order():
            raise InvalidStreamsRequest(
                f"group {group.group_id} runs another topology, of epoch {topology.epoch}: topologies do not change. Start the changed "
                "application under another application.id, or delete the group once it is empty"
            )
        self.topology = topology
        self.configured = self.soft.look_at(topology, topics)
        owned = self.request.owned
        if self.configured.is_ready and owned is not None:
            _check_owned(owned, self.configured)

    def note(self) -> None:
        """Soft state that the step leaves, whether its records are appended or not: it is as true without them."""
        soft, request, member_id = self.soft, self.request, self.member.member_id
        if request.shuts_down:
            soft.shutdown_by = member_id
        said, ends = self._of_tasks(request.offsets), self._of_tasks(request.end_offsets)
        if (said or ends) and sum(known.size for known in soft.offsets.values()) < OFFSETS_MAX:
            known = soft.offsets.get(member_id, NO_OFFSETS)
            soft.offsets[member_id] = TaskOffsets(known.reached | said, known.ends | ends)

    def _of_tasks(self, offsets: Mapping[Task, int] | None) -> dict[Task, int]:
        """The offsets of tasks that exist: a client may name any number of others."""
        counts = self.configured.task_counts
        return {
            task: offset
            for task, offset in (offsets or {}).items()
            if 0 <= task.partition < counts.get(task.subtopology, 0)
        }

    def bump(self) -> None:
        """The group's next epoch, where something made it necessary."""
        group, configured = self.group, self.configured
        value = GroupValue(
            group.epoch + 1,
            self.soft.metadata_hash,
            self.topology.epoch if configured.is_ready else NO_TOPOLOGY,
            self.around.settings.assignment_configs,
        )
        self.epoch = group.epoch
        if self.needs_bump or value._replace(epoch=group.epoch) != group.value:
            self.epoch = value.epoch
            self.out.records.append(StreamsGroupMetadataRecord(group.group_id, value))
        if self.was_empty and self.around.settings.initial_rebalance_delay_ms > 0 and not self.soft.is_delayed:
            self.soft.is_delayed = True
            self.out.arm(fencing.delay_timer(group.group_id), self.around.settings.initial_rebalance_delay_ms)

    # ---- what it gets --------------------------------------------------------------------------------------------

    def assign(self) -> None:
        """Make targets if they are due."""
        group, around, configured = self.group, self.around, self.configured
        self.target_epoch = group.assignment_epoch
        self.target = group.target(self.member.member_id)
        self.is_held_back = False
        if self.soft.is_delayed:
            self.target = NO_TASKS
            self.is_held_back = True
            return
        interval_ms = around.settings.assignment_interval_ms
        if not are_targets_due(group, self.epoch, interval_ms=interval_ms, now_ms=around.now_ms):
            self.is_held_back = self.epoch > group.assignment_epoch
            return
        if is_in_the_making(group, self.epoch, self.member.member_id):
            return
        making = target.assigning_of(group, self.member, self.topology, configured, around.settings)
        job = TargetJob(self.epoch, frozenset({*group.members, self.member.member_id}), making)
        is_large = target.is_large(group, configured, around.settings)
        targets = make(group, job, self.out, is_large=is_large, now_ms=around.now_ms)
        if targets is None:
            return
        self.target_epoch = self.epoch
        self.target = targets[self.member.member_id]

    def lead_on(self) -> None:
        """One step of this member towards its target."""
        group, member = self.group, self.member
        self.after = reconcile(
            member,
            epoch=self.target_epoch,
            target=self.target,
            owned=self.request.owned,
            others=lambda task: group.others(task, member.member_id),
        )
        if self.after != member:
            self.out.records.append(
                StreamsGroupCurrentMemberAssignmentRecord(group.group_id, member.member_id, self.after.to_value())
            )
        endpoint = member.metadata.endpoint
        has_moved = endpoint is not None and self.after.assigned.tasks != self.before.assigned.tasks
        if has_moved or endpoint != self.before.metadata.endpoint:
            self.soft.endpoint_epoch += 1

    def arm(self) -> None:
        """The member was heard; what it has to give up it has its time for."""
        out, after, group_id = self.out, self.after, self.group.group_id
        out.arm(session_timer(group_id, after.member_id), self.around.settings.session_timeout_ms)
        if not after.is_revoking:
            if self.before.is_revoking:
                out.cancel(revocation_timer(group_id, after.member_id))
        elif after != self.member:
            out.arm(revocation_timer(group_id, after.member_id), max(0, after.metadata.rebalance_timeout_ms))

    def answer(self, ticket: Ticket) -> None:
        """Its epoch, what it has where it must be told, and what the group waits for."""
        after, request, settings = self.after, self.request, self.around.settings
        has = after.assigned.tasks
        has_missed = request.epoch < self.before.epoch or (request.owned is not None and request.owned != has)
        is_told = request.epoch == JOINS or has_missed or has != self.before.assigned.tasks
        knows_endpoints = request.endpoint_epoch == self.soft.endpoint_epoch
        self.out.reply(
            ticket,
            StreamsHeartbeatOutcome(
                member_id=after.member_id,
                epoch=after.epoch,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                task_offset_interval_ms=settings.task_offset_interval_ms,
                acceptable_recovery_lag=settings.acceptable_recovery_lag,
                statuses=tuple(self._statuses()),
                tasks=has if is_told else None,
                endpoint_epoch=self.soft.endpoint_epoch,
                endpoints=None if knows_endpoints else self._endpoints(),
                to_create=self.configured.missing,
            ),
        )

    def _endpoints(self) -> tuple[EndpointPartitions, ...]:
        """The endpoints of the group, with this member as it is about to be."""
        members = {**self.group.members, self.after.member_id: self.after}
        return endpoints_of(members, self.topology, self.around.topics)

    def _statuses(self) -> list[Status]:
        found = []
        said, settings = self.member.metadata, self.around.settings
        if said.topology_epoch < self.topology.epoch:
            found.append(
                Status(
                    StatusCode.STALE_TOPOLOGY,
                    f"The member's topology has epoch {said.topology_epoch}, the group's {self.topology.epoch}: restart the instance with "
                    "the newer application.",
                )
            )
        if self.is_held_back:
            found.append(Status(StatusCode.ASSIGNMENT_DELAYED, "Tasks are handed out soon: more members may come."))
        if self.configured.status is not None:
            found.append(self.configured.status)
        if self.soft.shutdown_by is not None:
            found.append(
                Status(
                    StatusCode.SHUTDOWN_APPLICATION,
                    f"Member {self.soft.shutdown_by} asked for the end of the application.",
                )
            )
        tags = {key for key, _ in said.client_tags}
        missing = [tag for tag in settings.rack_tags if tag not in tags]
        if missing:
            found.append(Status(StatusCode.MISSING_CLIENT_TAGS, f"The member lacks the tags {', '.join(missing)}."))
        return found


def _check_owned(owned: Tasks, configured: ConfiguredTopology) -> None:
    for tasks in owned:
        for subtopology, partition in tasks:
            count = configured.task_counts.get(subtopology)
            if count is None:
                raise InvalidStreamsRequest(f"the topology has no subtopology {subtopology[:100]!r}")
            if not 0 <= partition < count:
                raise InvalidStreamsRequest(
                    f"subtopology {subtopology[:100]!r} has {count} tasks: there is no {partition}"
                )


def _is_placed_otherwise(after: MemberMetadata, before: MemberMetadata) -> bool:
    """Whether a static member says something that targets follow from."""
    return (after.topology_epoch, after.rack_id, after.client_tags, after.process_id) != (
        before.topology_epoch,
        before.rack_id,
        before.client_tags,
        before.process_id,
    )


def _said(before: MemberMetadata, request: StreamsHeartbeat) -> MemberMetadata:
    """What a member says, with what it leaves out as it was."""
    keeps_endpoint = request.endpoint is None and request.epoch != JOINS
    return MemberMetadata(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms
        ),
        topology_epoch=before.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=before.process_id if request.process_id is None else request.process_id,
        endpoint=before.endpoint if keeps_endpoint else request.endpoint,
        client_tags=before.client_tags if request.client_tags is None else request.client_tags,
    )
