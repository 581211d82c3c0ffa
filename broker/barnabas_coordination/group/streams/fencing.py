"""Members go: they leave, fall silent, or do not give up in time what they must.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a member that leaves has nothing left behind but the group's next epoch, in one batch of records; a static
            member that leaves for a while keeps its tasks, and its session continues.
Read next:  heartbeat.py, which hears of a leave; ../consumer/fencing.py, whose timers these are.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas_coordination.group.led_group import emptied, led_tombstones, member_tombstones
from barnabas_coordination.group.led_records import LEAVES_FOR_A_WHILE
from barnabas_coordination.group.states import TimerKey, TimerKind, revocation_timer, session_timer
from barnabas_coordination.group.streams.group import StreamsGroup
from barnabas_coordination.group.streams.member import StreamsMember
from barnabas_coordination.group.streams.messages import StreamsHeartbeat, StreamsHeartbeatOutcome, StreamsSettings
from barnabas_coordination.group.streams.records import (
    MemberState,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTopologyRecord,
    StreamsRecord,
)
from barnabas_coordination.group.streams.tasks import NOTHING_HELD
from barnabas_coordination.shard import CoordinatorResult, Ticket


def delay_timer(group_id: str) -> TimerKey:
    """Key of the time that the first members of a group wait for more."""
    return TimerKey(TimerKind.INITIAL_DELAY, group_id)


def leave(group: StreamsGroup, request: StreamsHeartbeat, ticket: Ticket) -> CoordinatorResult:
    """A member leaves, for good or for a while. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.find(request.member_id, request.instance_id)
    out = CoordinatorResult()
    if request.shuts_down:
        group.soft.shutdown_by = request.member_id
    if request.epoch == LEAVES_FOR_A_WHILE:
        gone = replace(
            member,
            epoch=LEAVES_FOR_A_WHILE,
            previous_epoch=member.epoch,
            state=MemberState.STABLE,
            # The one that returns is another process; it may commit what the former one read before it left.
            assigned=member.assigned._replace(active=dict.fromkeys(member.assigned.active, 0)),
            pending=NOTHING_HELD,
        )
        if not (member.has_left_for_a_while and gone.assigned == member.assigned):
            out.records.append(
                StreamsGroupCurrentMemberAssignmentRecord(group.group_id, member.member_id, gone.to_value())
            )
        out.cancel(revocation_timer(group.group_id, member.member_id))
    else:
        remove(group, member, out)
    out.reply(ticket, StreamsHeartbeatOutcome(member_id=request.member_id, epoch=request.epoch))
    return out


def group_tombstones(group: StreamsGroup) -> list[StreamsRecord]:
    """Everything that the log has of the group, members first."""
    return [
        *led_tombstones(group),
        StreamsGroupMetadataRecord(group.group_id, None),
        StreamsGroupTopologyRecord(group.group_id, None),
    ]


def remove(group: StreamsGroup, gone: StreamsMember, out: CoordinatorResult) -> None:
    """The member is out, and the group is in its next epoch."""
    group_id, member_id = group.group_id, gone.member_id
    out.records.extend(member_tombstones(group.kinds, group_id, member_id))
    out.cancel(session_timer(group_id, member_id))
    out.cancel(revocation_timer(group_id, member_id))
    if gone.metadata.endpoint is not None:
        group.soft.endpoint_epoch += 1
    value = group.value._replace(epoch=group.epoch + 1)
    out.records.append(StreamsGroupMetadataRecord(group_id, value))
    if group.members.keys() == {member_id}:
        out.records.append(emptied(group, value.epoch))


def forget(group: StreamsGroup) -> None:
    """After records were replayed: what is known of members that are gone goes, too."""
    soft = group.soft
    for member_id in [name for name in soft.offsets if name not in group.members]:
        del soft.offsets[member_id]
    if not group.members:
        soft.shutdown_by = None


def on_timer(group: StreamsGroup, key: TimerKey) -> CoordinatorResult:
    """A member's session is over, or the time in which it had to give something up."""
    out = CoordinatorResult()
    member = group.members.get(key.member_id)
    if member is None or (key.kind is TimerKind.REBALANCE and not member.is_revoking):
        return out
    remove(group, member, out)
    return out


def resume(group: StreamsGroup, settings: StreamsSettings) -> CoordinatorResult:
    """A new coordinator has read the group from the log: every member gets a fresh session, and time to give up what it must."""
    out = CoordinatorResult()
    for member in group.members.values():
        out.arm(session_timer(group.group_id, member.member_id), settings.session_timeout_ms)
        if member.is_revoking:
            out.arm(revocation_timer(group.group_id, member.member_id), max(0, member.metadata.rebalance_timeout_ms))
    return out
