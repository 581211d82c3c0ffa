"""The targets of a group: when they are due, how they are made, and the records that say so.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: targets are of the epoch that the group had when their making began, and count only if the group is still in it.
Read next:  assignor/ for the making; heartbeat.py, which finds that they are due; slices.py for large groups.

An interval holds the next targets back (KIP-1263), so that many who come at once cost one assignment. A group of up to
SLICED_FROM partitions gets its targets in the heartbeat that finds them due. In a larger one the work is done in slices
while the members keep what they have, and begins again where the group changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas_coordination.group.consumer.assignor import range as range_assignor
from barnabas_coordination.group.consumer.assignor import uniform, uniform_rack
from barnabas_coordination.group.consumer.assignor.range import assign_ranges
from barnabas_coordination.group.consumer.assignor.subscribers import (
    Assignor,
    Subscriber,
    Subscribers,
)
from barnabas_coordination.group.consumer.assignor.uniform import assign_uniformly
from barnabas_coordination.group.consumer.assignor.uniform_rack import assign_uniformly_by_rack
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.member import ConsumerMember
from barnabas_coordination.group.consumer.messages import Surroundings
from barnabas_coordination.group.consumer.subscription import member_topics
from barnabas_wire.kafka.ids import Uuid

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    uniform.NAME: assign_uniformly,
    range_assignor.NAME: assign_ranges,
    uniform_rack.NAME: assign_uniformly_by_rack,
}
"""The names that members ask for -> assignors."""
RACK_AWARE: Final = frozenset((uniform_rack.NAME,))
SLICED_FROM: Final = 4_000
"""Partitions and members of a group whose targets are made in slices: fewer take 5 ms at most."""


def subscribers_of(
    group: ConsumerGroup, member: ConsumerMember | None, assignor: str, around: Surroundings
) -> Subscribers:
    """The group as that assignor sees it, with `member` as it is about to be."""
    topics = around.topics
    members = dict(group.members)
    if member is not None:
        members[member.member_id] = member
    known: dict[tuple[tuple[str, ...], str], frozenset[Uuid]] = {}
    found = []
    for each in members.values():
        key = (each.metadata.topic_names, each.regex)
        if key not in known:
            known[key] = member_topics(each, group.regexes, topics)
        found.append(
            Subscriber(
                member_id=each.member_id,
                instance_id=each.metadata.instance_id,
                rack_id=each.metadata.rack_id,
                topics=known[key],
                target=group.target(each.member_id),
            )
        )
    counts: dict[Uuid, int] = {}
    for topic_id in frozenset().union(*known.values()):
        topic = topics.get_by_id(topic_id)
        assert topic is not None, "it was found by its name"
        counts[topic_id] = len(topic.partitions)
    racks = {}
    if assignor in RACK_AWARE and any(each.rack_id for each in found):
        racks = _partition_racks(counts, around)
    return Subscribers(members=tuple(found), partition_counts=counts, partition_racks=racks)


def _partition_racks(topic_ids: Iterable[Uuid], around: Surroundings) -> dict[Uuid, list[frozenset[str]]]:
    """The racks of the replicas of each partition; empty where no broker says its rack."""
    rack_of = {broker.id: broker.rack for broker in around.brokers.values() if broker.rack}
    racks: dict[Uuid, list[frozenset[str]]] = {}
    if not rack_of:
        return racks
    known: dict[tuple[int, ...], frozenset[str]] = {}
    for topic_id in topic_ids:
        topic = around.topics.get_by_id(topic_id)
        assert topic is not None, "it was found by its name"
        of_topic = racks[topic_id] = []
        for index in range(len(topic.partitions)):
            replicas = topic.partitions[index].replicas
            if replicas not in known:
                known[replicas] = frozenset(rack_of[replica] for replica in replicas if replica in rack_of)
            of_topic.append(known[replicas])
    return racks


def is_large(subscribers: Subscribers) -> bool:
    """Whether its targets are made in slices."""
    return subscribers.partition_count + len(subscribers.members) > SLICED_FROM


def assignor_name(group: ConsumerGroup, default: str, member: ConsumerMember | None = None) -> str:
    """The assignor that most members ask for, with `member` as it is about to be; the first by name among equals."""
    votes = group.assignor_votes.copy()
    if member is not None:
        before = group.members.get(member.member_id)
        if before is not None and before.metadata.server_assignor:
            votes[before.metadata.server_assignor] -= 1
        if member.metadata.server_assignor:
            votes[member.metadata.server_assignor] += 1
    wanted = [name for name, count in votes.items() if count > 0 and name in ASSIGNORS]
    return min(wanted, key=lambda name: (-votes[name], name)) if wanted else default
