"""DeleteRecords is answered when no election and no kill can bring the records back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from barnabas_log.errors import OffsetOutOfRange
from barnabas_replication.errors import DeletionTimedOut, NotEnoughReplicas, NotLeaderOrFollower
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Offset, TopicPartition, Uuid
from tests.support.replicas import MiniCluster, batch, eventually

T = TopicPartition("t", 0)


async def delete(cluster: MiniCluster, offset: int, *, timeout_ms: int = 20_000, on: int = 1) -> Offset | KafkaError:
    manager = cluster[on].manager
    assert manager is not None
    (result,) = await manager.delete_records([(T, Offset(offset))], timeout_ms=timeout_ms)
    return result


async def test_every_live_replica_has_deleted_when_it_is_answered(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, fetch_wait_ms=50).with_topic("t") as cluster:
        for _ in range(5):
            assert (await cluster[1].produce("t", batch())).error is None
        assert await delete(cluster, 3) == 3
        assert [cluster[number].partition("t").log.log_start_offset for number in (1, 2, 3)] == [3, 3, 3]
        assert await delete(cluster, 1) == 3, "nothing comes back"
        assert await delete(cluster, -1) == 5
        assert isinstance(await delete(cluster, 6), OffsetOutOfRange)
        assert isinstance(await delete(cluster, 1, on=2), NotLeaderOrFollower)


async def test_it_waits_for_a_live_replica_and_not_for_a_fenced_one(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, fetch_wait_ms=50).with_topic("t") as cluster:
        for _ in range(5):
            assert (await cluster[1].produce("t", batch())).error is None
        cluster.cut_links.add(frozenset((1, 3)))
        assert isinstance(await delete(cluster, 2, timeout_ms=300), DeletionTimedOut)
        waiting = asyncio.create_task(delete(cluster, 3))
        await eventually(lambda: cluster[2].partition("t").log.log_start_offset == 3)
        assert not waiting.done()
        cluster.controller.register(3, is_fenced=True)
        cluster.controller.change("t", isr=(1, 2))
        assert await waiting == 3


async def test_a_leader_that_is_deposed_meanwhile_answers_so(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, fetch_wait_ms=50).with_topic("t") as cluster:
        assert (await cluster[1].produce("t", batch(3))).error is None
        cluster.cut_links.add(frozenset((1, 3)))
        waiting = asyncio.create_task(delete(cluster, 3))
        await eventually(lambda: cluster[1].partition("t").log.log_start_offset == 3)
        cluster.controller.change("t", leader=2)
        assert isinstance(await waiting, KafkaError)


async def test_after_a_kill_of_all_nobody_begins_before_what_was_answered(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, fetch_wait_ms=50).with_topic("t") as cluster:
        for _ in range(5):
            assert (await cluster[1].produce("t", batch())).error is None
        for node in (1, 2, 3):
            await cluster[node].logs.checkpoints.write_offsets()
        assert await delete(cluster, 4) == 4
        for node in (1, 2, 3):
            await cluster[node].kill()
        for node in (1, 2, 3):
            await cluster[node].start()
        assert [cluster[node].partition("t").log.log_start_offset for node in (1, 2, 3)] == [4, 4, 4]


async def test_while_an_eligible_replica_is_away_nothing_is_deleted(tmp_path: Path) -> None:
    """It would be elected cleanly, and bring the records back."""
    async with MiniCluster(tmp_path, fetch_wait_ms=50).with_topic("t") as cluster:
        for _ in range(5):
            assert (await cluster[1].produce("t", batch())).error is None
        await eventually(lambda: cluster[1].partition("t").high_watermark == 5)
        await cluster[2].kill()
        cluster.controller.register(2, is_fenced=True)
        cluster.controller.change("t", isr=(1,), elr=(2,))
        refusal = await delete(cluster, 3)
        assert isinstance(refusal, NotEnoughReplicas)
        assert "broker 2 is fenced" in str(refusal) and "retention" in str(refusal)
        assert cluster[1].partition("t").log.log_start_offset == 0
        await cluster[2].start()
        assert await delete(cluster, 3) == 3
        assert cluster[2].partition("t").log.log_start_offset == 3, "it lives, so it is waited for"


async def test_one_whose_directory_failed_is_away_too(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, fetch_wait_ms=50).with_topic("t") as cluster:
        assert (await cluster[1].produce("t", batch(5))).error is None
        cluster.controller.change(
            "t", isr=(1,), elr=(3,), directories=(ZERO_UUID, ZERO_UUID, Uuid(b"another-director"))
        )
        refusal = await delete(cluster, 3)
        assert isinstance(refusal, NotEnoughReplicas) and "directory of broker 3" in str(refusal)


async def test_one_that_becomes_eligible_and_dies_meanwhile_is_waited_for(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, fetch_wait_ms=50).with_topic("t") as cluster:
        assert (await cluster[1].produce("t", batch(5))).error is None
        cluster.cut_links |= {frozenset((1, 2)), frozenset((1, 3))}
        waiting = asyncio.create_task(delete(cluster, 3, timeout_ms=300))
        await eventually(lambda: cluster[1].partition("t").log.log_start_offset == 3)
        for broker_id in (2, 3):
            cluster.controller.register(broker_id, is_fenced=True)
        cluster.controller.change("t", isr=(1,), elr=(2, 3))
        result = await waiting
        assert isinstance(result, DeletionTimedOut) and "2, 3" in str(result)


async def test_what_the_controller_answers_before_its_image_says_who_is_eligible(tmp_path: Path) -> None:
    """The answer to a shrinking ISR names no eligible replicas: until the image does, whoever left may be one."""
    async with MiniCluster(tmp_path, fetch_wait_ms=50).with_topic("t") as cluster:
        assert (await cluster[1].produce("t", batch(5))).error is None
        for broker_id in (2, 3):
            await cluster[broker_id].kill()
            cluster.controller.register(broker_id, is_fenced=True)
        partition = cluster[1].partition("t")
        partition.install_isr((BrokerId(1),), partition.partition_epoch + 1, 0)
        refusal = await delete(cluster, 3)
        assert isinstance(refusal, NotEnoughReplicas) and "broker 2" in str(refusal) and "broker 3" in str(refusal)
