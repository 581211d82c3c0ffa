"""A Streams group as people and admin clients see it.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a topology is shown as it comes to by the topics of now.
Read next:  messages.py.
"""

from __future__ import annotations

from contextlib import suppress

from barnabas_coordination.group.streams.errors import InvalidTopology
from barnabas_coordination.group.streams.group import StreamsGroup
from barnabas_coordination.group.streams.internal_topics import ConfiguredTopology
from barnabas_coordination.group.streams.messages import StreamsGroupDescription, StreamsMemberDescription
from barnabas_coordination.group.streams.soft_state import NO_OFFSETS
from barnabas_coordination.group.streams.tasks import Tasks
from barnabas_quorum.image.topics import TopicsImage


def describe(group: StreamsGroup, assignor: str, topics: TopicsImage) -> StreamsGroupDescription:
    """The group as it is now; `assignor`: the one that makes its targets."""
    configured = ConfiguredTopology()
    if group.topology is not None:
        with suppress(InvalidTopology):
            configured = group.soft.look_at(group.topology, topics)
    return StreamsGroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=assignor,
        topology=group.topology,
        configured=configured,
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
