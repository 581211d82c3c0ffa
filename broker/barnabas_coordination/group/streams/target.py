"""The targets of a Streams group: how they are made, and the records that say so.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: targets are of the epoch that the group had when their making began, and count only if the group is still in it; a group that
            is not ready has empty targets.
Read next:  assignor.py for the making; heartbeat.py, which finds that they are due.

A group of up to SLICED_FROM tasks and members gets its targets in the heartbeat that finds them due. In a larger one the work goes on in
slices while the members keep what they have, and begins anew where the group changed meanwhile.
"""

from __future__ import annotations

from typing import Final

from barnabas_coordination.group.consumer.records import TargetValue
from barnabas_coordination.group.consumer.slices import SLICE_PAUSE_MS
from barnabas_coordination.group.states import TimerKey, TimerKind
from barnabas_coordination.group.streams.assignor import Assigning, Targets, TaskMember, assign
from barnabas_coordination.group.streams.group import StreamsGroup
from barnabas_coordination.group.streams.internal_topics import ConfiguredTopology
from barnabas_coordination.group.streams.member import StreamsMember
from barnabas_coordination.group.streams.messages import StreamsSettings, StreamsSurroundings
from barnabas_coordination.group.streams.records import (
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsRecord,
)
from barnabas_coordination.group.streams.soft_state import NO_OFFSETS, TargetJob
from barnabas_coordination.group.streams.tasks import NO_TASKS
from barnabas_coordination.group.streams.topology import Topology
from barnabas_coordination.shard import CoordinatorResult

SLICED_FROM: Final = 1_000
"""Tasks, their standbys and members of a group whose targets are made in slices: fewer take 5 ms at most."""


def assigning_of(
    group: StreamsGroup,
    member: StreamsMember | None,
    topology: Topology | None,
    configured: ConfiguredTopology | None,
    settings: StreamsSettings,
) -> Assigning:
    """The making of targets for the group, with `member` as it is about to be."""
    members = dict(group.members)
    if member is not None:
        members[member.member_id] = member
    if topology is None or configured is None or not configured.is_ready:
        return _nothing(list(members))
    seen = [
        TaskMember(
            member_id=name,
            process_id=each.process_id,
            target=group.targets.get(name),
            offsets=group.soft.offsets.get(name, NO_OFFSETS).reached,
        )
        for name, each in members.items()
    ]
    return assign(
        seen,
        task_counts=configured.task_counts,
        stateful=[part.subtopology_id for part in topology.subtopologies if part.is_stateful],
        replicas=settings.standby_replicas,
    )


def _nothing(names: list[str]) -> Assigning:
    yield from ()
    return dict.fromkeys(names, NO_TASKS)


def is_large(group: StreamsGroup, configured: ConfiguredTopology | None, settings: StreamsSettings) -> bool:
    """Whether its targets are made in slices."""
    tasks = 0 if configured is None else sum(configured.task_counts.values())
    return tasks * (1 + settings.standby_replicas) + len(group.members) > SLICED_FROM


def target_records(group: StreamsGroup, epoch: int, targets: Targets, *, now_ms: int) -> list[StreamsRecord]:
    """A record for each member whose target is new or another one, and then one for the group."""
    records: list[StreamsRecord] = [
        StreamsGroupTargetAssignmentMemberRecord(group.group_id, member_id, tasks)
        for member_id, tasks in sorted(targets.items())
        if group.targets.get(member_id) != tasks
    ]
    records.append(StreamsGroupTargetAssignmentMetadataRecord(group.group_id, TargetValue(epoch, now_ms)))
    return records


def begin(group: StreamsGroup, job: TargetJob, out: CoordinatorResult) -> None:
    """Make targets in slices, unless that goes on already for this epoch."""
    running = group.soft.target_job
    if running is None or (running.epoch, running.members) != (job.epoch, job.members):
        group.soft.target_job = job
        out.arm(TimerKey(TimerKind.TARGET, group.group_id), SLICE_PAUSE_MS)


def on_timer(group: StreamsGroup, key: TimerKey, around: StreamsSurroundings) -> CoordinatorResult:
    """The next slice, and the records after the last; or the end of the wait for more members, and the first slice."""
    out = CoordinatorResult()
    soft = group.soft
    if key.kind is TimerKind.INITIAL_DELAY:
        soft.is_delayed = False
        if not group.members or group.epoch <= group.assignment_epoch:
            return out
        assigning = assigning_of(group, None, group.topology, soft.configured, around.settings)
        soft.target_job = TargetJob(group.epoch, frozenset(group.members), assigning)
        key = TimerKey(TimerKind.TARGET, group.group_id)
    job = soft.target_job
    if job is None:
        return out
    if job.epoch != group.epoch or job.members != group.members.keys():
        soft.target_job = None  # the next heartbeat finds targets due for what the group is now
        return out
    try:
        next(job.assigning)
    except StopIteration as done:
        soft.target_job = None
        out.records.extend(target_records(group, job.epoch, done.value, now_ms=around.now_ms))
        return out
    out.arm(key, SLICE_PAUSE_MS)
    return out
