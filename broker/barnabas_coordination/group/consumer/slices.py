"""Work of a group that is too much for one turn of the loop: resolving regular expressions, and the targets of a large group.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: one job of a kind at a time for each group; a job is soft state: a new coordinator begins it again; what it
            found counts only if the group is still as it was when it began.
Read next:  target.py and regexes.py for the work; fencing.py for the other timers.

Each slice is a timer without delay: between two of them the loop serves others.
"""

from __future__ import annotations

from barnabas_coordination.group import led_targets
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.messages import Surroundings
from barnabas_coordination.group.consumer.regexes import resolution_records, resolve
from barnabas_coordination.group.consumer.soft_state import RegexJob
from barnabas_coordination.group.states import TimerKey, TimerKind
from barnabas_coordination.shard import CoordinatorResult


def begin_resolution(group: ConsumerGroup, job: RegexJob, out: CoordinatorResult) -> None:
    """Resolve the group's regular expressions, unless that is under way."""
    if group.soft.regex_job is None:
        group.soft.regex_job = job
        group.soft.regex_refreshed_ms = job.started_ms
        group.soft.regex_names_seen = job.topics
        out.arm(TimerKey(TimerKind.REGEX, group.group_id), led_targets.SLICE_PAUSE_MS)


def on_slice(group: ConsumerGroup, key: TimerKey, around: Surroundings) -> CoordinatorResult:
    """The next slice of a job, and its records after the last."""
    out = CoordinatorResult()
    if key.kind is TimerKind.TARGET:
        led_targets.on_slice(group, key, out, now_ms=around.now_ms)
    else:
        _resolve(group, key, around, out)
    return out


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
    out.arm(key, led_targets.SLICE_PAUSE_MS)
