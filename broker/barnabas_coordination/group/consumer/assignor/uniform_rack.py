"""The rack-aware uniform assignor: as uniform, and of the partitions as many as possible go to a member in whose rack a replica is.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: each member has as many partitions as uniform gives it, and where no rack is known, or all are near, the same ones; a
            partition goes elsewhere only in an exchange after which more are near; no exchange is left that would bring more near,
            unless members subscribe in more than KINDS_MAX ways.
Read next:  uniform.py, which begins; KIP-392 for what nearness is good for, KIP-881 for what Kafka's clients had of it.

Members of one rack and subscription are alike here, and so are partitions with replicas in the same racks that the same members may
have. An exchange is a ring: a partition of each kind of member on it goes to the next kind. A ring after which more partitions are near
is one of negative cost, found by Bellman and Ford's search; while there is none, as many as can be are near (Klein 1967).

Not obvious: of partitions that are alike those go first that their member has not had before, so that an exchange moves nothing twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from typing import Final, NamedTuple

from barnabas_coordination.group.consumer.assignor.subscribers import (
    WORK_BEFORE_GIVING_WAY,
    Assigning,
    Subscribers,
    Targets,
    to_partitions,
)
from barnabas_coordination.group.consumer.assignor.uniform import assign_uniformly
from barnabas_wire.kafka.ids import Uuid

NAME = "uniform-rack"
KINDS_MAX: Final = 16
"""Kinds of members, by rack and subscription, between which exchanges are looked for: the search takes their number cubed."""


class _Likeness(NamedTuple):
    """What partitions have in common that are alike: where their replicas are, and the kinds of members that may have them."""

    racks: frozenset[str]
    takers: frozenset[int]


class _Place(NamedTuple):
    """A partition and who has it. Places sort so that the last is the one to give away first."""

    is_new: bool
    topic_id: Uuid
    partition: int
    member_id: str


class _Edge(NamedTuple):
    """The cheapest way to take a partition from one kind of member to another; the cost is how many fewer are near."""

    cost: int
    is_kept: bool
    likeness: int


_Stock = list[dict[int, list[_Place]]]
"""Kind of member -> likeness -> places."""


def assign_uniformly_by_rack(group: Subscribers) -> Assigning:
    """See above."""
    targets: Targets = yield from assign_uniformly(group)
    kinds = sorted({(member.rack_id or "", tuple(sorted(member.topics))) for member in group.members})
    racks = [rack for rack, _ in kinds]
    if len(set(racks)) < 2 or len(kinds) > KINDS_MAX or not group.partition_racks:
        return targets
    kind_of = {
        member.member_id: kinds.index((member.rack_id or "", tuple(sorted(member.topics)))) for member in group.members
    }
    likenesses, stock = yield from _take_stock(group, targets, kinds, kind_of)
    moved = False
    while (ring := _cheaper_ring(racks, likenesses, stock)) is not None:
        moved = True
        _exchange(ring, stock)
        yield
    if not moved:
        return targets
    given: dict[str, dict[Uuid, list[int]]] = {member.member_id: defaultdict(list) for member in group.members}
    for of_kind in stock:
        for places in of_kind.values():
            for place in places:
                given[place.member_id][place.topic_id].append(place.partition)
    return {member_id: to_partitions(of_member) for member_id, of_member in given.items()}


def _take_stock(
    group: Subscribers, targets: Targets, kinds: list[tuple[str, tuple[Uuid, ...]]], kind_of: dict[str, int]
) -> Generator[None, None, tuple[list[_Likeness], _Stock]]:
    """Every partition where uniform has put it."""
    takers: dict[Uuid, set[int]] = defaultdict(set)
    for kind, (_, topics) in enumerate(kinds):
        for topic_id in topics:
            takers[topic_id].add(kind)
    frozen = {topic_id: frozenset(of_topic) for topic_id, of_topic in takers.items()}
    likenesses: list[_Likeness] = []
    numbers: dict[frozenset[int], dict[frozenset[str], int]] = defaultdict(dict)
    stock: _Stock = [{} for _ in kinds]
    work = 0
    for member in sorted(group.members, key=lambda member: member.member_id):
        of_kind = stock[kind_of[member.member_id]]
        for topic_id, partitions in targets[member.member_id].items():
            former = frozenset(member.target.get(topic_id, ()))
            racks_of = group.partition_racks.get(topic_id, ())
            of_takers = numbers[frozen[topic_id]]
            for partition in partitions:
                racks = racks_of[partition] if partition < len(racks_of) else frozenset()
                number = of_takers.get(racks, -1)
                if number < 0:
                    number = of_takers[racks] = len(likenesses)
                    likenesses.append(_Likeness(racks, frozen[topic_id]))
                place = _Place(partition not in former, topic_id, partition, member.member_id)
                of_kind.setdefault(number, []).append(place)
            work += len(partitions)
        if work >= WORK_BEFORE_GIVING_WAY:
            work = 0
            yield
    for of_kind in stock:
        for places in of_kind.values():
            places.sort()
    return likenesses, stock


def _cheaper_ring(racks: list[str], likenesses: list[_Likeness], stock: _Stock) -> list[tuple[int, int]] | None:
    """(kind of member, likeness of what it gives to the next) around a ring of negative cost; None when there is none."""
    edges = [
        [_edge(racks, likenesses, of_kind, giver, taker) for taker in range(len(stock))]
        for giver, of_kind in enumerate(stock)
    ]
    costs = [0] * len(stock)
    came_from = [-1] * len(stock)
    last = -1
    for _ in stock:
        last = -1
        for giver, row in enumerate(edges):
            for taker, edge in enumerate(row):
                if edge is not None and costs[giver] + edge.cost < costs[taker]:
                    costs[taker] = costs[giver] + edge.cost
                    came_from[taker], last = giver, taker
        if last < 0:
            return None
    for _ in stock:  # back onto the ring, from wherever the search came to
        last = came_from[last]
    ring: list[tuple[int, int]] = []
    taker = last
    while not ring or taker != last:
        giver = came_from[taker]
        edge = edges[giver][taker]
        assert edge is not None, "the search came along it"
        ring.append((giver, edge.likeness))
        taker = giver
    return ring[::-1]


def _edge(
    racks: list[str], likenesses: list[_Likeness], of_kind: dict[int, list[_Place]], giver: int, taker: int
) -> _Edge | None:
    best: _Edge | None = None
    if giver == taker:
        return None
    for number, places in of_kind.items():
        likeness = likenesses[number]
        if places and taker in likeness.takers:
            cost = (racks[giver] in likeness.racks) - (racks[taker] in likeness.racks)
            edge = _Edge(cost, not places[-1].is_new, number)
            if best is None or edge < best:
                best = edge
    return best


def _exchange(ring: list[tuple[int, int]], stock: _Stock) -> None:
    """Along the ring, as often as there are partitions for it, or as one turn has time for."""
    times = min(len(stock[kind][number]) for kind, number in ring)
    for _ in range(min(times, WORK_BEFORE_GIVING_WAY // len(ring))):
        gone = [stock[kind][number].pop() for kind, number in ring]
        for index, (_, number) in enumerate(ring):
            after = (index + 1) % len(ring)
            place = gone[index]._replace(is_new=True, member_id=gone[after].member_id)
            stock[ring[after][0]].setdefault(number, []).append(place)
