"""Kafka-Eagle's figures, by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas_admin.console.spread import spread_of


def test_an_even_topic_has_no_skew() -> None:
    found = spread_of([(1, (1, 2, 3)), (2, (2, 3, 1)), (3, (3, 1, 2))], [1, 2, 3])
    assert (found.spread, found.skew, found.leader_skew) == (100, 0, 0)
    assert found.replicas == {1: 3, 2: 3, 3: 3}
    assert found.leaders == {1: 1, 2: 1, 3: 1}


def test_a_broker_with_more_than_the_rounded_up_mean_is_skewed() -> None:
    # 4 partitions on brokers 1 and 2 of four: 2 of 4 have replicas; the mean of 4 replicas is 1, both have 2
    found = spread_of([(1, (1,)), (1, (1,)), (2, (2,)), (2, (2,))], [1, 2, 3, 4])
    assert (found.spread, found.skew, found.leader_skew) == (50, 50, 50)


def test_a_share_that_does_not_divide_is_rounded_up() -> None:
    # 4 partitions on 3 brokers: a share of 2, so nobody has more
    found = spread_of([(1, (1,)), (1, (1,)), (2, (2,)), (3, (3,))], [1, 2, 3])
    assert (found.spread, found.skew, found.leader_skew) == (100, 0, 0)


def test_the_share_of_leaders_counts_partitions_without_a_leader() -> None:
    # one of two partitions is led, on one of two brokers: the share is 1, which broker 1 does not pass
    found = spread_of([(1, (1, 2)), (-1, (2, 1))], [1, 2])
    assert found.leader_skew == 0
    assert found.leaders == {1: 1, 2: 0}


def test_nothing_is_zero() -> None:
    assert spread_of([], [1, 2]).spread == 0
    assert spread_of([(1, (1,))], []).skew == 0


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True), max_size=30), st.integers(1, 5))
def test_figures_are_per_cents_and_never_all_brokers_are_skewed(replicas: list[list[int]], brokers: int) -> None:
    found = spread_of([(each[0], each) for each in replicas], range(1, brokers + 1))
    assert 0 <= found.spread <= 100
    if all(each <= brokers for assigned in replicas for each in assigned):
        assert 0 <= found.skew < 100  # somebody has at most the mean
        assert 0 <= found.leader_skew < 100
