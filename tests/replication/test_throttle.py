"""The token bucket of replicas that catch up, and whom it is for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_replication.throttle import (
    FETCH_BYTES_MIN,
    FOLLOWER_RATE_KEY,
    FOLLOWER_REPLICAS_KEY,
    LEADER_RATE_KEY,
    LEADER_REPLICAS_KEY,
    ReplicationThrottle,
    ThrottledReplicas,
    ThrottleSide,
    full_bucket,
    parse_throttled_rate,
    parse_throttled_replicas,
    ready_at_ms,
    taken,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from tests.support.replicas import MiniCluster, batch, eventually


@given(
    rate=st.integers(1, 10**9),
    sizes=st.lists(st.integers(1, 10**7), min_size=1, max_size=40),
    waits=st.lists(st.integers(0, 5_000), min_size=40, max_size=40),
)
@settings(max_examples=200, deadline=None)
def test_no_more_passes_than_the_rate_allows_and_one_fetch(rate: int, sizes: list[int], waits: list[int]) -> None:
    bucket = full_bucket(rate, 0)
    now_ms = passed = 0
    for size, wait in zip(sizes, waits, strict=False):
        now_ms = ready_at_ms(bucket, now_ms + wait)
        assert passed <= rate * (1 + now_ms / 1000) + 1, (
            "before this one, all was within the rate and a second's savings"
        )
        bucket = taken(bucket, size, now_ms)
        passed += size


def test_a_debt_is_paid_before_the_next_bytes() -> None:
    bucket = taken(full_bucket(1_000, 0), 3_000, 0)
    assert ready_at_ms(bucket, 0) == 2_001
    assert ready_at_ms(bucket, 2_001) == 2_001
    assert taken(bucket, 0, 100_000).tokens == 1_000, "no more than a second's worth is saved"


def test_kafkas_lists_and_rates_are_read() -> None:
    assert parse_throttled_replicas("k", " 0:1, 2:3 ,") == ThrottledReplicas(replicas=frozenset({(0, 1), (2, 3)}))
    assert parse_throttled_replicas("k", "*").has(7, 7)
    assert not parse_throttled_replicas("k", "").has(0, 0)
    assert parse_throttled_rate("k", "5") == 5
    for broken in ("0", "0:", "a:1", "0:1:2"):
        with pytest.raises(KafkaError, match="partition:broker") as caught:
            parse_throttled_replicas("k", broken)
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    for broken in ("0", "-1", "1.5", ""):
        with pytest.raises(KafkaError):
            parse_throttled_rate("k", broken)


def test_each_side_is_throttled_by_its_own_keys() -> None:
    throttle = ReplicationThrottle()
    throttle.set_topic("t", {LEADER_REPLICAS_KEY: "0:1", FOLLOWER_REPLICAS_KEY: "*"})
    assert not throttle.as_leader.is_on and not throttle.as_leader.covers("t", 0, BrokerId(1)), "no rate, no throttle"
    throttle.set_rates({LEADER_RATE_KEY: "100000", FOLLOWER_RATE_KEY: "10"}, 0)
    assert throttle.as_leader.covers("t", 0, BrokerId(1)) and not throttle.as_leader.covers("t", 0, BrokerId(2))
    assert throttle.as_follower.covers("t", 5, BrokerId(9)) and not throttle.as_follower.covers("u", 5, BrokerId(9))
    assert throttle.as_leader.bytes_max(0, 1 << 20) == 100_000
    assert throttle.as_follower.bytes_max(0, 1 << 20) == FETCH_BYTES_MIN
    throttle.as_leader.take(300_000, 0)
    throttle.set_rates({LEADER_RATE_KEY: "100000", FOLLOWER_RATE_KEY: "20"}, 0)
    assert throttle.as_leader.ready_at_ms(0) == 2_001, "a rate that stays keeps its debt"
    throttle.set_topic("t", {})
    throttle.set_rates({}, 0)
    assert not throttle.as_leader.is_on and not throttle.as_follower.is_on


@pytest.mark.parametrize("side", ["as_leader", "as_follower"])
async def test_a_replica_out_of_sync_waits_for_its_throttle_and_nobody_waits_for_it(side: str, tmp_path: Path) -> None:
    """Of three, 3 is cut off until it is out of the ISR; its return is throttled to a crawl, and then let go."""
    async with MiniCluster(tmp_path, lag_ms=200, fetch_wait_ms=50).with_topic("t") as cluster:
        cluster.cut_links.add(frozenset((1, 3)))
        assert (await cluster[1].produce("t", batch(20))).error is None, "the ISR shrinks, then it is committed"
        assert cluster[1].partition("t").isr.committed == {1, 2}
        manager = cluster[1 if side == "as_leader" else 3].manager
        assert manager is not None
        throttle: ThrottleSide = getattr(manager.throttle, side)
        throttle.set_topic("t", ThrottledReplicas(is_every=True))
        throttle.set_rate(1_000_000, manager.hosted.now_ms())
        throttle.take(10**12, manager.hosted.now_ms())
        await asyncio.sleep(0.05)  # a fetch that was made before the throttle fails first
        fetches = len(cluster.fetches)
        cluster.cut_links.clear()
        assert (await cluster[1].produce("t", batch(5))).error is None, "2 is in sync and is not throttled"
        assert cluster[2].partition("t").log.log_end_offset == 25
        if side == "as_leader":
            await eventually(lambda: any(follower == 3 for follower, _, _ in cluster.fetches[fetches:]))
        await asyncio.sleep(0.4)  # longer than its back-off: unthrottled it would be back by now
        assert cluster[3].partition("t").log.log_end_offset == 0
        throttle.set_rate(None, manager.hosted.now_ms())
        throttle.set_topic("t", ThrottledReplicas())
        await cluster[1].produce("t", batch(1))
        await eventually(lambda: cluster[1].partition("t").isr.committed == {1, 2, 3})
        assert cluster[3].partition("t").log.log_end_offset == 26
