"""Members stay while they are heard of; they go by leaving, silence or with their connection: Heartbeat, OffsetCommit, LeaveGroup, time.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a member that is gone is in no timer, no parked request and no set of the group; the others rebalance without it.
Read next:  rebalance.py, classic.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas_coordination.errors import RebalanceInProgress, UnknownMemberId
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.messages import NO_MEMBER, LeaveOutcome, LeavingMember, MemberRef
from barnabas_coordination.group.rebalance import (
    rebalance_time_is_up,
    rebalance_without_the_gone,
    try_complete_join,
)
from barnabas_coordination.group.states import GroupState, RebalanceReason, TimerKey, TimerKind
from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_wire.kafka.errors import ErrorCode, KafkaError


def heartbeat(group: ClassicGroup, member: MemberRef, ticket: Ticket) -> CoordinatorResult:
    """A member shows that it is there. The reply is REBALANCE_IN_PROGRESS while the group wants everyone to join again.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    current = group.current_member(member)
    out = CoordinatorResult()
    out.arm(group.session_timer(current.member_id), current.session_timeout_ms)
    out.reply(ticket, RebalanceInProgress() if group.state is GroupState.PREPARING_REBALANCE else None)
    return out


def allow_commit(group: ClassicGroup, member: MemberRef) -> CoordinatorResult:
    """Whether these offsets may be committed now; a commit shows that the member is there, too.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
    """
    out = CoordinatorResult()
    is_simple = member.generation < 0
    if is_simple and group.state is GroupState.EMPTY:
        return out
    if is_simple and member.member_id == NO_MEMBER and member.instance_id is None:
        raise UnknownMemberId(f"group {group.group_id} has members: a commit needs a member id and a generation")
    current = group.current_member(member)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows its generation but not yet what it is assigned in it.
        raise RebalanceInProgress()
    out.arm(group.session_timer(current.member_id), current.session_timeout_ms)
    return out


def allow_commit_in_transaction(group: ClassicGroup, member: MemberRef) -> None:
    """Whether a transaction may commit these offsets: by a member of the current generation (KIP-447), or by a client too old to say.

    A rebalance is no obstacle, for the producer must be able to end what was read before it.
    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    is_anonymous = member.member_id == NO_MEMBER and member.instance_id is None
    if member.generation < 0 and (is_anonymous or group.state is GroupState.EMPTY):
        return
    group.current_member(member)


def resume(group: ClassicGroup) -> CoordinatorResult:
    """A new coordinator has read the group from the log: every member gets a fresh session."""
    out = CoordinatorResult()
    for member in group.members.values():
        out.arm(group.session_timer(member.member_id), member.session_timeout_ms)
    return out


def leave(group: ClassicGroup, members: Sequence[LeavingMember], ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
    """Members go. The reply has one LeaveOutcome for each, in order."""
    out = CoordinatorResult()
    size = len(group.members)
    outcomes = [LeaveOutcome(*leaving, _leave_one(group, leaving, out)) for leaving in members]
    out.reply(ticket, tuple(outcomes))
    if len(group.members) < size:
        rebalance_without_the_gone(group, out, RebalanceReason.LEAVE)
    try_complete_join(group, out, now_ms)
    return out


def _leave_one(group: ClassicGroup, leaving: LeavingMember, out: CoordinatorResult) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == NO_MEMBER:
        member_id = group.static_members.get(leaving.instance_id or "", NO_MEMBER)
    if member_id in group.pending_members:
        del group.pending_members[member_id]
        out.cancel(group.session_timer(member_id))
        return ErrorCode.NONE
    try:
        group.validate_member(member_id, leaving.instance_id)
    except KafkaError as error:
        return error.code
    group.remove_member(group.members[member_id], out)
    return ErrorCode.NONE


def on_timer(group: ClassicGroup, key: TimerKey, *, now_ms: int) -> CoordinatorResult:
    """One of the group's timers fired."""
    out = CoordinatorResult()
    if key.kind is TimerKind.SESSION:
        _session_expired(group, key.member_id, out)
    elif key.kind is TimerKind.REBALANCE:
        rebalance_time_is_up(group, out, now_ms)
    else:
        for member_id in sorted(group.pending_sync):
            group.remove_member(group.members[member_id], out)
        rebalance_without_the_gone(group, out, RebalanceReason.SYNC_TIMEOUT)
    try_complete_join(group, out, now_ms)
    return out


def _session_expired(group: ClassicGroup, member_id: str, out: CoordinatorResult) -> None:
    if member_id in group.pending_members:
        del group.pending_members[member_id]
        return
    member = group.members.get(member_id)
    if member is None:
        return
    is_waiting = member.awaiting_join is not None or member.awaiting_sync is not None
    if member.is_new or not is_waiting:
        group.remove_member(member, out)
        rebalance_without_the_gone(group, out, RebalanceReason.SESSION_TIMEOUT)


def forget_pending(group: ClassicGroup, member_id: str, *, now_ms: int) -> CoordinatorResult:
    """The connection is gone over which an id was asked for; nothing where its owner has joined with it."""
    out = CoordinatorResult()
    if member_id in group.pending_members:
        del group.pending_members[member_id]
        out.cancel(group.session_timer(member_id))
        try_complete_join(group, out, now_ms)
    return out


def abandon(group: ClassicGroup, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
    """The connection that waited for this ticket is gone: its answer will not be read.

    A member that never learned its id leaves at once. Another one gets a session time-out to come back.
    """
    out = CoordinatorResult()
    for member in list(group.members.values()):
        if ticket not in (member.awaiting_join, member.awaiting_sync):
            continue
        if member.awaiting_sync == ticket:
            member.awaiting_sync = None
            group.pending_sync.add(member.member_id)
        else:
            member.awaiting_join = None
        if member.is_new:
            group.remove_member(member, out)
        else:
            out.arm(group.session_timer(member.member_id), member.session_timeout_ms)
    try_complete_join(group, out, now_ms)
    return out
