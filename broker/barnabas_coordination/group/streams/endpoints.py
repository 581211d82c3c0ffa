"""Where what is to be read: the partitions of each member that has an endpoint (interactive queries).

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: only partitions that exist are named; members in the order of their ids.
Read next:  heartbeat.py, which tells members when this has changed.

One entry for each member: the threads of an instance have one endpoint and an entry each, as with Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas_coordination.group.streams.member import StreamsMember
from barnabas_coordination.group.streams.messages import EndpointPartitions
from barnabas_coordination.group.streams.tasks import Task
from barnabas_coordination.group.streams.topology import Topology
from barnabas_quorum.image.topics import TopicsImage


def endpoints_of(
    members: Mapping[str, StreamsMember], topology: Topology, topics: TopicsImage
) -> tuple[EndpointPartitions, ...]:
    """The partitions of every member that has an endpoint."""
    found = []
    for _, member in sorted(members.items()):
        if member.metadata.endpoint is not None:
            held = member.assigned
            found.append(
                EndpointPartitions(
                    endpoint=member.metadata.endpoint,
                    active=_partitions(held.active, topology, topics),
                    standby=_partitions(held.standby | held.warmup, topology, topics),
                )
            )
    return tuple(found)


def _partitions(tasks: Iterable[Task], topology: Topology, topics: TopicsImage) -> dict[str, tuple[int, ...]]:
    inputs = {part.subtopology_id: part.inputs for part in topology.subtopologies}
    found: dict[str, set[int]] = {}
    for task in tasks:
        for name in inputs.get(task.subtopology, ()):
            topic = topics.get(name)
            if topic is not None and task.partition in topic.partitions:
                found.setdefault(name, set()).add(task.partition)
    return {name: tuple(sorted(partitions)) for name, partitions in sorted(found.items())}
