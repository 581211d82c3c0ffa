"""JoinGroup: which members get into the next generation, under which id, and which return to their place in this one.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a member has one parked join at most; all members of a group share a protocol; a static instance is one member.
Read next:  rebalance.py, which answers the parked joins; members.py.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas_coordination.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
)
from barnabas_coordination.group.admission import require_memory
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.members import ClassicMember, member_of, size_of
from barnabas_coordination.group.messages import NO_MEMBER, JoinOutcome, JoinRequest
from barnabas_coordination.group.protocols import choose_protocol, common_protocols, subscribed_topics
from barnabas_coordination.group.rebalance import prepare_rebalance, try_complete_join
from barnabas_coordination.group.states import GroupState, RebalanceReason
from barnabas_coordination.shard import CoordinatorResult, Ticket

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a member whose first join is unanswered keeps its place: it does not know its id, so it cannot heartbeat."""
PENDING_MAX = 1_000
"""Ids of one group that wait for their owners. Beyond it the oldest goes: its owner, if there is one, asks for another."""


def join(
    group: ClassicGroup, request: JoinRequest, ticket: Ticket, *, new_member_id: str, now_ms: int
) -> CoordinatorResult:
    """A member wants into the next generation.

    Args:
        new_member_id: the id it gets if it has none; unique, drawn by the caller.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED.
    """
    out = CoordinatorResult()
    if not _has_place_for(group, request):
        raise GroupMaxSizeReached(f"group {group.group_id} has {group.max_size} members")
    _require_memory(group, request)
    if not _shares_a_protocol(group, request):
        raise InconsistentGroupProtocol(
            f"group {group.group_id} speaks {group.protocol_type!r} with {sorted(common_protocols(group.offers()))}"
        )
    if request.member_id == NO_MEMBER:
        _join_unnamed(group, request, ticket, out, new_member_id, now_ms)
    elif request.member_id in group.pending_members:
        del group.pending_members[request.member_id]
        _add_member(group, request, ticket, out, request.member_id)
    else:
        group.validate_member(request.member_id, request.instance_id)
        _rejoin(group, group.members[request.member_id], request, ticket, out)
    try_complete_join(group, out, now_ms)
    return out


def _has_place_for(group: ClassicGroup, request: JoinRequest) -> bool:
    pending = len(group.pending_members) if _asks_for_id(request) else 0
    if group.state is GroupState.EMPTY:
        return pending < group.max_size
    member = group.members.get(request.member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        is_waiting = member is not None and member.awaiting_join is not None
        waiting = sum(m.awaiting_join is not None for m in group.members.values())
        return is_waiting or waiting + pending < group.max_size
    return member is not None or len(group.members) + pending < group.max_size


def _require_memory(group: ClassicGroup, request: JoinRequest) -> None:
    """Static members keep their place without a connection, so whoever may join could leave many behind."""
    if not _asks_for_id(request):
        others = (member for member in group.members.values() if member.member_id != request.member_id)
        require_memory(group.group_id, sum(map(size_of, others), size_of(request)))


def _asks_for_id(request: JoinRequest) -> bool:
    return request.member_id == NO_MEMBER and request.instance_id is None and request.requires_member_id


def _shares_a_protocol(group: ClassicGroup, request: JoinRequest) -> bool:
    if not group.members:
        return bool(request.protocol_type) and bool(request.protocols)
    common = common_protocols(group.offers())
    return group.protocol_type == request.protocol_type and any(name in common for name, _ in request.protocols)


# ---- newcomers -------------------------------------------------------------------------------------------------------


def _join_unnamed(
    group: ClassicGroup, request: JoinRequest, ticket: Ticket, out: CoordinatorResult, new_member_id: str, now_ms: int
) -> None:
    if request.instance_id is not None:
        old_member_id = group.static_members.get(request.instance_id)
        if old_member_id is None:
            _add_member(group, request, ticket, out, new_member_id)
        else:
            _replace_static_member(group, group.members[old_member_id], request, ticket, out, new_member_id, now_ms)
    elif request.requires_member_id:
        if len(group.pending_members) >= PENDING_MAX:
            oldest = next(iter(group.pending_members))
            del group.pending_members[oldest]
            out.cancel(group.session_timer(oldest))
        group.pending_members[new_member_id] = None
        out.arm(group.session_timer(new_member_id), request.session_timeout_ms)
        out.reply(ticket, MemberIdRequired(new_member_id))
    else:
        _add_member(group, request, ticket, out, new_member_id)


def _add_member(
    group: ClassicGroup, request: JoinRequest, ticket: Ticket, out: CoordinatorResult, member_id: str
) -> None:
    if not group.members:
        group.protocol_type = request.protocol_type
    if group.leader_id is None:
        group.leader_id = member_id
    group.members[member_id] = replace(member_of(request, member_id), is_new=True, awaiting_join=ticket)
    if request.instance_id is not None:
        group.static_members[request.instance_id] = member_id
    if group.initial_delay is not None and group.generation == 0:
        group.initial_delay.has_newcomer = True
    out.arm(group.session_timer(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    prepare_rebalance(group, out, RebalanceReason.JOIN)


# ---- members that join again -----------------------------------------------------------------------------------------


def _rejoin(
    group: ClassicGroup, member: ClassicMember, request: JoinRequest, ticket: Ticket, out: CoordinatorResult
) -> None:
    is_unchanged = member.protocols == request.protocols
    if group.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
        # Its answer got lost: send it again.
        out.reply(ticket, group.join_outcome(member))
        return
    if group.state is GroupState.STABLE and is_unchanged and member.member_id != group.leader_id:
        out.reply(ticket, group.join_outcome(member))
        return
    # A leader joins a stable group again when the topics it assigns have changed.
    member.protocols = request.protocols
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.client_id = request.client_id
    member.client_host = request.client_host
    out.reply(member.awaiting_join, RebalanceInProgress("joined again over another request"))
    member.awaiting_join = ticket
    prepare_rebalance(group, out, RebalanceReason.JOIN)


# ---- static members that return --------------------------------------------------------------------------------------


def _replace_static_member(
    group: ClassicGroup,
    old: ClassicMember,
    request: JoinRequest,
    ticket: Ticket,
    out: CoordinatorResult,
    new_member_id: str,
    now_ms: int,
) -> None:
    """KIP-345: the instance came back, under a new member id; the old id is fenced from here on."""
    back = replace(member_of(request, new_member_id), assignment=old.assignment, is_new=old.is_new)
    fenced = FencedInstanceId(f"instance {old.instance_id} joined again")
    out.reply(old.awaiting_join, fenced)
    out.reply(old.awaiting_sync, fenced)
    out.cancel(group.session_timer(old.member_id))
    timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if back.is_new else back.session_timeout_ms
    out.arm(group.session_timer(new_member_id), timeout_ms)
    if group.state is GroupState.STABLE and _keeps_assignment(group, old, back):
        _return_to_assignment(group, old, back, request, ticket, out, now_ms)
        return
    group.replace_member(old, back)
    back.awaiting_join = ticket
    prepare_rebalance(group, out, RebalanceReason.JOIN)


def _keeps_assignment(group: ClassicGroup, old: ClassicMember, back: ClassicMember) -> bool:
    """Whether the assignment stays good: the choice of the protocol would be the same, and the member wants the same topics."""
    protocol = choose_protocol([member.protocols for member in group.with_replaced(old, back)])
    return protocol == group.protocol and (
        subscribed_topics(back.metadata(protocol)) == subscribed_topics(old.metadata(protocol))
    )


def _return_to_assignment(
    group: ClassicGroup,
    old: ClassicMember,
    back: ClassicMember,
    request: JoinRequest,
    ticket: Ticket,
    out: CoordinatorResult,
    now_ms: int,
) -> None:
    """Decide on a record of the same generation with the member under its new id; its replay makes the change."""
    members = group.with_replaced(old, back)
    leader_id = back.member_id if group.leader_id == old.member_id else group.leader_id
    assignments = {member.member_id: member.assignment for member in members}
    out.records.append(group.generation_record(members, leader_id, assignments, now_ms))
    group.returning = back
    # A leader that cannot skip the assignment (KIP-814) sees its old id as the leader's: it would assign, to no effect.
    is_skipping = request.supports_skipping_assignment
    is_leader = is_skipping and leader_id == back.member_id
    out.reply(
        ticket,
        JoinOutcome(
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader_id=(leader_id if is_skipping else group.leader_id) or "",
            member_id=back.member_id,
            members=group.joined_members(members) if is_leader else (),
            skip_assignment=is_leader,
        ),
    )
