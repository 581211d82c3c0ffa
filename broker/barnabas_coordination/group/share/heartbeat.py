"""ShareGroupHeartbeat: the one request of a member of a share group. It joins, keeps, changes and leads a member to its target.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: one heartbeat is one batch of records, all or nothing; a step raises KafkaError only before it has begun anything; a
            heartbeat that changes nothing writes nothing.
Read next:  partitions.py, target.py, fencing.py; ../consumer/heartbeat.py for the protocol beside; KIP-932.

In order: find the member, or make one; take over what it says; bump the group's epoch if the subscription or the topics are others, or
partitions wait to be assigned; make targets if they are due; give this one member what it is to have; begin the share states that are
missing; arm its session; answer.

Not obvious:
- The first member of a group is told nothing to read: the share states are begun first, and a later heartbeat finds them.
- A member that shows that it missed an answer is told its assignment again, where Kafka leaves it to the next change.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas_coordination.group.admission import require_memory
from barnabas_coordination.group.consumer.messages import HeartbeatOutcome
from barnabas_coordination.group.consumer.subscription import metadata_hash, names_after
from barnabas_coordination.group.epochs import are_targets_due, check_epoch
from barnabas_coordination.group.led_records import JOINS, Partitions
from barnabas_coordination.group.led_targets import is_in_the_making, make
from barnabas_coordination.group.share import partitions, target
from barnabas_coordination.group.share.group import ShareGroup
from barnabas_coordination.group.share.member import ShareMember
from barnabas_coordination.group.share.messages import ShareHeartbeat, ShareSurroundings
from barnabas_coordination.group.share.records import (
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupValue,
    ShareMemberMetadata,
)
from barnabas_coordination.group.states import session_timer
from barnabas_coordination.shard import CoordinatorResult, Ticket


def heartbeat(
    group: ShareGroup, request: ShareHeartbeat, ticket: Ticket, around: ShareSurroundings
) -> CoordinatorResult:
    """A member joins, or is there. `group` may be a new one, which no record has founded yet.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED.
    """
    step = Step(group, request, around)
    step.run()
    step.answer(ticket)
    return step.out


class Step:
    """One step: the group as its records so far leave it, and the member on its way."""

    def __init__(self, group: ShareGroup, request: ShareHeartbeat, around: ShareSurroundings) -> None:
        self.group = group
        self.request = request
        self.around = around
        self.out = CoordinatorResult()

    def run(self) -> None:
        """Everything but the answer."""
        self.say(self.find())
        self.bump()
        self.assign()
        self.lead_on()
        self.begin_states()
        self.out.arm(session_timer(self.group.group_id, self.after.member_id), self.around.settings.session_timeout_ms)

    def find(self) -> ShareMember:
        """The member as it was before."""
        request, group = self.request, self.group
        member = group.members.get(request.member_id)
        if member is not None:
            check_epoch(member, request.epoch, owns_what_it_has=True)
            return member
        return group.admit(
            request.member_id, request.epoch, size_max=self.around.size_max, size_key="group.share.max.size"
        )

    def say(self, before: ShareMember) -> None:
        """Take over what the member says of itself."""
        group, metadata = self.group, _said(before.metadata, self.request)
        self.before = before
        self.member = replace(before, metadata=metadata)
        is_new = before.member_id not in group.members
        require_memory(group.group_id, group.bytes - (0 if is_new else before.size) + self.member.size)
        if is_new or metadata != before.metadata:
            self.out.records.append(ShareGroupMemberMetadataRecord(group.group_id, self.member.member_id, metadata))
        self.has_other_names = metadata.topic_names != before.metadata.topic_names
        gone = () if is_new else before.metadata.topic_names
        self.names = names_after(group.topic_counts, gone, metadata.topic_names)

    def bump(self) -> None:
        """The group's next epoch, where something made it necessary."""
        group, topics, states = self.group, self.around.topics, self.group.states
        self.epoch = group.epoch
        seen = group.soft.settled
        self.is_settled = (
            not self.has_other_names
            and seen is not None
            and seen[0] is topics
            and seen[1] is states
            and seen[2] == group.assignment_epoch == group.epoch
        )
        if self.is_settled:
            return
        self.may_have = partitions.assignable(states, self.names, topics)
        changed = metadata_hash(self.names, topics)
        if self.has_other_names or changed != group.value.metadata_hash or self._waits_to_be_assigned():
            self.epoch = group.epoch + 1
            self.out.records.append(ShareGroupMetadataRecord(group.group_id, ShareGroupValue(self.epoch, changed)))

    def _waits_to_be_assigned(self) -> bool:
        """Whether the targets are another set of partitions than those that may be assigned."""
        group = self.group
        if group.epoch > group.assignment_epoch:
            return False
        given = {
            (topic_id, each) for of in group.targets.values() for topic_id, all_of in of.items() for each in all_of
        }
        return given != {(topic_id, each) for topic_id, all_of in self.may_have.items() for each in all_of}

    def assign(self) -> None:
        """Make targets if they are due."""
        group, around, member = self.group, self.around, self.member
        self.target_epoch = group.assignment_epoch
        self.target: Partitions = group.target(member.member_id)
        interval_ms = around.settings.assignment_interval_ms
        if not are_targets_due(group, self.epoch, interval_ms=interval_ms, now_ms=around.now_ms):
            return
        if is_in_the_making(group, self.epoch, member.member_id):
            return
        job = target.job_of(group, member, self.epoch, self.may_have, around.topics)
        is_large = target.is_large(group, self.may_have)
        targets = make(group, job, self.out, is_large=is_large, now_ms=around.now_ms)
        if targets is not None:
            self.target_epoch = self.epoch
            self.target = targets[member.member_id]

    def lead_on(self) -> None:
        """What the member has from now on: nothing is to be given up first, and no other member has to let go of it."""
        member = self.after = self.member
        if member.epoch == self.target_epoch and not self.has_other_names:
            return
        wanted = self.target if member.epoch != self.target_epoch else member.assigned
        topics = target.topic_ids(member.metadata.topic_names, self.around.topics)
        assigned = {topic_id: of for topic_id, of in wanted.items() if topic_id in topics}
        if member.epoch == self.target_epoch and assigned == member.assigned:
            return
        self.after = replace(member, epoch=self.target_epoch, previous_epoch=member.epoch, assigned=assigned)
        self.out.records.append(
            ShareGroupCurrentMemberAssignmentRecord(self.group.group_id, member.member_id, self.after.to_value())
        )

    def begin_states(self) -> None:
        """Begin the share states of what is subscribed to and has none."""
        if self.is_settled:
            return
        group, topics = self.group, self.around.topics
        missing = partitions.without_state(group.states, self.names, topics)
        if missing:
            self.out.records.append(partitions.states_record(group, partitions.begin(group.states, missing)))
        elif self.epoch == group.epoch == group.assignment_epoch:
            group.soft.settled = (topics, group.states, group.assignment_epoch)

    def answer(self, ticket: Ticket) -> None:
        """Its epoch, and what it has where it must be told."""
        after, request = self.after, self.request
        has_missed = request.epoch < self.before.epoch
        is_told = has_missed or request.topic_names is not None or after.assigned != self.before.assigned
        self.out.reply(
            ticket,
            HeartbeatOutcome(
                member_id=after.member_id,
                epoch=after.epoch,
                heartbeat_interval_ms=self.around.settings.heartbeat_interval_ms,
                assignment=after.assigned if is_told or request.epoch == JOINS else None,
            ),
        )


def _said(before: ShareMemberMetadata, request: ShareHeartbeat) -> ShareMemberMetadata:
    """What a member says, with what it leaves out as it was."""
    return ShareMemberMetadata(
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=before.topic_names if request.topic_names is None else tuple(sorted(request.topic_names)),
    )
