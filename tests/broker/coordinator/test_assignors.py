"""Laws of the assignors, whatever group they are given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_coordination.group.consumer.assignor.range import assign_ranges
from barnabas_coordination.group.consumer.assignor.subscribers import (
    Assignor,
    Subscriber,
    Subscribers,
    Targets,
    run,
)
from barnabas_coordination.group.consumer.assignor.uniform import assign_uniformly
from barnabas_coordination.group.consumer.assignor.uniform_rack import KINDS_MAX, assign_uniformly_by_rack
from barnabas_wire.kafka.ids import Uuid

ASSIGNORS = (assign_uniformly, assign_ranges, assign_uniformly_by_rack)
RACKS = ("r1", "r2", "r3")


def topic(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def members_of(
    subscriptions: Mapping[str, frozenset[Uuid]],
    former: Targets,
    instances: Mapping[str, str] | None = None,
    racks: Mapping[str, str] | None = None,
) -> tuple[Subscriber, ...]:
    return tuple(
        Subscriber(
            member_id=member_id,
            instance_id=(instances or {}).get(member_id),
            rack_id=(racks or {}).get(member_id),
            topics=topics,
            target=former.get(member_id, {}),
        )
        for member_id, topics in subscriptions.items()
    )


def held(targets: Targets) -> dict[tuple[Uuid, int], str]:
    """Who has what; fails where two have the same."""
    found: dict[tuple[Uuid, int], str] = {}
    for member_id, partitions in targets.items():
        for topic_id, numbers in partitions.items():
            assert numbers == tuple(sorted(numbers))
            for number in numbers:
                assert (topic_id, number) not in found, "two have it"
                found[topic_id, number] = member_id
    return found


def size(targets: Targets, member_id: str) -> int:
    return sum(map(len, targets[member_id].values()))


@st.composite
def groups(draw: st.DrawFn, *, is_alike: bool = False) -> tuple[dict[str, frozenset[Uuid]], dict[Uuid, int]]:
    counts = draw(st.dictionaries(st.integers(1, 6).map(topic), st.integers(1, 12), min_size=1, max_size=5))
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True))
    subsets = st.frozensets(st.sampled_from(sorted(counts)), max_size=len(counts))
    if is_alike:
        return dict.fromkeys(names, frozenset(counts)), counts
    subscriptions = {name: draw(subsets) for name in names}
    subscribed: frozenset[Uuid] = frozenset().union(*subscriptions.values())
    return subscriptions, {topic_id: count for topic_id, count in counts.items() if topic_id in subscribed}


@pytest.mark.parametrize("assignor", ASSIGNORS)
@settings(max_examples=150)
@given(group=groups(), shuffle=st.randoms(use_true_random=False))
def test_every_partition_goes_once_to_a_subscriber_whatever_the_order(
    assignor: Assignor, group: tuple[dict[str, frozenset[Uuid]], dict[Uuid, int]], shuffle: Random
) -> None:
    subscriptions, counts = group
    members = list(members_of(subscriptions, {}))
    targets = run(assignor(Subscribers(members=members, partition_counts=counts)))
    assert targets.keys() == subscriptions.keys()
    assert held(targets).keys() == {(topic_id, n) for topic_id, count in counts.items() for n in range(count)}
    assert all(targets[name].keys() <= topics for name, topics in subscriptions.items())
    shuffle.shuffle(members)
    assert run(assignor(Subscribers(members=members, partition_counts=counts))) == targets


@settings(max_examples=200)
@given(group=groups(is_alike=True), data=st.data())
def test_uniform_balances_within_one_and_moves_nothing_without_need(
    group: tuple[dict[str, frozenset[Uuid]], dict[Uuid, int]], data: st.DataObject
) -> None:
    subscriptions, counts = group
    former: Targets = {}
    for _ in range(4):
        targets = run(assign_uniformly(Subscribers(members=members_of(subscriptions, former), partition_counts=counts)))
        sizes = [size(targets, name) for name in subscriptions]
        assert max(sizes) - min(sizes) <= 1
        least = sum(counts.values()) // len(subscriptions)
        for (topic_id, number), owner in held(targets).items():
            before = held(former).get((topic_id, number))
            if before in subscriptions and before != owner:
                assert size(former, before) > least, f"{before} had no more than its share and lost one"
        again = run(assign_uniformly(Subscribers(members=members_of(subscriptions, targets), partition_counts=counts)))
        assert again == targets
        former = targets
        if data.draw(st.booleans()):
            subscriptions[data.draw(st.sampled_from("ijklm"))] = frozenset(counts)
        elif len(subscriptions) > 1:
            del subscriptions[data.draw(st.sampled_from(sorted(subscriptions)))]


def test_uniform_moves_only_into_who_joins() -> None:
    counts = {topic(1): 10, topic(2): 7}
    subscriptions = dict.fromkeys("abc", frozenset(counts))
    first = run(assign_uniformly(Subscribers(members=members_of(subscriptions, {}), partition_counts=counts)))
    subscriptions["d"] = frozenset(counts)
    second = run(assign_uniformly(Subscribers(members=members_of(subscriptions, first), partition_counts=counts)))
    moved = {key: owner for key, owner in held(second).items() if held(first)[key] != owner}
    assert set(moved.values()) == {"d"}
    assert len(moved) == size(second, "d") == 4


@settings(max_examples=200)
@given(group=groups())
def test_uniform_leaves_no_move_that_would_help(group: tuple[dict[str, frozenset[Uuid]], dict[Uuid, int]]) -> None:
    subscriptions, counts = group
    targets = run(assign_uniformly(Subscribers(members=members_of(subscriptions, {}), partition_counts=counts)))
    load = Counter({name: size(targets, name) for name in subscriptions})
    for (topic_id, _), owner in held(targets).items():
        for name, topics in subscriptions.items():
            if topic_id in topics and len(frozenset(subscriptions.values())) > 1:
                assert load[owner] - load[name] <= 1, f"{name} could take one of {owner}'s"


@settings(max_examples=150)
@given(group=groups(), statics=st.frozensets(st.sampled_from("abcdefgh")))
def test_ranges_ascend_in_the_order_of_the_members(
    group: tuple[dict[str, frozenset[Uuid]], dict[Uuid, int]], statics: frozenset[str]
) -> None:
    subscriptions, counts = group
    instances = {name: f"i-{name}" for name in statics}
    members = members_of(subscriptions, {}, instances)
    targets = run(assign_ranges(Subscribers(members=members, partition_counts=counts)))
    order = sorted(subscriptions, key=lambda name: (name not in statics, name))
    for topic_id, count in counts.items():
        ranges = [targets[name].get(topic_id, ()) for name in order if topic_id in subscriptions[name]]
        assert [number for numbers in ranges for number in numbers] == list(range(count))
        assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_ranges_of_topics_with_equally_many_partitions_are_alike() -> None:
    counts = {topic(1): 7, topic(2): 7}
    subscriptions = dict.fromkeys("abc", frozenset(counts))
    targets = run(assign_ranges(Subscribers(members=members_of(subscriptions, {}), partition_counts=counts)))
    assert all(partitions[topic(1)] == partitions[topic(2)] for partitions in targets.values())


def test_topics_that_shrank_or_are_gone_are_dropped() -> None:
    former: Targets = {"a": {topic(1): (0, 5, 9), topic(9): (0,)}}
    members = members_of({"a": frozenset({topic(1)})}, former)
    assert run(assign_uniformly(Subscribers(members=members, partition_counts={topic(1): 3}))) == {
        "a": {topic(1): (0, 1, 2)}
    }


# ---- racks -----------------------------------------------------------------------------------------------------------


@st.composite
def racked_groups(
    draw: st.DrawFn, *, is_alike: bool, partitions_max: int = 12
) -> tuple[Subscribers, Mapping[str, str]]:
    """A group with racks on both sides, some of them unknown, and each member's rack."""
    subscriptions, counts = draw(groups(is_alike=is_alike))
    counts = {topic_id: min(count, partitions_max) for topic_id, count in counts.items()}
    racks = {name: draw(st.sampled_from(RACKS)) for name in subscriptions if draw(st.integers(0, 5))}
    replicas = st.frozensets(st.sampled_from(RACKS), max_size=3)
    where = {topic_id: [draw(replicas) for _ in range(count)] for topic_id, count in counts.items()}
    members = members_of(subscriptions, {}, racks=racks)
    return Subscribers(members=members, partition_counts=counts, partition_racks=where), racks


def near(group: Subscribers, targets: Targets) -> int:
    """How many partitions have a replica in the rack of the member that has them."""
    racks = {member.member_id: member.rack_id for member in group.members}
    return sum(racks[owner] in group.partition_racks[t][n] for (t, n), owner in held(targets).items())


def unevenness(targets: Targets) -> int:
    """The sum of the squares of the members' sizes: least where sizes are even."""
    return sum(size(targets, name) ** 2 for name in targets)


def again(group: Subscribers, targets: Targets) -> Subscribers:
    return replace(group, members=tuple(replace(each, target=targets[each.member_id]) for each in group.members))


@settings(max_examples=150)
@given(group=groups(), former=st.booleans(), side=st.sampled_from(("none", "members", "brokers", "everywhere")))
def test_by_rack_is_uniform_where_racks_are_not_known_or_do_not_matter(
    group: tuple[dict[str, frozenset[Uuid]], dict[Uuid, int]], former: bool, side: str
) -> None:
    subscriptions, counts = group
    racks = {name: RACKS[index % 3] for index, name in enumerate(subscriptions)} if side != "brokers" else {}
    everywhere = {topic_id: [frozenset(RACKS)] * count for topic_id, count in counts.items()}
    members = members_of(subscriptions, {}, racks={} if side == "none" else racks)
    where = everywhere if side in ("brokers", "everywhere") else {}
    asked = Subscribers(members=members, partition_counts=counts, partition_racks=where)
    for _ in range(2 if former else 1):
        targets = run(assign_uniformly_by_rack(asked))
        assert targets == run(assign_uniformly(asked))
        asked = again(asked, targets)


@settings(max_examples=200)
@given(racked=st.booleans().flatmap(lambda is_alike: racked_groups(is_alike=is_alike)), shuffle=st.randoms())
def test_by_rack_keeps_the_balance_of_uniform_and_moves_only_to_be_nearer(
    racked: tuple[Subscribers, Mapping[str, str]], shuffle: Random
) -> None:
    group, _ = racked
    for _ in range(3):
        plain, targets = run(assign_uniformly(group)), run(assign_uniformly_by_rack(group))
        assert held(targets).keys() == held(plain).keys()
        assert all(size(targets, name) == size(plain, name) for name in targets)
        gained = near(group, targets) - near(group, plain)
        others = sum(held(targets)[key] != owner for key, owner in held(plain).items())
        assert gained >= 0 and (gained > 0 or others == 0)
        assert others <= gained * max(2, len(group.members))
        assert all(set(targets[each.member_id]) <= each.topics for each in group.members)
        mixed = list(group.members)
        shuffle.shuffle(mixed)
        assert run(assign_uniformly_by_rack(replace(group, members=mixed))) == targets
        settled = again(group, targets)
        later = run(assign_uniformly_by_rack(settled))
        # uniform balances by single steps, and an exchange may have opened one where members subscribe differently
        assert later == targets or unevenness(later) < unevenness(targets), "what is settled stays, or gets more even"
        if len(group.members) == 1:
            break
        group = replace(settled, members=settled.members[1:])
        subscribed: frozenset[Uuid] = frozenset().union(*(each.topics for each in group.members))
        group = replace(group, partition_counts={t: n for t, n in group.partition_counts.items() if t in subscribed})


@settings(max_examples=60, deadline=None)
@given(racked=racked_groups(is_alike=True, partitions_max=2))
def test_by_rack_brings_as_many_near_as_any_balanced_assignment(racked: tuple[Subscribers, Mapping[str, str]]) -> None:
    group, racks = racked
    found = run(assign_uniformly_by_rack(group))
    places = [frozenset(where) for of_topic in group.partition_racks.values() for where in of_topic][:6]
    if len(places) < sum(group.partition_counts.values()):
        return  # too many to try all
    slots = [racks.get(name) for name in found for _ in range(size(found, name))]
    best = max(sum(rack in place for rack, place in zip(order, places, strict=True)) for order in permutations(slots))
    assert near(group, found) == best


def test_by_rack_exchanges_around_a_ring_of_three() -> None:
    """No two members gain by an exchange of theirs, the three do."""
    racks = dict(zip("abc", RACKS, strict=True))
    former: Targets = {name: {topic(1): (index,)} for index, name in enumerate("abc")}
    where = [frozenset({"r2"}), frozenset({"r3"}), frozenset({"r1"})]
    members = members_of(dict.fromkeys("abc", frozenset({topic(1)})), former, racks=racks)
    group = Subscribers(members=members, partition_counts={topic(1): 3}, partition_racks={topic(1): where})
    assert near(group, run(assign_uniformly(group))) == 0
    assert run(assign_uniformly_by_rack(group)) == {"a": {topic(1): (2,)}, "b": {topic(1): (0,)}, "c": {topic(1): (1,)}}


def test_by_rack_leaves_many_kinds_of_members_as_uniform_has_them() -> None:
    counts = {topic(number): 2 for number in range(KINDS_MAX + 2)}
    subscriptions = {f"m{n}": frozenset({topic(n), topic(n + 1)}) for n in range(KINDS_MAX + 1)}
    racks = {name: RACKS[index % 3] for index, name in enumerate(subscriptions)}
    where = {topic_id: [frozenset({RACKS[index % 3]}) for index in range(2)] for topic_id in counts}
    asked = Subscribers(
        members=members_of(subscriptions, {}, racks=racks), partition_counts=counts, partition_racks=where
    )
    assert run(assign_uniformly_by_rack(asked)) == run(assign_uniformly(asked))
