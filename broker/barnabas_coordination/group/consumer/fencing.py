"""Members go: they leave, fall silent, or do not give up in time what they must.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a member that leaves has nothing left behind but the group's next epoch, in one batch of records; a static
            member that leaves for a while keeps its partitions, and its session continues.
Read next:  heartbeat.py, which hears of a leave.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.member import ConsumerMember
from barnabas_coordination.group.consumer.messages import ConsumerHeartbeat, GroupSettings, HeartbeatOutcome
from barnabas_coordination.group.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerRecord,
    GroupValue,
    HeldPartitions,
    MemberMetadata,
    MemberState,
)
from barnabas_coordination.group.consumer.subscription import metadata_hash
from barnabas_coordination.group.led_group import LedGroupState, emptied, led_tombstones, member_tombstones
from barnabas_coordination.group.led_records import LEAVES_FOR_A_WHILE
from barnabas_coordination.group.states import TimerKey, TimerKind, revocation_timer, session_timer
from barnabas_coordination.shard import ArmTimer, CancelTimer, CoordinatorResult, Ticket
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.kafka.errors import KafkaError

REFUSED_RETRY_MS: Final = 1_000
"""Until a member that could not be removed is removed again."""


def downgrade_timer(group_id: str) -> TimerKey:
    """Key of the look whether classic members alone are left; see migration.py."""
    return TimerKey(TimerKind.DOWNGRADE, group_id)


def session_timeout_ms(metadata: MemberMetadata, settings: GroupSettings) -> int:
    """A classic member says its own, the others have the group's."""
    return settings.session_timeout_ms if metadata.classic is None else metadata.classic.session_timeout_ms


def leave(group: ConsumerGroup, request: ConsumerHeartbeat, ticket: Ticket, topics: TopicsImage) -> CoordinatorResult:
    """A member leaves, for good or for a while. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.find(request.member_id, request.instance_id)
    out = CoordinatorResult()
    if request.epoch == LEAVES_FOR_A_WHILE:
        gone = replace(
            member,
            epoch=LEAVES_FOR_A_WHILE,
            previous_epoch=member.epoch,
            state=MemberState.STABLE,
            assigned=_as_of_none(member.assigned),
            pending={},
        )
        if not (member.has_left_for_a_while and gone.assigned == member.assigned):
            out.records.append(
                ConsumerGroupCurrentMemberAssignmentRecord(group.group_id, member.member_id, gone.to_value())
            )
        out.cancel(revocation_timer(group.group_id, member.member_id))
    else:
        remove(group, [member], out, topics)
    out.reply(ticket, HeartbeatOutcome(member_id=request.member_id, epoch=request.epoch))
    return out


def _as_of_none(held: HeldPartitions) -> HeldPartitions:
    """A static member that returns is another process; it may commit what the former one read before it left."""
    return {topic_id: dict.fromkeys(of, 0) for topic_id, of in held.items()}


def group_tombstones(group: ConsumerGroup) -> list[ConsumerRecord]:
    """Everything that the log has of the group, members first."""
    records = led_tombstones(group)
    records += [ConsumerGroupRegularExpressionRecord(group.group_id, regex, None) for regex in sorted(group.regexes)]
    if group.has_partition_metadata:
        records.append(ConsumerGroupPartitionMetadataRecord(group.group_id))
    return [*records, ConsumerGroupMetadataRecord(group.group_id, None)]


def remove(group: ConsumerGroup, gone: Collection[ConsumerMember], out: CoordinatorResult, topics: TopicsImage) -> None:
    """The members are out, and the group is in its next epoch."""
    names = {member.member_id for member in gone}
    for member_id in sorted(names):
        out.records.extend(member_tombstones(group.kinds, group.group_id, member_id))
        out.cancel(session_timer(group.group_id, member_id))
        for kind in (TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC):
            out.cancel(TimerKey(kind, group.group_id, member_id))
        group.soft.forget(member_id)
    left = [member for member in group.members.values() if member.member_id not in names]
    regexes = {member.regex for member in left}
    out.records.extend(
        ConsumerGroupRegularExpressionRecord(group.group_id, regex, None)
        for regex in sorted(group.regexes)
        if regex not in regexes
    )
    subscribed = {name for member in left for name in member.metadata.topic_names}
    subscribed.update(*(group.regexes[regex].topics for regex in regexes if regex in group.regexes))
    epoch = group.epoch + 1
    changed = metadata_hash(subscribed, topics)
    out.records.append(ConsumerGroupMetadataRecord(group.group_id, GroupValue(epoch, changed)))
    if left and all(member.is_classic for member in left):
        out.arm(downgrade_timer(group.group_id), 0)
    if not left:
        out.records.append(emptied(group, epoch))


def on_timer(group: ConsumerGroup, key: TimerKey, topics: TopicsImage) -> CoordinatorResult:
    """A member's session is over, or the time in which it had to give something up."""
    out = CoordinatorResult()
    member = group.members.get(key.member_id)
    if member is None:
        return out
    if key.kind is TimerKind.REBALANCE and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return out
    remove(group, [member], out, topics)
    return out


def on_refused(
    group: LedGroupState[Any, Any, Any] | None, result: CoordinatorResult, error: KafkaError
) -> CoordinatorResult:
    """Records could not be appended: the group is as before, and who was heard was heard. A member whose time was over is looked at
    again, for no timer of it runs any more."""
    kept = (TimerKind.SESSION, TimerKind.TARGET, TimerKind.REGEX, TimerKind.INITIAL_DELAY)
    armed = [t for t in result.timers if isinstance(t, ArmTimer) and isinstance(t.key, TimerKey) and t.key.kind in kept]
    refused = replace(result.refused(error), timers=list(armed))
    if any(
        isinstance(each, ConsumerGroupRegularExpressionRecord) and each.value is not None for each in result.records
    ):
        assert isinstance(group, ConsumerGroup)
        group.soft.regex_names_seen = None
    if result.replies or group is None:
        return refused
    for timer in result.timers:
        key = timer.key
        if isinstance(timer, CancelTimer) and isinstance(key, TimerKey) and key.member_id in group.members:
            make = revocation_timer if group.members[key.member_id].is_revoking else session_timer
            refused.arm(make(group.group_id, key.member_id), REFUSED_RETRY_MS)
    return refused


def resume(group: ConsumerGroup, settings: GroupSettings) -> CoordinatorResult:
    """A new coordinator has read the group from the log: every member gets a fresh session, and time to give up what it must."""
    out = CoordinatorResult()
    for member in group.members.values():
        out.arm(session_timer(group.group_id, member.member_id), session_timeout_ms(member.metadata, settings))
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
            out.arm(revocation_timer(group.group_id, member.member_id), max(0, member.metadata.rebalance_timeout_ms))
    if group.members and group.classic_count == len(group.members):
        out.arm(downgrade_timer(group.group_id), 0)
    return out
