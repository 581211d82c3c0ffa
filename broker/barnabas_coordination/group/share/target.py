"""The targets of a share group: whom the assignor is to give what.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: what has no share state is not assigned.
Read next:  assignor.py for the making, ../led_targets.py for large groups; heartbeat.py, which finds that they are due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas_coordination.group.consumer.assignor.subscribers import Subscriber
from barnabas_coordination.group.led_targets import TargetJob
from barnabas_coordination.group.share.assignor import assign
from barnabas_coordination.group.share.group import ShareGroup
from barnabas_coordination.group.share.member import ShareMember
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.kafka.ids import Uuid

SLICED_FROM: Final = 4_000
"""Partitions and members of a group whose targets are made in slices: fewer take 5 ms at most."""


def job_of(
    group: ShareGroup,
    member: ShareMember,
    epoch: int,
    may_have: Mapping[Uuid, Sequence[int]],
    topics: TopicsImage,
) -> TargetJob:
    """The making of targets for the group, with `member` as it is about to be; `may_have`: what may be assigned."""
    members = {**group.members, member.member_id: member}
    known: dict[tuple[str, ...], frozenset[Uuid]] = {}
    subscribers = []
    for each in members.values():
        names = each.metadata.topic_names
        if names not in known:
            known[names] = topic_ids(names, topics)
        subscribers.append(
            Subscriber(member_id=each.member_id, topics=known[names], target=group.target(each.member_id))
        )
    return TargetJob(epoch, frozenset(members), assign(subscribers, may_have))


def topic_ids(names: Sequence[str], topics: TopicsImage) -> frozenset[Uuid]:
    """Those of them that exist."""
    return frozenset(topic.id for topic in map(topics.get, names) if topic is not None)


def is_large(group: ShareGroup, may_have: Mapping[Uuid, Sequence[int]]) -> bool:
    """Whether its targets are made in slices."""
    return sum(map(len, may_have.values())) + len(group.members) > SLICED_FROM
