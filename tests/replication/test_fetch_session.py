"""Fetch sessions of followers: idle partitions cost nothing, and lose nothing by it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas_replication.follower import fetcher, fetcher_partitions
from barnabas_replication.follower.fetcher import Fetcher
from barnabas_replication.leader.fetch_session import SESSION_EPOCH_MAX, FetchSessions, epoch_after
from barnabas_replication.requests import NO_SESSION_EPOCH, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset, TopicPartition
from tests.support.replicas import MiniCluster, batch, eventually

PARTITIONS = 10
A_MINUTE_MS = 60_000


def asks(session_id: int, epoch: int, *, broker_epoch: int = 7) -> FetchSpec:
    return FetchSpec(BrokerId(2), broker_epoch, session_id=session_id, session_epoch=epoch)


def test_a_session_goes_on_with_the_next_epoch_alone_and_for_one_registration() -> None:
    sessions = FetchSessions()
    first = sessions.take(asks(0, 0))
    assert sessions.take(asks(first.id, 1)) is first
    for request, code in (
        (asks(first.id, 1), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (asks(first.id, 3), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (asks(first.id + 1, 2), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (asks(first.id, 2, broker_epoch=8), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ):
        with pytest.raises(KafkaError) as refused:
            sessions.take(request)
        assert refused.value.code is code
    second = sessions.take(asks(first.id, 0))
    assert second.id != first.id
    with pytest.raises(KafkaError):
        sessions.take(asks(first.id, 2))
    assert epoch_after(SESSION_EPOCH_MAX) == 1


def fetcher_of(cluster: MiniCluster) -> Fetcher | None:
    """The follower's fetcher, once it has the first topic."""
    manager = cluster[2].manager
    assert manager is not None
    return manager.fetchers.fetcher_of(TopicPartition("first", 0))


def has_session(cluster: MiniCluster) -> bool:
    """Whether the follower's fetches are of a session by now: before, each names all partitions."""
    found = fetcher_of(cluster)
    return found is not None and found._partitions.session_id != 0


def follows(cluster: MiniCluster, partitions: int) -> bool:
    """Whether it follows so many."""
    found = fetcher_of(cluster)
    return found is not None and len(found) == partitions


async def at_rest(cluster: MiniCluster) -> None:
    """Ten partitions, one record in each, and nothing left to say about them."""
    cluster.controller.create("t", partitions=PARTITIONS, replicas=(1, 2))
    for number in range(PARTITIONS):
        assert (await cluster[1].produce("t", batch(), partition=number)).error is None
    await asyncio.sleep(0.3)
    cluster.fetches.clear()


async def test_a_record_costs_no_fetch_of_idle_partitions_and_their_marks_come_without_one(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, brokers=2, fetch_wait_ms=A_MINUTE_MS) as cluster:
        await at_rest(cluster)
        assert (await cluster[1].produce("t", batch(), partition=3)).error is None
        assert [named for _, _, named in cluster.fetches if named] == [[3]]
        await eventually(lambda: cluster[2].partition("t", 3).high_watermark == 2)


async def test_a_log_start_reaches_followers_and_the_leader_hears_of_theirs(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, brokers=2, fetch_wait_ms=200) as cluster:
        await at_rest(cluster)
        cluster[1].partition("t", 4).log.delete_records_before(Offset(1))
        await eventually(lambda: cluster[2].partition("t", 4).log.log_start_offset == 1)
        remotes = cluster[1].partition("t", 4).remotes
        await eventually(lambda: remotes[BrokerId(2)].log_start_offset == 1)


async def test_a_follower_of_an_idle_partition_is_caught_up_while_it_fetches(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, brokers=2, fetch_wait_ms=50, lag_ms=400) as cluster:
        await at_rest(cluster)
        partition = cluster[1].partition("t", 5)
        before = partition.remotes[BrokerId(2)].last_caught_up_ms
        await asyncio.sleep(1)
        assert cluster.fetches == [] or all(not named for _, _, named in cluster.fetches)
        after = partition.remotes[BrokerId(2)].last_caught_up_ms
        assert after > before, "looked at before ISRs are judged"
        assert partition.isr.committed == {1, 2}


async def test_a_new_session_begins_where_the_former_is_lost(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, brokers=2, fetch_wait_ms=100) as cluster:
        await at_rest(cluster)
        manager = cluster[1].manager
        assert manager is not None
        spec = manager.fetches.in_session(FetchSpec(BrokerId(2), cluster[2].epoch, session_epoch=0))
        assert spec.session_epoch != NO_SESSION_EPOCH
        await eventually(lambda: any(len(named) == PARTITIONS for _, _, named in cluster.fetches))
        assert (await cluster[1].produce("t", batch(), partition=6)).error is None


async def test_a_silent_follower_of_an_idle_partition_leaves_the_isr(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, brokers=2, fetch_wait_ms=50, lag_ms=400) as cluster:
        await at_rest(cluster)
        cluster.cut_links.add(frozenset((1, 2)))
        await asyncio.sleep(0.2)
        produced = asyncio.create_task(cluster[1].produce("t", batch(), partition=7))
        await eventually(lambda: cluster[1].partition("t", 7).isr.committed == {1})
        assert cluster[1].partition("t", 8).isr.committed == {1, 2}, "at the leader's end, as in Kafka"
        await produced


async def test_a_fetch_names_a_part_of_many_and_the_others_come_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_partitions, "NAMED_AT_ONCE", 3)
    # One that is given up for the newcomers ends the session, and the next session begins with all partitions.
    monkeypatch.setattr(fetcher, "INTERRUPT_AFTER_MS", 3_600_000)
    async with MiniCluster(tmp_path, brokers=2, fetch_wait_ms=3_600_000) as cluster:
        cluster.controller.create("first", partitions=6, replicas=(1, 2))
        assert (await cluster[1].produce("first", batch())).error is None
        await eventually(lambda: has_session(cluster))
        cluster.fetches.clear()
        cluster.controller.create("t", partitions=20, replicas=(1, 2))
        await eventually(lambda: follows(cluster, 26))
        assert (await cluster[1].produce("first", batch())).error is None, "the fetch that is out is answered"
        for number in range(20):
            assert (await cluster[1].produce("t", batch(), partition=number)).error is None
        assert max(len(named) for _, _, named in cluster.fetches) == 3
