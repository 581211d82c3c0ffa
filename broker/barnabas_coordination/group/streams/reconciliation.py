"""One member on its way to its target: what it has to give up first, what it may have already, and when it has arrived.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network, other members.
Invariants: nothing new is given while something is to be given up; a task is not given as active while another member works on it, nor
            to a process that has it in another of its members; the member's epoch becomes the target's only once it owns nothing that
            it had to give up.
Read next:  heartbeat.py, the caller; ../consumer/reconciliation.py, the same for partitions.

Not obvious: what changes its role within one member need not go first. An active task becomes a standby at once: the active one is to
be given up, the standby is there. A standby or warm-up becomes active in one step, as soon as no other works on the
task, and is kept as it is until then. Standby and warm-up change into each other at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from barnabas_coordination.group.consumer.errors import FencedMemberEpoch
from barnabas_coordination.group.streams.member import StreamsMember
from barnabas_coordination.group.streams.records import MemberState
from barnabas_coordination.group.streams.tasks import NOTHING_HELD, HeldTasks, Role, Task, Tasks

Others = Callable[[Task], Iterable[tuple[str, Role]]]
"""Process and role of each other member that has a task, or still has to give it up."""


def reconcile(
    member: StreamsMember, *, epoch: int, target: Tasks, owned: Tasks | None, others: Others
) -> StreamsMember:
    """The member after one heartbeat; the same where nothing changes.

    Args:
        epoch, target: of the group's targets, and the member's own.
        owned: what the member says that it owns; None: as it said last.

    Raises:
        FencedMemberEpoch: the state is of a later version, and the member owns something.
    """
    if member.state is MemberState.UNREVOKED_TASKS:
        if owned is None or owned.touches(member.pending.tasks):
            return member
        # One on, so that a member that has to give up more for a newer target is seen to move.
        return _next(member, min(member.epoch + 1, epoch), epoch, target, owned, others)
    if member.state is MemberState.UNRELEASED_TASKS:
        return _next(member, member.epoch, epoch, target, owned, others)
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise FencedMemberEpoch("the member's state is of a later version: join again")
        return _next(member, epoch, epoch, target, owned, others)
    return member if member.epoch == epoch else _next(member, member.epoch, epoch, target, owned, others)


def _next(
    member: StreamsMember, member_epoch: int, epoch: int, target: Tasks, owned: Tasks | None, others: Others
) -> StreamsMember:
    """Towards the target: first what must go goes, then what is free comes."""
    has = member.assigned
    wanted_copies = target.standby | target.warmup
    active = {task: since for task, since in has.active.items() if task in target.active}
    demoted = has.active.keys() & target.standby
    promoted = (has.standby | has.warmup) & target.active
    copies = has.standby | has.warmup
    standby = (copies & target.standby) | demoted | (has.standby & promoted)
    warmup = (copies & target.warmup) | (has.warmup & promoted)
    revoked = HeldTasks(
        {task: since for task, since in has.active.items() if task not in target.active},
        has.standby - wanted_copies - promoted,
        has.warmup - wanted_copies - promoted,
    )
    if revoked.tasks and (owned is None or owned.touches(revoked.tasks)):
        kept = HeldTasks(active, frozenset(standby), frozenset(warmup))
        return _moved(member, member_epoch, MemberState.UNREVOKED_TASKS, kept, revoked)
    is_waiting = False
    for task in target.active - active.keys():
        if _may_work(task, member, others):
            active[task] = epoch
            standby, warmup = standby - {task}, warmup - {task}
        else:
            is_waiting = True
    free = {task for task in wanted_copies - standby - warmup if _may_copy(task, member, others)}
    is_waiting = is_waiting or not wanted_copies <= free | standby | warmup
    assigned = HeldTasks(active, frozenset(standby | free & target.standby), frozenset(warmup | free & target.warmup))
    state = MemberState.UNRELEASED_TASKS if is_waiting else MemberState.STABLE
    return _moved(member, epoch, state, assigned, NOTHING_HELD)


def _may_work(task: Task, member: StreamsMember, others: Others) -> bool:
    return not any(role is Role.ACTIVE or process == member.process_id for process, role in others(task))


def _may_copy(task: Task, member: StreamsMember, others: Others) -> bool:
    return not any(process == member.process_id for process, _ in others(task))


def _moved(
    member: StreamsMember, epoch: int, state: MemberState, assigned: HeldTasks, pending: HeldTasks
) -> StreamsMember:
    """The former epoch is kept, for an answer that was lost on its way."""
    return replace(member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, pending=pending)
