"""A Streams group as people and admin clients see it.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a topology that no member of now has held against the topics is held against them for the description alone.
Read next:  messages.py.
"""

from __future__ import annotations

from contextlib import suppress

from barnabas_coordination.group.streams.errors import InvalidTopology
from barnabas_coordination.group.streams.group import StreamsGroup
from barnabas_coordination.group.streams.internal_topics import ConfiguredTopology, configure
from barnabas_coordination.group.streams.messages import StreamsGroupDescription, StreamsMemberDescription
from barnabas_coordination.group.streams.soft_state import NO_OFFSETS
from barnabas_coordination.group.streams.tasks import Tasks
from barnabas_quorum.image.topics import TopicsImage


def describe(group: StreamsGroup, assignor: str, topics: TopicsImage) -> StreamsGroupDescription:
    """The group as it is now; `assignor`: the one that makes its targets."""
    configured = group.soft.configured
    if configured is None and group.topology is not None:
        with suppress(InvalidTopology):
            configured = configure(group.topology, topics)
    return StreamsGroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=assignor,
        topology=group.topology,
        configured=configured or ConfiguredTopology(),
        members=tuple(
            StreamsMemberDescription(
                member_id=name,
                epoch=member.epoch,
                metadata=member.metadata,
                offsets=group.soft.offsets.get(name, NO_OFFSETS),
                assignment=Tasks(
                    *(had | gone for had, gone in zip(member.assigned.tasks, member.pending.tasks, strict=True))
                ),
                target=group.target(name),
            )
            for name, member in sorted(group.members.items())
        ),
    )
