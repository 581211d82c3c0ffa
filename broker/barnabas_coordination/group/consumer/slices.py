"""Work of a group that is too much for one turn of the loop: resolving regular expressions, and the targets of a large group.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: one job of a kind at a time for each group; a job is soft state: a new coordinator begins it anew; what it found counts only
            if the group is still as it was when it began.
Read next:  target.py and regexes.py for the work; fencing.py for the other timers.

Each slice is a timer without delay: between two of them the loop serves others.
"""

from __future__ import annotations

from typing import Final

from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.messages import Surroundings
from barnabas_coordination.group.consumer.regexes import resolution_records, resolve
from barnabas_coordination.group.consumer.soft_state import RegexJob, TargetJob
from barnabas_coordination.group.consumer.target import target_records
from barnabas_coordination.group.states import TimerKey, TimerKind
from barnabas_coordination.shard import CoordinatorResult

SLICE_PAUSE_MS: Final = 0


def begin_target(group: ConsumerGroup, job: TargetJob, out: CoordinatorResult) -> None:
    """Make these targets, in place of others that were in the making for what the group was before."""
    group.soft.target_job = job
    out.arm(TimerKey(TimerKind.TARGET, group.group_id), SLICE_PAUSE_MS)


def begin_resolution(group: ConsumerGroup, job: RegexJob, out: CoordinatorResult) -> None:
    """Resolve the group's regular expressions, unless that goes on already."""
    if group.soft.regex_job is None:
        group.soft.regex_job = job
        group.soft.regex_refreshed_ms = job.started_ms
        group.soft.regex_names_seen = job.topics
        out.arm(TimerKey(TimerKind.REGEX, group.group_id), SLICE_PAUSE_MS)


def on_slice(group: ConsumerGroup, key: TimerKey, around: Surroundings) -> CoordinatorResult:
    """The next slice of a job, and its records after the last."""
    out = CoordinatorResult()
    if key.kind is TimerKind.TARGET:
        _make_targets(group, key, around, out)
    else:
        _resolve(group, key, around, out)
    return out


def _make_targets(group: ConsumerGroup, key: TimerKey, around: Surroundings, out: CoordinatorResult) -> None:
    job = group.soft.target_job
    if job is None:
        return
    if job.epoch != group.epoch or job.members != group.members.keys():
        group.soft.target_job = None  # the next heartbeat finds targets due for what the group is now
        return
    try:
        next(job.assigning)
    except StopIteration as done:
        group.soft.target_job = None
        out.records.extend(target_records(group, job.epoch, done.value, now_ms=around.now_ms))
        return
    out.arm(key, SLICE_PAUSE_MS)


def _resolve(group: ConsumerGroup, key: TimerKey, around: Surroundings, out: CoordinatorResult) -> None:
    job = group.soft.regex_job
    if job is None:
        return
    if job.resolving is None:
        job.resolving = resolve(tuple(group.regex_counts), job)
    try:
        next(job.resolving)
    except StopIteration as done:
        group.soft.regex_job = None
        out.records.extend(resolution_records(group, done.value, job, around.topics))
        return
    out.arm(key, SLICE_PAUSE_MS)
