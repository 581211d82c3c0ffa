"""ConsumerGroupHeartbeat: the one request of the consumer protocol. It joins, keeps, changes and leads a member to its target.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: one heartbeat is one batch of records, all or nothing; a step raises KafkaError only before it has begun anything; a
            heartbeat that changes nothing writes nothing.
Read next:  reconciliation.py, target.py, fencing.py; KIP-848.

In order: find the member, or make one; take over what it says; bump the group's epoch if the subscription, the topics or the preferred
assignor are others; make targets if they are due; lead this one member on; arm its session; answer.

Not obvious:
- A member that comes bumps the epoch by its topics, not by coming: one whose regular expression is not resolved yet gets nothing, and
  the group its next epoch when it is.
- The targets of others change here, the others learn of it by their own heartbeats.
- A static member that returns takes the place of the one that left, under another id: the step replays that on a draft of the group and
  continues with the draft.
- What was seen of the topics is noted once the log has it: a refused append must leave it to the next heartbeat.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas_coordination.errors import GroupMaxSizeReached
from barnabas_coordination.group.admission import refuse_unreleased, require_memory
from barnabas_coordination.group.consumer import fencing, regexes, slices, target
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.member import (
    ConsumerMember,
    is_same_set,
    is_within,
    partitions_of,
    size_of,
)
from barnabas_coordination.group.consumer.messages import ConsumerHeartbeat, HeartbeatOutcome, Surroundings
from barnabas_coordination.group.consumer.reconciliation import reconcile
from barnabas_coordination.group.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    GroupValue,
    MemberMetadata,
    MemberState,
)
from barnabas_coordination.group.consumer.soft_state import RegexJob, Revoking
from barnabas_coordination.group.consumer.subscription import (
    group_names,
    member_topics,
    metadata_hash,
    regexes_in_use,
)
from barnabas_coordination.group.epochs import are_targets_due, check_epoch
from barnabas_coordination.group.led_group import replace_static
from barnabas_coordination.group.led_records import JOINS, Partitions
from barnabas_coordination.group.led_targets import TargetJob, is_in_the_making, make
from barnabas_coordination.group.states import revocation_timer, session_timer
from barnabas_coordination.shard import CoordinatorResult, Ticket


def heartbeat(
    group: ConsumerGroup, request: ConsumerHeartbeat, ticket: Ticket, around: Surroundings
) -> CoordinatorResult:
    """A member joins, or is there. `group` may be a new one, which no record has founded yet.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
    INVALID_REGULAR_EXPRESSION.
    """
    step = Step(group, request, around)
    step.run()
    step.arm()
    step.answer(ticket)
    return step.out


class Step:
    """One step: the group as its records so far leave it, and the member on its way."""

    def __init__(self, group: ConsumerGroup, request: ConsumerHeartbeat, around: Surroundings) -> None:
        self.group = group
        """A draft, once a static member returned."""
        self.soft = group.soft
        self.request = request
        self.around = around
        self.out = CoordinatorResult()
        self.epoch = group.epoch
        self.target_epoch = group.assignment_epoch
        self.needs_bump = False
        self.has_subscription_changed = False

    def run(self) -> None:
        """Everything but timers and answer."""
        self.say(self.find())
        self.bump()
        self.assign()
        self.lead_on()

    # ---- who it is -----------------------------------------------------------------------------------------------

    def find(self) -> ConsumerMember:
        """The member as it was before."""
        request, group = self.request, self.group
        if request.instance_id is not None:
            return self._find_static(request.instance_id)
        member = group.members.get(request.member_id)
        if member is None:
            return self._new()
        _check_epoch(member, request)
        return member

    def _find_static(self, instance_id: str) -> ConsumerMember:
        request, group = self.request, self.group
        present_id = group.static_members.get(instance_id)
        is_classic = request.classic is not None
        if request.epoch != JOINS or (is_classic and not request.is_unnamed):
            member = group.find(request.member_id, instance_id)
            _check_epoch(member, request)
            return member
        if present_id is None:
            return group.members.get(request.member_id) or self._new()
        present = group.members[present_id]
        if not (is_classic or present.has_left_for_a_while or present.is_classic):
            raise refuse_unreleased(instance_id, present_id, "consumer")
        return self._replace(present)

    def _new(self) -> ConsumerMember:
        return self.group.admit(
            self.request.member_id,
            self.request.epoch,
            size_max=self.around.size_max,
            size_key="group.consumer.max.size",
        )

    def _replace(self, gone: ConsumerMember) -> ConsumerMember:
        """The same instance under another id: it has what the other had."""
        back = replace(
            gone, member_id=self.request.member_id, epoch=0, previous_epoch=0, state=MemberState.STABLE, pending={}
        )
        self.group = replace_static(self.group, gone, back, self.out)
        return back

    # ---- what it says --------------------------------------------------------------------------------------------

    def say(self, before: ConsumerMember) -> None:
        """Take over what the member says of itself."""
        group = self.group
        metadata = _said(before.metadata, self.request)
        self.before = before
        self.member = replace(before, metadata=metadata)
        is_new = before.member_id not in group.members
        freed = 0 if is_new else size_of(before.metadata)
        require_memory(group.group_id, group.bytes - freed + size_of(metadata))
        self.present = None if is_new else before
        has_other_names = set(metadata.topic_names) != set(before.metadata.topic_names)
        has_other_regex = self.member.regex != before.regex
        if has_other_regex and self.member.regex and self.member.regex not in group.regex_counts:
            if len(group.regex_counts) >= regexes.REGEXES_MAX:
                raise GroupMaxSizeReached(
                    f"group {group.group_id} subscribes by {regexes.REGEXES_MAX} regular expressions"
                )
            regexes.compile_regex(self.member.regex)
        if is_new or metadata != before.metadata:
            self.out.records.append(ConsumerGroupMemberMetadataRecord(group.group_id, self.member.member_id, metadata))
        if has_other_regex and group.regex_counts[before.regex] == 1 and before.regex in group.regexes:
            self.out.records.append(ConsumerGroupRegularExpressionRecord(group.group_id, before.regex, None))
        self.has_subscription_changed = has_other_names or has_other_regex
        takes_effect = not self.member.regex or self.member.regex in group.regexes
        default = self.around.default_assignor
        self.needs_bump = (
            has_other_names
            or (has_other_regex and takes_effect)
            or target.assignor_name(group, default, self.member) != target.assignor_name(group, default)
        )

    def bump(self) -> None:
        """The group's next epoch, where something made it necessary."""
        group, topics = self.group, self.around.topics
        if self.needs_bump or self.soft.topics_seen is not topics:
            names = group_names(group, before=self.present, after=self.member)
            changed = metadata_hash(names, topics)
            if self.needs_bump or changed != group.metadata_hash:
                self.epoch = group.epoch + 1
                self.out.records.append(ConsumerGroupMetadataRecord(group.group_id, GroupValue(self.epoch, changed)))
                if group.has_partition_metadata:
                    self.out.records.append(ConsumerGroupPartitionMetadataRecord(group.group_id))
            else:
                self.soft.topics_seen = topics
        in_use = regexes_in_use(group, before=self.present, after=self.member)
        if regexes.needs_resolution(group, in_use, self.around):
            job = RegexJob(
                topics=topics,
                version=self.around.metadata_offset,
                started_ms=self.around.now_ms,
                may_describe=self.request.may_describe,
            )
            slices.begin_resolution(group, job, self.out)

    # ---- what it gets --------------------------------------------------------------------------------------------

    def assign(self) -> None:
        """Make targets if they are due."""
        group, around = self.group, self.around
        self.target: Partitions = group.target(self.member.member_id)
        interval_ms = around.settings.assignment_interval_ms
        if not are_targets_due(group, self.epoch, interval_ms=interval_ms, now_ms=around.now_ms):
            return
        if is_in_the_making(group, self.epoch, self.member.member_id):
            return
        assignor = target.assignor_name(group, around.default_assignor, self.member)
        subscribers = target.subscribers_of(group, self.member, assignor, around)
        members = frozenset(member.member_id for member in subscribers.members)
        job = TargetJob(self.epoch, members, target.ASSIGNORS[assignor](subscribers))
        targets = make(group, job, self.out, is_large=target.is_large(subscribers), now_ms=around.now_ms)
        if targets is None:
            return
        self.target_epoch = self.epoch
        self.target = targets[self.member.member_id]

    def lead_on(self) -> None:
        """One step of this member towards its target."""
        group, member = self.group, self.member
        is_settled = member.state is MemberState.STABLE and member.epoch == self.target_epoch
        if is_settled and not self.has_subscription_changed:
            self.after = member
            return
        self.after = reconcile(
            member,
            epoch=self.target_epoch,
            target=self.target,
            owned=self.request.owned,
            topics=member_topics(member, group.regexes, self.around.topics),
            has_subscription_changed=self.has_subscription_changed,
            is_free=lambda topic_id, partition: group.holder(topic_id, partition) in (None, member.member_id),
        )
        if self.after != member:
            self.out.records.append(
                ConsumerGroupCurrentMemberAssignmentRecord(group.group_id, member.member_id, self.after.to_value())
            )

    def arm(self) -> None:
        """The member was heard; what it has to give up it has its time for, unless joining and syncing have theirs."""
        out, after, soft = self.out, self.after, self.soft
        group_id = self.group.group_id
        soft.last_heartbeat_ms[after.member_id] = now_ms = self.around.now_ms
        session_timeout_ms = fencing.session_timeout_ms(after.metadata, self.around.settings)
        out.arm(session_timer(group_id, after.member_id), session_timeout_ms)
        if after.state is not MemberState.UNREVOKED_PARTITIONS:
            soft.revoking.pop(after.member_id, None)
            if self.before.state is MemberState.UNREVOKED_PARTITIONS:
                out.cancel(revocation_timer(group_id, after.member_id))
        elif after != self.member:
            timeout_ms = max(0, after.metadata.rebalance_timeout_ms)
            former = soft.revoking.get(after.member_id)
            since_ms = now_ms if former is None else former.since_ms
            soft.revoking[after.member_id] = Revoking(since_ms, now_ms + timeout_ms)
            if not after.is_classic:
                out.arm(revocation_timer(group_id, after.member_id), timeout_ms)

    def answer(self, ticket: Ticket) -> None:
        """Its epoch, and what it has where it must be told."""
        after = self.after
        is_told = (
            self.request.epoch == JOINS or self.request.is_full or not is_same_set(after.assigned, self.before.assigned)
        )
        outcome = HeartbeatOutcome(
            member_id=after.member_id,
            epoch=after.epoch,
            heartbeat_interval_ms=self.around.settings.heartbeat_interval_ms,
            assignment=partitions_of(after.assigned) if is_told else None,
        )
        self.out.reply(ticket, outcome)


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    owned = request.owned
    check_epoch(member, request.epoch, owns_what_it_has=owned is not None and is_within(owned, member.assigned))


def _said(before: MemberMetadata, request: ConsumerHeartbeat) -> MemberMetadata:
    """What a member says, with what it leaves out as it was."""
    names = before.topic_names if request.topic_names is None else tuple(sorted(request.topic_names))
    if request.classic is not None:
        return MemberMetadata(
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=names,
            rebalance_timeout_ms=-1 if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms,
            classic=request.classic,
        )
    return MemberMetadata(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=names,
        topic_regex=before.topic_regex if request.topic_regex is None else request.topic_regex,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms
        ),
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
    )
