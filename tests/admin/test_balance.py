"""The laws of a balance: what a plan never does, and how few moves it takes; and the progress that is shown of one."""

from __future__ import annotations

from collections import Counter, deque
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_admin.balance import BYTES_TOLERANCE, Placement, copied_bytes, loads_of, plan_balance, plan_departure
from barnabas_admin.errors import AdminError
from barnabas_admin.progress import duration_text, rate_of, time_left


@st.composite
def placements(draw: st.DrawFn, *, brokers: int = 5) -> Placement:
    """Partitions of a few topics, each on one to three of the brokers, as unevenly as it comes."""
    placement = {}
    for topic in range(draw(st.integers(1, 3))):
        factor = draw(st.integers(1, 3))
        for index in range(draw(st.integers(1, 12))):
            order = draw(st.permutations(range(1, brokers + 1)))
            placement[f"t{topic}", index] = tuple(order[:factor])
    return placement


def applied(present: Placement, planned: Placement) -> Placement:
    return {**present, **planned}


def rack_counts(placement: Placement, racks: dict[int, str | None]) -> dict[tuple[str, int], int]:
    return {name: len({racks.get(b) or f"{b}" for b in replicas}) for name, replicas in placement.items()}


Led = dict[int, list[tuple[str, int]]]
no_racks: dict[int, str | None] = dict.fromkeys(range(1, 8))


@given(placements(), st.integers(5, 7))
@settings(max_examples=150, deadline=None)
def test_replicas_become_even_with_the_fewest_moves(present: Placement, brokers: int) -> None:
    racks = {broker: no_racks[broker] for broker in range(1, brokers + 1)}
    planned = plan_balance(present, racks=racks, sizes={})
    after = applied(present, planned)
    held = Counter(broker for replicas in after.values() for broker in replicas)
    counts = [held[broker] for broker in racks]
    assert max(counts) - min(counts) <= 1
    assert all(len(set(after[n])) == len(present[n]) for n in present), (
        "as many replicas as before, on different brokers"
    )
    moved = sum(len(set(after[n]) - set(present[n])) for n in present)
    before = Counter(broker for replicas in present.values() for broker in replicas)
    floor, top = divmod(sum(counts), brokers)[0], ceil(sum(counts) / brokers)
    surplus = sum(max(0, before[b] - top) for b in racks)
    gaps = sum(max(0, floor - before[b]) for b in racks)
    assert moved == max(surplus, gaps), "every move takes from a surplus and fills a gap"
    assert plan_balance(after, racks=racks, sizes={}) == {}, "a plan of a plan is empty"


@given(placements())
@settings(max_examples=100, deadline=None)
def test_leaders_are_as_even_as_the_replicas_allow(present: Placement) -> None:
    racks: dict[int, str | None] = dict.fromkeys(range(1, 6))
    after = applied(present, plan_balance(present, racks=racks, sizes={}))
    most = max(load.leaders for load in loads_of(after, {}).values())
    assert most == least_possible_maximum(after)


def least_possible_maximum(placement: Placement) -> int:
    """By brute thought: the smallest limit under which every partition finds a leader (augmenting paths, one limit at a time)."""
    for limit in range(1, len(placement) + 1):
        led: Led = {}

        def place(name: tuple[str, int], seen: set[int], limit: int = limit, led: Led = led) -> bool:
            for broker in placement[name]:
                if broker in seen:
                    continue
                seen.add(broker)
                mine = led.setdefault(broker, [])
                if len(mine) < limit:
                    mine.append(name)
                    return True
                for other in list(mine):
                    mine.remove(other)
                    if place(other, seen, limit, led):
                        mine.append(name)
                        return True
                    mine.append(other)
            return False

        if all(place(name, set()) for name in placement):
            return limit
    return len(placement)


@given(placements(), st.lists(st.sampled_from(["a", "b", "c"]), min_size=6, max_size=6))
@settings(max_examples=150, deadline=None)
def test_no_partition_loses_a_rack_and_each_has_all_that_it_can(present: Placement, names: list[str]) -> None:
    racks: dict[int, str | None] = dict(enumerate(names, start=1))
    after = applied(present, plan_balance(present, racks=racks, sizes={}))
    before, now = rack_counts(present, racks), rack_counts(after, racks)
    for name, replicas in present.items():
        assert now[name] == min(len(replicas), len(set(names))) >= before[name]
        assert len(set(after[name])) == len(replicas)


@given(
    placements(brokers=7),
    st.lists(st.integers(0, 4), min_size=7, max_size=7),
    st.lists(st.integers(0, 2), min_size=5, max_size=5),
)
@settings(max_examples=150, deadline=None)
def test_replicas_share_a_host_only_where_no_other_is_left_and_racks_come_first(
    present: Placement, host_of: list[int], rack_of: list[int]
) -> None:
    hosts: dict[int, str | None] = {broker: f"h{host}" for broker, host in enumerate(host_of, start=1)}
    racks: dict[int, str | None] = {broker: f"r{rack_of[host]}" for broker, host in enumerate(host_of, start=1)}
    planned = plan_balance(present, racks=racks, hosts=hosts, sizes={})
    after = applied(present, planned)
    for kinds in (racks, hosts):
        for name, count in rack_counts(after, kinds).items():
            assert count == min(len(after[name]), len(set(kinds.values())))
    assert plan_balance(after, racks=racks, hosts=hosts, sizes={}) == {}, "a plan of a plan is empty"


def test_a_broker_that_leaves_puts_no_second_replica_on_a_host() -> None:
    hosts: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "c", 5: None}
    planned = plan_departure({("t", 0): (1, 3)}, leaving=[3], racks=dict.fromkeys(hosts), hosts=hosts, sizes={})
    assert planned in ({("t", 0): (1, 4)}, {("t", 0): (1, 5)})


@given(placements(), st.data())
@settings(max_examples=150, deadline=None)
def test_sizes_become_even_without_spoiling_counts(present: Placement, data: st.DataObject) -> None:
    sizes = {name: data.draw(st.integers(0, 1000)) for name in present}
    racks: dict[int, str | None] = dict.fromkeys(range(1, 7))
    by_count = loads_of(applied(present, plan_balance(present, racks=racks, sizes={})), sizes)
    planned = plan_balance(present, racks=racks, sizes=sizes)
    loads = loads_of(applied(present, planned), sizes)
    counts = [loads[b].replicas if b in loads else 0 for b in racks]
    assert max(counts) - min(counts) <= 1
    fullest = max(load.size_bytes for load in loads.values())
    mean = sum(load.size_bytes for load in loads.values()) / len(racks)
    if fullest > mean * (1 + BYTES_TOLERANCE):
        assert fullest <= max(load.size_bytes for load in by_count.values()) + max(sizes.values())
    assert copied_bytes(present, planned, sizes) == sum(
        sizes[n] * len(set(replicas) - set(present[n])) for n, replicas in planned.items()
    )


@given(placements(), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_a_leaving_broker_holds_nothing_in_the_end(present: Placement, leaving: int) -> None:
    racks: dict[int, str | None] = dict.fromkeys(range(1, 6))
    after = applied(present, plan_balance(present, racks=racks, sizes={}, leaving=[leaving]))
    assert all(leaving not in replicas and len(set(replicas)) == len(present[n]) for n, replicas in after.items())


@given(placements(), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_what_cannot_receive_keeps_what_it_has_and_gets_nothing(present: Placement, fenced: int) -> None:
    racks = {broker: None for broker in range(1, 6) if broker != fenced}
    after = applied(present, plan_balance(present, racks=racks, sizes={}, led_by_nobody=[fenced]))
    for name, replicas in present.items():
        assert (fenced in after[name]) == (fenced in replicas)
        assert after[name][0] != fenced or len(replicas) == 1


def test_big_and_small_partitions_change_places() -> None:
    present: Placement = {(topic, n): (broker,) for topic, broker in (("big", 1), ("small", 2)) for n in range(4)}
    sizes = {name: 1000 if name[0] == "big" else 1 for name in present}
    after = applied(present, plan_balance(present, racks={1: None, 2: None}, sizes=sizes))
    loads = loads_of(after, sizes)
    assert {(load.replicas, load.size_bytes) for load in loads.values()} == {(4, 2002)}


def test_too_few_brokers_are_refused_in_words() -> None:
    with pytest.raises(AdminError, match="no broker is left to take the one of broker 2"):
        plan_balance({("t", 0): (1, 2)}, racks={1: None, 2: None}, sizes={}, leaving=[2])


def test_progress_tells_rate_and_time_left() -> None:
    assert rate_of(deque([(0.0, 0), (4.0, 400)])) == 100
    assert rate_of(deque([(1.0, 5)])) is None
    assert (time_left(100.0, 500), time_left(None, 5), time_left(0.0, 5), time_left(None, 0)) == (5, None, None, 0)
    assert [duration_text(s) for s in (None, 42, 190, 7500)] == ["?", "42s", "3m10s", "2h05m"]
