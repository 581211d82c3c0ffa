"""The rules of the in-sync set, one law per test."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_replication.leader.isr import (
    IsrChange,
    IsrState,
    effective_min_isr,
    is_caught_up,
    is_silent,
    may_join,
    next_high_watermark,
    replicas_out_of_sync,
    replicas_to_drop_for_silence,
)
from barnabas_replication.leader.replica_state import RemoteReplica
from barnabas_wire.kafka.ids import BrokerId, Offset

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def replica(broker_id: int, end: int, caught_up_ms: int = 0) -> RemoteReplica:
    return RemoteReplica(BrokerId(broker_id), Offset(end), last_caught_up_ms=caught_up_ms)


def test_a_proposed_joiner_counts_at_once_and_a_proposed_leaver_still_counts() -> None:
    state = IsrState.of([ONE, TWO])
    assert state.expanding(THREE).maximal == {ONE, TWO, THREE}
    assert state.expanding(THREE).committed == {ONE, TWO}
    shrinking = state.shrinking()
    assert shrinking.maximal == {ONE, TWO}
    assert shrinking.change is IsrChange.SHRINK


def test_a_refused_proposal_leaves_the_committed_isr() -> None:
    state = IsrState.of([ONE]).expanding(TWO)
    assert state.settled() == IsrState.of([ONE])


def test_only_one_proposal_at_a_time() -> None:
    with pytest.raises(AssertionError):
        IsrState.of([ONE]).expanding(TWO).expanding(THREE)
    with pytest.raises(AssertionError):
        IsrState.of([ONE]).shrinking().shrinking()


def test_min_isr_never_asks_for_more_replicas_than_there_are() -> None:
    assert effective_min_isr(min_insync_replicas=2, replication_factor=1) == 1
    assert effective_min_isr(min_insync_replicas=2, replication_factor=3) == 2


def test_a_replica_at_the_end_is_caught_up_whenever_it_last_fetched() -> None:
    assert is_caught_up(replica(2, 10, caught_up_ms=-(10**9)), leader_end_offset=Offset(10), now_ms=0, lag_ms_max=1)


@pytest.mark.parametrize(("silence_ms", "leaves"), [(100, False), (101, True)])
def test_a_lagging_member_leaves_only_after_the_lag_time(silence_ms: int, leaves: bool) -> None:
    leaving = replicas_out_of_sync(
        IsrState.of([ONE, TWO]),
        {TWO: replica(2, 9, caught_up_ms=0)},
        leader_end_offset=Offset(10),
        now_ms=silence_ms,
        lag_ms_max=100,
    )
    assert leaving == ({TWO} if leaves else set())


def test_the_leader_itself_and_strangers_never_leave() -> None:
    leaving = replicas_out_of_sync(
        IsrState.of([ONE]), {TWO: replica(2, 0)}, leader_end_offset=Offset(10), now_ms=10**9, lag_ms_max=1
    )
    assert leaving == set()


def test_nobody_leaves_while_a_proposal_is_out() -> None:
    state = IsrState.of([ONE, TWO]).expanding(THREE)
    leaving = replicas_out_of_sync(
        state, {TWO: replica(2, 0)}, leader_end_offset=Offset(10), now_ms=10**9, lag_ms_max=1
    )
    assert leaving == set()


@pytest.mark.parametrize(
    ("end", "is_eligible", "joins"), [(5, True, True), (4, True, False), (5, False, False), (2, True, False)]
)
def test_a_joiner_must_reach_the_hw_and_the_start_of_the_epoch(end: int, is_eligible: bool, joins: bool) -> None:
    allowed = may_join(
        IsrState.of([ONE]),
        replica(2, end),
        is_eligible=is_eligible,
        high_watermark=Offset(3),
        leader_epoch_start_offset=Offset(5),
    )
    assert allowed is joins


def test_members_and_proposals_in_flight_bar_a_join() -> None:
    def allowed(state: IsrState) -> bool:
        return may_join(
            state,
            replica(2, 9),
            is_eligible=True,
            high_watermark=Offset(0),
            leader_epoch_start_offset=Offset(0),
        )

    assert allowed(IsrState.of([ONE]))
    assert not allowed(IsrState.of([ONE, TWO]))
    assert not allowed(IsrState.of([ONE]).expanding(THREE))


def hw(current: int, own: int, others: list[int], isr_size: int = 3, min_isr: int = 1) -> int:
    return next_high_watermark(
        current=Offset(current),
        leader_durable_end=Offset(own),
        counted_ends=[Offset(end) for end in others],
        isr_size=isr_size,
        min_isr=min_isr,
    )


def test_hw_is_the_least_durable_end() -> None:
    assert hw(0, 10, [7, 8]) == 7
    assert hw(0, 6, [7, 8]) == 6
    assert hw(0, 6, []) == 6


def test_hw_stands_still_below_min_isr() -> None:
    assert hw(3, 10, [10], isr_size=1, min_isr=2) == 3


@given(st.integers(0, 50), st.integers(0, 50), st.lists(st.integers(-1, 50)), st.integers(1, 3), st.integers(1, 3))
def test_hw_never_falls_and_never_passes_a_counted_end(
    current: int, own: int, others: list[int], isr_size: int, min_isr: int
) -> None:
    following = hw(current, own, others, isr_size, min_isr)
    assert following >= current
    assert following == current or following == min([own, *others])


@pytest.mark.parametrize(
    ("last_contact_ms", "since_ms", "answer"),
    [(0, 0, True), (1, 0, False), (-(1 << 62), 0, True), (-(1 << 62), 50, False)],
)
def test_a_follower_is_silent_after_its_time_and_a_new_leader_gives_it_anew(
    last_contact_ms: int, since_ms: int, answer: bool
) -> None:
    assert answer is is_silent(
        last_contact_ms=last_contact_ms, leading_since_ms=since_ms, now_ms=101, silence_ms_max=100
    )


@pytest.mark.parametrize(
    ("ends", "silent", "durable_end", "min_isr", "leavers"),
    [
        ((10, 7), {THREE}, 10, 2, {THREE}),
        ((10, 10), {THREE}, 10, 2, set()),
        ((7, 7), {THREE}, 10, 1, set()),
        ((7, 7), {TWO, THREE}, 10, 2, set()),
        ((7, 7), {TWO, THREE}, 10, 1, {TWO, THREE}),
        ((10, 7), {THREE}, 9, 2, set()),
        ((10, 7), set(), 10, 2, set()),
    ],
    ids=[
        "it alone",
        "nobody waits for it",
        "another is behind too",
        "too few would be left",
        "both may leave",
        "the leader's own flush is awaited",
        "it is slow, not silent",
    ],
)
def test_who_is_silent_leaves_only_if_that_commits_what_is_waited_for(
    ends: tuple[int, int], silent: set[BrokerId], durable_end: int, min_isr: int, leavers: set[BrokerId]
) -> None:
    replicas = {TWO: replica(2, ends[0]), THREE: replica(3, ends[1])}

    def dropped(state: IsrState) -> frozenset[BrokerId]:
        return replicas_to_drop_for_silence(
            state,
            replicas,
            silent=silent,
            awaited_end=Offset(10),
            leader_durable_end=Offset(durable_end),
            min_isr=min_isr,
        )

    state = IsrState.of([ONE, TWO, THREE])
    assert dropped(state) == leavers
    assert not dropped(state.shrinking()), "one proposal at a time"
