"""The uniform assignor: every member gets equally many partitions, and keeps what it had as far as that allows.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: where all subscribe to the same topics, counts differ by one at most, and a partition moves only because its member is gone,
            no longer subscribes, or has more than its share. Otherwise no single move of a partition between two subscribers of its
            topic makes a difference of two or more smaller, unless BALANCE_PASSES_MAX ended the search.
Read next:  subscribers.py; range.py for the other one.

Not obvious: the larger shares go to those who had most, so that who has one keeps it. Kafka's goes by the order of a hash map.
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from barnabas_coordination.group.consumer.assignor.subscribers import (
    WORK_BEFORE_GIVING_WAY,
    Assigning,
    Subscriber,
    Subscribers,
    to_partitions,
)
from barnabas_wire.kafka.ids import Uuid

NAME = "uniform"
BALANCE_PASSES_MAX = 16
"""As in Kafka."""


def assign_uniformly(group: Subscribers) -> Assigning:
    """See above."""
    if not group.members:
        return {}
    if group.is_homogeneous:
        return (yield from _share_alike(group))
    return (yield from _share_by_subscription(group))


def _free_partitions(group: Subscribers, kept: dict[str, dict[Uuid, list[int]]]) -> dict[Uuid, list[int]]:
    """The partitions that no member keeps, ascending."""
    flags = {topic_id: bytearray(count) for topic_id, count in group.partition_counts.items()}
    for of_member in kept.values():
        for topic_id, partitions in of_member.items():
            taken = flags[topic_id]
            for partition in partitions:
                taken[partition] = 1
    return {
        topic_id: [partition for partition, is_taken in enumerate(taken) if not is_taken]
        for topic_id, taken in sorted(flags.items())
    }


def _former(group: Subscribers, member: Subscriber) -> dict[Uuid, list[int]]:
    """The part of a member's former target that it still subscribes to, as far as it still exists."""
    counts = group.partition_counts
    return {
        topic_id: [partition for partition in partitions if partition < counts[topic_id]]
        for topic_id, partitions in sorted(member.target.items())
        if topic_id in member.topics
    }


# ---- all subscribe to the same topics --------------------------------------------------------------------------------


def _share_alike(group: Subscribers) -> Assigning:
    kept: dict[str, dict[Uuid, list[int]]] = {}
    size: dict[str, int] = {}
    work = 0
    for member in group.members:
        former = kept[member.member_id] = _former(group, member)
        size[member.member_id] = sum(map(len, former.values()))
        work += size[member.member_id]
        if work >= WORK_BEFORE_GIVING_WAY:
            work = 0
            yield
    subscribed = next(iter(group.members)).topics
    total = sum(group.partition_counts[topic_id] for topic_id in subscribed)
    least, extra = divmod(total, len(group.members))
    by_size = sorted(size, key=lambda member_id: (-size[member_id], member_id))
    quota = {member_id: least + (index < extra) for index, member_id in enumerate(by_size)}
    for member_id, former in kept.items():
        _give_up(former, size[member_id] - quota[member_id])
    yield
    free = (
        (topic_id, partition)
        for topic_id, partitions in _free_partitions(group, kept).items()
        if topic_id in subscribed
        for partition in partitions
    )
    yield
    for member_id in sorted(kept):
        for _ in range(quota[member_id] - min(size[member_id], quota[member_id])):
            topic_id, partition = next(free)
            kept[member_id].setdefault(topic_id, []).append(partition)
            work += 1
        if work >= WORK_BEFORE_GIVING_WAY:
            work = 0
            yield
    return {member_id: to_partitions(given) for member_id, given in kept.items()}


def _give_up(former: dict[Uuid, list[int]], surplus: int) -> None:
    """The last partitions of the last topics go."""
    for topic_id in reversed(former):
        if surplus <= 0:
            return
        partitions = former[topic_id]
        gone = min(surplus, len(partitions))
        del partitions[len(partitions) - gone :]
        surplus -= gone


# ---- each subscribes to its own --------------------------------------------------------------------------------------


def _share_by_subscription(group: Subscribers) -> Assigning:
    members = sorted(group.members, key=lambda member: member.member_id)
    names = [member.member_id for member in members]
    kept = {member.member_id: _former(group, member) for member in members}
    load = [sum(map(len, kept[name].values())) for name in names]
    subscribers: dict[Uuid, list[int]] = defaultdict(list)
    for index, member in enumerate(members):
        for topic_id in member.topics:
            subscribers[topic_id].append(index)
    yield
    counts = group.partition_counts
    order = sorted(
        subscribers,
        key=lambda topic_id: (-counts[topic_id] / len(subscribers[topic_id]), len(subscribers[topic_id]), topic_id),
    )
    free = _free_partitions(group, kept)
    yield
    work = 0
    for topic_id in order:
        heap = [(load[index], index) for index in subscribers[topic_id]]
        heapq.heapify(heap)
        for partition in free[topic_id]:
            _, index = heap[0]
            kept[names[index]].setdefault(topic_id, []).append(partition)
            load[index] += 1
            heapq.heapreplace(heap, (load[index], index))
        work += len(free[topic_id]) + len(heap)
        if work >= WORK_BEFORE_GIVING_WAY:
            work = 0
            yield
    shared = [topic_id for topic_id in order if len(subscribers[topic_id]) > 1]
    for _ in range(BALANCE_PASSES_MAX):
        moved = 0
        for topic_id in shared:
            moved += _balance(topic_id, subscribers[topic_id], names, kept, load)
            work += len(subscribers[topic_id]) * (1 + moved)
            if work >= WORK_BEFORE_GIVING_WAY:
                work = 0
                yield
        if not moved:
            break
    return {member_id: to_partitions(given) for member_id, given in kept.items()}


def _balance(
    topic_id: Uuid, indices: list[int], names: list[str], kept: dict[str, dict[Uuid, list[int]]], load: list[int]
) -> int:
    """Move partitions of the topic from who has most in all to who has least; returns how many."""
    moved = 0
    owners = [index for index in indices if kept[names[index]].get(topic_id)]
    while owners:
        most = max(owners, key=lambda index: (load[index], -index))
        least = min(indices, key=lambda index: (load[index], index))
        if load[most] - load[least] <= 1:
            break
        given = kept[names[most]][topic_id]
        given.sort()
        kept[names[least]].setdefault(topic_id, []).append(given.pop())
        load[most] -= 1
        load[least] += 1
        moved += 1
        owners = [index for index in owners if kept[names[index]].get(topic_id)]
        if least not in owners:
            owners.append(least)
    return moved
