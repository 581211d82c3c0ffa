"""Placement of new replicas: pure and seeded."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_quorum.controller.placement import PlaceableBroker, place_replicas
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId


def brokers(*racks: str | None, inactive: tuple[int, ...] = ()) -> list[PlaceableBroker]:
    return [PlaceableBroker(BrokerId(i), rack, i not in inactive) for i, rack in enumerate(racks)]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[PlaceableBroker], int, int, int]:
    count = draw(st.integers(1, 9))
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=count, max_size=count))
    active = draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))
    made = [PlaceableBroker(BrokerId(i), rack, on) for i, (rack, on) in enumerate(zip(racks, active, strict=True))]
    return made, draw(st.integers(1, 20)), draw(st.integers(1, count)), draw(st.integers(0, 99))


@given(clusters())
@settings(max_examples=200, deadline=None)
def test_no_broker_twice_and_an_active_leader_first(case: tuple[list[PlaceableBroker], int, int, int]) -> None:
    cluster, partitions, factor, seed = case
    placed = place_replicas(cluster, partition_count=partitions, replication_factor=factor, random=Random(seed))
    active = {broker.id for broker in cluster if broker.is_active}
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in active


@given(clusters())
@settings(max_examples=200, deadline=None)
def test_replicas_use_as_many_racks_as_they_can(case: tuple[list[PlaceableBroker], int, int, int]) -> None:
    cluster, partitions, factor, seed = case
    rack_of = {broker.id: broker.rack for broker in cluster}
    for replicas in place_replicas(cluster, partition_count=partitions, replication_factor=factor, random=Random(seed)):
        assert len({rack_of[replica] for replica in replicas}) == min(factor, len(set(rack_of.values())))


@st.composite
def housed(draw: st.DrawFn) -> tuple[list[PlaceableBroker], int, int]:
    """Brokers on hosts, each host in one rack; a broker without a host is one of its own."""
    hosts = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5))
    homes = draw(st.lists(st.integers(-1, len(hosts) - 1), min_size=1, max_size=12))
    made = [
        PlaceableBroker(
            BrokerId(i),
            draw(st.sampled_from("abc")) if home < 0 else hosts[home],
            True,
            f"h{home}" if home >= 0 else None,
        )
        for i, home in enumerate(homes)
    ]
    return made, draw(st.integers(1, len(made))), draw(st.integers(0, 99))


@given(housed())
@settings(max_examples=300, deadline=None)
def test_replicas_share_a_host_only_where_no_other_is_left_and_racks_come_first(
    case: tuple[list[PlaceableBroker], int, int],
) -> None:
    cluster, factor, seed = case
    by_id = {broker.id: broker for broker in cluster}
    racks, hosts = {broker.rack for broker in cluster}, {broker.lost_with for broker in cluster}
    for replicas in place_replicas(cluster, partition_count=12, replication_factor=factor, random=Random(seed)):
        assert len({by_id[replica].rack for replica in replicas}) == min(factor, len(racks))
        assert len({by_id[replica].lost_with for replica in replicas}) == min(factor, len(hosts))


@given(clusters())
@settings(max_examples=50, deadline=None)
def test_hosts_change_nothing_where_no_broker_names_one_that_others_name(
    case: tuple[list[PlaceableBroker], int, int, int],
) -> None:
    cluster, partitions, factor, seed = case
    named = [broker._replace(host=f"h{broker.id}") for broker in cluster]
    one, other = (
        place_replicas(each, partition_count=partitions, replication_factor=factor, random=Random(seed))
        for each in (cluster, named)
    )
    assert one == other


@given(clusters())
@settings(max_examples=100, deadline=None)
def test_active_brokers_lead_equally_often(case: tuple[list[PlaceableBroker], int, int, int]) -> None:
    cluster, partitions, factor, seed = case
    placed = place_replicas(cluster, partition_count=partitions, replication_factor=factor, random=Random(seed))
    led = Counter(replicas[0] for replicas in placed)
    counts = [led[broker.id] for broker in cluster if broker.is_active]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_replicas_are_spread_evenly_where_racks_are_even(seed: int) -> None:
    cluster = brokers("a", "a", "b", "b", "c", "c")
    placed = place_replicas(cluster, partition_count=60, replication_factor=3, random=Random(seed))
    held = Counter(replica for replicas in placed for replica in replicas)
    assert max(held.values()) - min(held.values()) <= 2


def test_inactive_brokers_hold_replicas_only_where_active_ones_run_out() -> None:
    cluster = brokers(None, None, None, None, inactive=(3,))
    assert all(3 not in r for r in place_replicas(cluster, partition_count=20, replication_factor=3, random=Random(1)))
    assert all(3 in r for r in place_replicas(cluster, partition_count=20, replication_factor=4, random=Random(1)))


def test_the_followers_of_one_leader_are_not_always_the_same() -> None:
    placed = place_replicas(brokers(*[None] * 6), partition_count=120, replication_factor=3, random=Random(1))
    assert len({frozenset(replicas[1:]) for replicas in placed if replicas[0] == 0}) > 3


def test_one_seed_gives_one_placement_whatever_the_order_of_the_brokers() -> None:
    cluster = brokers("a", "b", "a", "b", None)
    first, second = (
        place_replicas(order, partition_count=10, replication_factor=3, random=Random(7))
        for order in (cluster, list(reversed(cluster)))
    )
    assert first == second
    assert first != place_replicas(cluster, partition_count=10, replication_factor=3, random=Random(8))


@pytest.mark.parametrize("cluster", [[], brokers(None, None), brokers(None, None, None, inactive=(0, 1, 2))])
def test_too_few_brokers_are_refused_with_the_fix(cluster: list[PlaceableBroker]) -> None:
    with pytest.raises(KafkaError, match=r"start more brokers|wait for one") as caught:
        place_replicas(cluster, partition_count=1, replication_factor=3, random=Random(1))
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
