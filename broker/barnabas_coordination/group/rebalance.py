"""The rebalance of a classic group: it begins, gathers the members, and makes them a generation; and what follows a refused write.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a generation begins when every member has joined or the time is up, never while a comer with an id is awaited and
            time is left; only an assignment or an emptying ends it.
Read next:  syncing.py, where the generation gets its assignment; classic.py for the states.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas_coordination.errors import RebalanceInProgress
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.protocols import choose_protocol
from barnabas_coordination.group.records import GroupMetadataValue
from barnabas_coordination.group.states import GroupState, InitialDelay, RebalanceReason, TimerKind
from barnabas_coordination.shard import CoordinatorResult
from barnabas_wire.kafka.errors import KafkaError


def prepare_rebalance(group: ClassicGroup, out: CoordinatorResult, reason: RebalanceReason) -> None:
    """Ask everyone to join again, unless that is so already. Parked syncs are answered REBALANCE_IN_PROGRESS."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return
    group.stats.rebalances[reason] += 1
    for member in group.members.values():
        if member.awaiting_sync is not None:
            out.reply(member.awaiting_sync, RebalanceInProgress("the group changed before its members were assigned"))
            member.awaiting_sync = None
            out.arm(group.session_timer(member.member_id), member.session_timeout_ms)
    group.pending_sync.clear()
    out.cancel(group.timer(TimerKind.SYNC))
    delay_ms = group.initial_rebalance_delay_ms
    is_delayed = group.state is GroupState.EMPTY and delay_ms > 0
    group.initial_delay = InitialDelay(max(group.rebalance_timeout_ms - delay_ms, 0)) if is_delayed else None
    group.move_to(GroupState.PREPARING_REBALANCE)
    out.arm(group.timer(TimerKind.REBALANCE), delay_ms if is_delayed else group.rebalance_timeout_ms)


def rebalance_without_the_gone(group: ClassicGroup, out: CoordinatorResult, reason: RebalanceReason) -> None:
    """Members were removed: the others share again."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, out, reason)


def try_complete_join(group: ClassicGroup, out: CoordinatorResult, now_ms: int) -> None:
    """Begin the generation if no member has to be waited for."""
    if (
        group.state is not GroupState.PREPARING_REBALANCE
        or group.initial_delay is not None
        or group.pending_members
        or any(member.awaiting_join is None for member in group.members.values())
    ):
        return
    _complete_join(group, out, now_ms)


def rebalance_time_is_up(group: ClassicGroup, out: CoordinatorResult, now_ms: int) -> None:
    """The rebalance timer fired: lengthen the initial delay for newcomers, or continue with those that have joined."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    delay = group.initial_delay
    if delay is not None and delay.has_newcomer and delay.remaining_ms > 0:
        delay.has_newcomer = False
        delay_ms = min(group.initial_rebalance_delay_ms, delay.remaining_ms)
        delay.remaining_ms -= delay_ms
        out.arm(group.timer(TimerKind.REBALANCE), delay_ms)
    else:
        _complete_join(group, out, now_ms)


def _complete_join(group: ClassicGroup, out: CoordinatorResult, now_ms: int) -> None:
    group.initial_delay = None
    out.cancel(group.timer(TimerKind.REBALANCE))
    for member in [m for m in group.members.values() if m.awaiting_join is None and m.instance_id is None]:
        group.remove_member(member, out)
    if not group.members:
        out.records.append(group.empty_record(now_ms))
    elif not _elect_joined_leader(group):
        # Only static members are left and none has come back: their sessions decide.
        out.arm(group.timer(TimerKind.REBALANCE), group.rebalance_timeout_ms)
    else:
        _start_generation(group, out)


def _elect_joined_leader(group: ClassicGroup) -> bool:
    leader = group.members.get(group.leader_id or "")
    if leader is None or leader.awaiting_join is None:
        joined = next((m.member_id for m in group.members.values() if m.awaiting_join is not None), None)
        if joined is None:
            return False
        group.leader_id = joined
    return True


def _start_generation(group: ClassicGroup, out: CoordinatorResult) -> None:
    """Soft state until the leader's assignment is written: a new coordinator does not know of this generation."""
    group.generation += 1
    group.protocol = choose_protocol(group.offers())
    group.topics = group.subscribed_topics()
    group.move_to(GroupState.COMPLETING_REBALANCE)
    for member in group.members.values():
        out.reply(member.awaiting_join, group.join_outcome(member))
        member.awaiting_join = None
        member.is_new = False
        out.arm(group.session_timer(member.member_id), member.session_timeout_ms)
    group.pending_sync = set(group.members)
    out.arm(group.timer(TimerKind.SYNC), group.rebalance_timeout_ms)


def on_refused(
    group: ClassicGroup, value: GroupMetadataValue, result: CoordinatorResult, error: KafkaError
) -> CoordinatorResult:
    """A generation could not be written, so it was not replayed: the group is as the step found it, and the requests that the
    step answers are still parked.

    Args:
        value: the generation, from the one record of `result`.

    Returns:
        What to do instead of `result`.
    """
    if not value.members:
        # The group has no members, written or not: a coordinator that reads the older record will time its members out.
        group.become(value)
        return CoordinatorResult(replies=result.replies, timers=result.timers)
    if group.state is GroupState.STABLE:
        # A static member's return: the old id stays the member, its session continues.
        group.returning = None
        return replace(result.refused(error), timers=[])
    out = result.refused(error)
    for member in group.members.values():
        member.awaiting_sync = None
    prepare_rebalance(group, out, RebalanceReason.WRITE_FAILED)
    return out
