"""A follower's fetches over TCP, against the broker's real listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas_log.config import LogConfig
from barnabas_quorum.image.metadata import MetadataDelta
from barnabas_quorum.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from barnabas_replication.follower import peer as peers
from barnabas_replication.follower.peer import KafkaPeer
from barnabas_replication.requests import AppendEntry, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Endpoint, Epoch, Offset, TopicPartition
from barnabas_wire.records.batch import iterate_batches
from tests.support.listener import LISTENER, NODE_ID
from tests.support.replicas import PAGE_CACHE, batch, eventually, topic_id_of
from tests.support.single_broker import SingleBroker, single_broker

FOLLOWER = BrokerId(NODE_ID + 1)
POLL = FetchSpec(replica_id=FOLLOWER, replica_epoch=5, max_wait_ms=3_600_000)
AT_ONCE = POLL._replace(max_wait_ms=0)


@asynccontextmanager
async def leader_and_peer(
    tmp_path: Path, *, log_config: LogConfig = PAGE_CACHE
) -> AsyncIterator[tuple[SingleBroker, KafkaPeer]]:
    """A broker that leads topics "t" and "u" of one partition each, with one follower; and that follower's peer."""
    async with single_broker(tmp_path, log_config=log_config) as broker:
        delta = MetadataDelta(broker.metadata.image)
        for name in ("t", "u"):
            delta.replay(TopicRecord(name=name, topic_id=topic_id_of(name)))
            delta.replay(
                PartitionRecord(
                    topic_id=topic_id_of(name),
                    partition_id=0,
                    replicas=(BrokerId(NODE_ID), FOLLOWER),
                    directories=(ZERO_UUID, ZERO_UUID),
                    isr=(BrokerId(NODE_ID),),
                    leader=BrokerId(NODE_ID),
                    leader_epoch=Epoch(3),
                    partition_epoch=0,
                )
            )
        broker._publish(delta)
        host, port = broker.server.bound[LISTENER]
        peer = KafkaPeer(endpoint=Endpoint(LISTENER, host, port), client_id="follower", timeout_ms=10_000)
        try:
            yield broker, peer
        finally:
            await peer.close()


def spec(name: str = "t", offset: int = 0, *, epoch: int = 3, last_epoch: int = -1) -> FetchPartitionSpec:
    return FetchPartitionSpec(name, topic_id_of(name), 0, Epoch(epoch), Offset(offset), Epoch(last_epoch), Offset(0))


def write(broker: SingleBroker, name: str = "t", count: int = 3) -> None:
    broker.replicas.appends.append_records(
        [AppendEntry(name, 0, batch(count))], required_acks=0, timeout_ms=1, respond=lambda outcomes: None
    )


def bump(broker: SingleBroker) -> None:
    delta = MetadataDelta(broker.metadata.image)
    delta.replay(PartitionChangeRecord(topic_id=topic_id_of("t"), partition_id=0, leader=BrokerId(NODE_ID)))
    broker._publish(delta)


@pytest.mark.parametrize("version", [15, 17])
async def test_batches_come_as_the_leader_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(peers, "FETCH_VERSION_MAX", version)
    async with leader_and_peer(tmp_path) as (broker, peer):
        write(broker, "t")
        write(broker, "t", 2)
        write(broker, "u")
        fetched = {
            part.topic: part for part in (await peer.fetch(AT_ONCE, [spec("t"), spec("u"), spec("t", 1)])).partitions
        }
        assert set(fetched) == {"t", "u"}
        headers = [header for _, header in iterate_batches(fetched["u"].records)]
        assert [(header.base_offset, header.partition_leader_epoch, header.record_count) for header in headers] == [
            (0, 3, 3)
        ]
        assert fetched["t"].error_code is ErrorCode.NONE
        assert (fetched["t"].log_start_offset, fetched["t"].diverging_epoch) == (0, None)
        partition = broker.replicas.partition(TopicPartition("t", 0))
        assert partition is not None
        assert partition.remotes[FOLLOWER].broker_epoch == 5, "KIP-903"


async def test_what_the_leader_has_forgotten_comes_with_the_batches(tmp_path: Path) -> None:
    async with leader_and_peer(tmp_path) as (broker, peer):
        for _ in range(4):
            write(broker, "t")
        partition = broker.replicas.partition(TopicPartition("t", 0))
        assert partition is not None
        await eventually(lambda: partition.high_watermark == 12)
        partition.log.forgotten.publish(Offset(9))
        for offset in (0, 3, 6, 9):  # the same bytes again and again but for the offset
            wanted = 9 if offset < 9 else -1
            ((followed,), _) = await peer.fetch(AT_ONCE, [spec(offset=offset)])
            ((consumed,), _) = await peer.fetch(FetchSpec(), [spec(offset=offset)])
            asking = spec(offset=offset)._replace(flushed_offset=Offset(offset))
            ((filled,), _) = await peer.fetch(FetchSpec(), [asking])
            assert (followed.forgotten_below, consumed.forgotten_below, filled.forgotten_below) == (wanted, -1, wanted)
            assert len(followed.records) == len(consumed.records) == len(filled.records) > 0


async def test_a_leader_too_old_to_tell_lives_apart_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "FETCH_VERSION_MAX", 14)
    async with leader_and_peer(tmp_path) as (_, peer):
        with pytest.raises(KafkaError):
            await peer.fetch(AT_ONCE, [spec("t")])


async def test_divergence_and_refusals_arrive(tmp_path: Path) -> None:
    async with leader_and_peer(tmp_path) as (broker, peer):
        write(broker)
        bump(broker)
        (diverging,) = (await peer.fetch(AT_ONCE, [spec(offset=9, epoch=4, last_epoch=3)])).partitions
        assert diverging.diverging_epoch == (3, 3)
        (fenced,) = (await peer.fetch(AT_ONCE, [spec(epoch=3)])).partitions
        assert fenced.error_code is ErrorCode.FENCED_LEADER_EPOCH
        partition = broker.replicas.partition(TopicPartition("t", 0))
        assert partition is not None
        partition.set_high_watermark(Offset(3))
        partition.log.delete_records_before(Offset(2))
        (out_of_range,) = (await peer.fetch(AT_ONCE, [spec(epoch=4)])).partitions
        assert out_of_range.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert out_of_range.log_start_offset == 2, "a follower starts over there"


async def test_a_parked_fetch_ends_when_something_is_written(tmp_path: Path) -> None:
    async with leader_and_peer(tmp_path) as (broker, peer):
        fetching = asyncio.create_task(peer.fetch(POLL, [spec()]))
        await eventually(lambda: broker.replicas.stats.fetch_parked == 1)
        write(broker)
        (fetched,) = (await fetching).partitions
        assert len(fetched.records) > 0


async def test_a_cancelled_fetch_is_forgotten_by_both_sides(tmp_path: Path) -> None:
    async with leader_and_peer(tmp_path) as (broker, peer):
        fetching = asyncio.create_task(peer.fetch(POLL, [spec()]))
        await eventually(lambda: broker.replicas.stats.fetch_parked == 1)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        partition = broker.replicas.partition(TopicPartition("t", 0))
        assert partition is not None
        await eventually(lambda: not partition.follower_fetches)
        write(broker, "u")
        (fetched,) = (await peer.fetch(AT_ONCE, [spec("u")])).partitions
        assert fetched.topic == "u", "not the answer that the cancelled one would have had"


async def test_a_lost_leader_is_an_error_and_the_next_fetch_connects_anew(tmp_path: Path) -> None:
    async with leader_and_peer(tmp_path) as (broker, peer):
        fetching = asyncio.create_task(peer.fetch(POLL, [spec()]))
        await eventually(lambda: broker.replicas.stats.fetch_parked == 1)
        assert peer._connection is not None and peer._connection._transport is not None
        peer._connection._transport.abort()
        with pytest.raises(OSError):
            await fetching
        (fetched,) = (await peer.fetch(AT_ONCE, [spec()])).partitions
        assert fetched.error_code is ErrorCode.NONE
    with pytest.raises(OSError):
        await peer.fetch(AT_ONCE, [spec()])
