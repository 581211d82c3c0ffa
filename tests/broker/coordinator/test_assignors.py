"""Laws of the assignors, whatever group they are given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
from barnabas_wire.kafka.ids import Uuid

ASSIGNORS = (assign_uniformly, assign_ranges)


def topic(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def members_of(
    subscriptions: Mapping[str, frozenset[Uuid]], former: Targets, instances: Mapping[str, str] | None = None
) -> tuple[Subscriber, ...]:
    return tuple(
        Subscriber(
            member_id=member_id,
            instance_id=(instances or {}).get(member_id),
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
