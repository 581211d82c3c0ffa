"""When a follower counts as caught up."""

from __future__ import annotations

from barnabas_replication.leader.replica_state import LONG_AGO_MS, initial_replica, replica_after_fetch
from barnabas_wire.kafka.ids import BrokerId, Offset


def fetch(replica, offset: int, leader_end: int, now_ms: int):  # type: ignore[no-untyped-def]
    return replica_after_fetch(
        replica,
        durable_end=Offset(offset),
        log_start_offset=Offset(0),
        leader_end_offset=Offset(leader_end),
        now_ms=now_ms,
        broker_epoch=7,
    )


def start(is_in_sync: bool = False, leader_end: int = 0):  # type: ignore[no-untyped-def]
    return initial_replica(BrokerId(2), is_in_sync=is_in_sync, leader_end_offset=Offset(leader_end), now_ms=100)


def test_isr_members_start_with_a_whole_lag_period_and_strangers_with_none() -> None:
    assert start(is_in_sync=True).last_caught_up_ms == 100
    assert start().last_caught_up_ms == LONG_AGO_MS


def test_a_fetch_at_the_end_is_caught_up_now() -> None:
    assert fetch(start(), 10, 10, 500).last_caught_up_ms == 500


def test_a_fetch_past_the_end_of_the_previous_fetch_was_caught_up_then() -> None:
    behind = fetch(start(), 5, 10, 200)
    assert behind.last_caught_up_ms == LONG_AGO_MS
    busy = fetch(behind, 10, 20, 300)
    assert busy.last_caught_up_ms == 200, "at 300 it had what the leader had at 200"


def test_a_fetch_that_falls_behind_leaves_the_time_alone() -> None:
    caught_up = fetch(start(), 10, 10, 200)
    stuck = fetch(caught_up, 10, 30, 300)
    stuck = fetch(stuck, 12, 40, 400)
    assert stuck.last_caught_up_ms == 200
    assert (stuck.end_offset, stuck.broker_epoch) == (12, 7)


def test_who_is_always_some_fetches_behind_was_caught_up_as_long_ago_as_it_is_behind() -> None:
    """Kafka's rule, which looks at the previous fetch alone, took it for never caught up, and dropped it under steady load."""
    replica = fetch(start(is_in_sync=True), 0, 30, 200)
    for turn in range(3, 50):
        replica = fetch(replica, turn * 10 - 20, turn * 10 + 10, turn * 100)
        behind_ms = turn * 100 - replica.last_caught_up_ms
        assert behind_ms <= 600, "the goal is three fetches ahead when it is set, and so old when the next is reached"
