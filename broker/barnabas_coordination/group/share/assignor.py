"""The simple assignor: as many members for each partition as it takes to give every member something (KIP-932).

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: every partition has a member; no member has one twice; of the members of a topic none has two partitions of it more than
            another, unless fewer would leave one without; what a member had it keeps as far as that allows.
Read next:  target.py, which calls it.

Of each set of topics that members subscribe to alike, with N members and P partitions, each partition is to have ceil(N / P) members at
most, and member i of N ceil(x (i + 1)) - ceil(x i) partitions, where x = ceil(N / P) P / N. Where members subscribe differently, each
topic is shared among those who subscribe to it. As Kafka's SimpleAssignor, whose ties go by the order of a hash map.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Final

from barnabas_coordination.group.consumer.assignor.subscribers import (
    WORK_BEFORE_GIVING_WAY,
    Assigning,
    Subscriber,
    to_partitions,
)
from barnabas_wire.kafka.ids import Uuid

NAME: Final = "simple"

Pair = tuple[Uuid, int]


def assign(members: Sequence[Subscriber], assignable: Mapping[Uuid, Sequence[int]]) -> Assigning:
    """Share the partitions out; gives way now and then.

    Args:
        assignable: topic id -> the partitions that may be assigned, ascending.
    """
    found: dict[str, set[Pair]] = {member.member_id: set() for member in members}
    in_order = sorted(members, key=lambda member: member.member_id)
    if len({member.topics for member in members}) <= 1:
        parts = [(frozenset(assignable) & in_order[0].topics if in_order else frozenset(), in_order)]
    else:
        parts = [
            (frozenset({topic_id}), [member for member in in_order if topic_id in member.topics])
            for topic_id in sorted(assignable)
        ]
    for topics, sharers in parts:
        pairs = [(topic_id, partition) for topic_id in sorted(topics) for partition in assignable[topic_id]]
        if pairs and sharers:
            yield from _share(pairs, sharers, found)
    return {member_id: to_partitions(_by_topic(pairs)) for member_id, pairs in found.items()}


def _share(
    pairs: Sequence[Pair], sharers: Sequence[Subscriber], found: dict[str, set[Pair]]
) -> Generator[None, None, None]:
    """Share partitions among members that all subscribe to their topics."""
    sharing = -(-len(sharers) // len(pairs))
    total = sharing * len(pairs)
    room = {
        member.member_id: -(-total * (place + 1) // len(sharers)) + (-total * place // len(sharers))
        for place, member in enumerate(sharers)
    }
    sharers_of: dict[Pair, set[str]] = {pair: set() for pair in pairs}
    work = 0
    for member in sharers:
        for topic_id, partitions in sorted(member.target.items()):
            for partition in partitions:
                holders = sharers_of.get((topic_id, partition))
                if holders is not None and room[member.member_id] > 0 and len(holders) < sharing:
                    holders.add(member.member_id)
                    room[member.member_id] -= 1
                work += 1
                if work % WORK_BEFORE_GIVING_WAY == 0:
                    yield
    unfilled = deque(member.member_id for member in sharers if room[member.member_id] > 0)
    # A partition with few sharers comes first, so that none is left without.
    for pair in sorted(pairs, key=lambda each: len(sharers_of[each])):
        holders, passed = sharers_of[pair], []
        while unfilled and len(holders) < sharing:
            member_id = unfilled.popleft()
            if member_id in holders:
                passed.append(member_id)
                continue
            holders.add(member_id)
            room[member_id] -= 1
            if room[member_id] > 0:
                unfilled.append(member_id)
            work += 1
            if work % WORK_BEFORE_GIVING_WAY == 0:
                yield
        unfilled.extendleft(reversed(passed))
    for pair, holders in sharers_of.items():
        for member_id in holders:
            found[member_id].add(pair)


def _by_topic(pairs: set[Pair]) -> dict[Uuid, list[int]]:
    found: dict[Uuid, list[int]] = {}
    for topic_id, partition in pairs:
        found.setdefault(topic_id, []).append(partition)
    return found
