"""The range assignor: of each topic, each subscriber in turn gets a run of partitions. Topics with equally many partitions and the same
subscribers are divided alike.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: the runs of a topic ascend in the order of the members, and differ by one partition at most.
Read next:  subscribers.py.
"""

from __future__ import annotations

from collections import defaultdict

from barnabas_coordination.group.consumer.assignor.subscribers import (
    WORK_BEFORE_GIVING_WAY,
    Assigning,
    Subscriber,
    Subscribers,
)
from barnabas_wire.kafka.ids import Uuid

NAME = "range"


def assign_ranges(group: Subscribers) -> Assigning:
    """Static members come first, by their instance ids: the others' coming and going moves theirs least."""
    subscribers: dict[Uuid, list[str]] = defaultdict(list)
    for member in sorted(group.members, key=_rank):
        for topic_id in member.topics:
            subscribers[topic_id].append(member.member_id)
    targets: dict[str, dict[Uuid, tuple[int, ...]]] = {member.member_id: {} for member in group.members}
    work = 0
    for topic_id in sorted(subscribers):
        members = subscribers[topic_id]
        least, extra = divmod(group.partition_counts[topic_id], len(members))
        start = 0
        for index, member_id in enumerate(members):
            end = start + least + (index < extra)
            if end > start:
                targets[member_id][topic_id] = tuple(range(start, end))
            start = end
        work += start + len(members)
        if work >= WORK_BEFORE_GIVING_WAY:
            work = 0
            yield
    return targets


def _rank(member: Subscriber) -> tuple[bool, str]:
    is_dynamic = member.instance_id is None
    return is_dynamic, member.member_id if member.instance_id is None else member.instance_id
