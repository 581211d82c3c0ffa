"""SyncGroup: the leader assigns, everyone gets what it is assigned.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: the leader's request decides on one record and on all parked answers; until the record is replayed they stay parked,
            so that nothing is to be undone when it is refused (rebalance.on_refused).
Read next:  rebalance.py, classic.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas_coordination.errors import InconsistentGroupProtocol, RebalanceInProgress
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.messages import SyncRequest
from barnabas_coordination.group.states import GroupState, TimerKind
from barnabas_coordination.shard import CoordinatorResult, Ticket


def sync(group: ClassicGroup, request: SyncRequest, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
    """A member asks for its assignment; the leader's request brings everyone's.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
    REBALANCE_IN_PROGRESS.
    """
    member = group.current_member(request.member)
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        raise InconsistentGroupProtocol(f"the group is of type {group.protocol_type!r}")
    if request.protocol_name is not None and request.protocol_name != group.protocol:
        raise InconsistentGroupProtocol(f"the group chose {group.protocol!r}")
    if group.state is GroupState.PREPARING_REBALANCE:
        raise RebalanceInProgress()
    out = CoordinatorResult()
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        out.cancel(group.timer(TimerKind.SYNC))
    if group.state is GroupState.STABLE:
        out.arm(group.session_timer(member.member_id), member.session_timeout_ms)
        out.reply(ticket, group.sync_outcome(member.assignment))
        return out
    out.reply(member.awaiting_sync, RebalanceInProgress("synced again over another request"))
    member.awaiting_sync = ticket
    if member.member_id == group.leader_id:
        _assign(group, dict(request.assignments), out, now_ms)
    return out


def _assign(group: ClassicGroup, assignments: Mapping[str, bytes], out: CoordinatorResult, now_ms: int) -> None:
    for member in group.members.values():
        if member.awaiting_sync is not None:
            out.arm(group.session_timer(member.member_id), member.session_timeout_ms)
            out.reply(member.awaiting_sync, group.sync_outcome(assignments.get(member.member_id, b"")))
    out.records.append(group.generation_record(group.members.values(), group.leader_id, assignments, now_ms))
