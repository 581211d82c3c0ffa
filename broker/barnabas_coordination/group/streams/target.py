"""The targets of a Streams group: how they are made, and the records that say so.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: targets are of the epoch that the group had when their making began, and count only if the group is still in it; a group that
            is not ready has empty targets.
Read next:  assignor.py for the making; heartbeat.py, which finds that they are due.

A group of up to SLICED_FROM tasks and members gets its targets in the heartbeat that finds them due. In a larger one
the work is done in slices while the members keep what they have, and begins again where the group changed meanwhile.
"""

from __future__ import annotations

from typing import Final

from barnabas_coordination.group import led_targets
from barnabas_coordination.group.led_targets import TargetJob
from barnabas_coordination.group.states import TimerKey, TimerKind
from barnabas_coordination.group.streams.assignor import Assigning, TaskMember, assign
from barnabas_coordination.group.streams.group import StreamsGroup
from barnabas_coordination.group.streams.internal_topics import ConfiguredTopology
from barnabas_coordination.group.streams.member import StreamsMember
from barnabas_coordination.group.streams.messages import StreamsSettings, StreamsSurroundings
from barnabas_coordination.group.streams.soft_state import NO_OFFSETS
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
    led_targets.on_slice(group, key, out, now_ms=around.now_ms)
    return out
