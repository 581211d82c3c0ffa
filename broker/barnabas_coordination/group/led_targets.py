"""The targets of a group in which the coordinator assigns: made at one go, or in slices that give way to others.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: one making at a time for each group; targets are of the epoch that the group had when their making began, and count only if
            the group is still as it was; a making is soft state: a new coordinator begins it again.
Read next:  consumer/target.py, share/target.py and streams/target.py, which say what there is to assign; epochs.py, when it is due.

A large group's targets are made in slices, each a timer without delay: between two of them the loop serves others, and the members keep
what they have.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

from barnabas_coordination.group.led_group import LedGroupState
from barnabas_coordination.group.led_records import TargetValue
from barnabas_coordination.group.states import TimerKey, TimerKind
from barnabas_coordination.shard import CoordinatorResult
from barnabas_wire.lazy_dataclass import dataclass

SLICE_PAUSE_MS: Final = 0
Making = Generator[None, None, Mapping[str, Any]]
"""Gives way now and then; returns what each member is to have."""
Group = LedGroupState[Any, Any, Any]


@dataclass(slots=True)
class TargetJob:
    """Targets in the making."""

    epoch: int
    members: frozenset[str]
    making: Making


def run(making: Making) -> Mapping[str, Any]:
    """The targets, at one go."""
    while True:
        try:
            next(making)
        except StopIteration as done:
            targets: Mapping[str, Any] = done.value
            return targets


def is_in_the_making(group: Group, epoch: int, member_id: str) -> bool:
    """Whether targets of this epoch are, with one for that member."""
    job: TargetJob | None = group.soft.target_job
    return job is not None and job.epoch == epoch and member_id in job.members


def make(
    group: Group, job: TargetJob, out: CoordinatorResult, *, is_large: bool, now_ms: int
) -> Mapping[str, Any] | None:
    """Targets with their records; None where they are made in slices, in place of others that were in the making."""
    if is_large:
        group.soft.target_job = job
        out.arm(TimerKey(TimerKind.TARGET, group.group_id), SLICE_PAUSE_MS)
        return None
    targets = run(job.making)
    out.records.extend(target_records(group, job.epoch, targets, now_ms=now_ms))
    return targets


def on_slice(group: Group, key: TimerKey, out: CoordinatorResult, *, now_ms: int) -> None:
    """The next slice, and the records after the last."""
    job: TargetJob | None = group.soft.target_job
    if job is None:
        return
    if job.epoch != group.epoch or job.members != group.members.keys():
        group.soft.target_job = None  # the next heartbeat finds targets due for what the group is now
        return
    try:
        next(job.making)
    except StopIteration as done:
        group.soft.target_job = None
        out.records.extend(target_records(group, job.epoch, done.value, now_ms=now_ms))
        return
    out.arm(key, SLICE_PAUSE_MS)


def target_records(group: Group, epoch: int, targets: Mapping[str, Any], *, now_ms: int) -> list[Any]:
    """A record for each member whose target is new or another one, and then one for the group."""
    records = [
        group.kinds.member_target(group.group_id, member_id, target)
        for member_id, target in sorted(targets.items())
        if group.targets.get(member_id) != target
    ]
    return [*records, group.kinds.target(group.group_id, TargetValue(epoch, now_ms))]
