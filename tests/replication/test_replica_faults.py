"""What a faulty replica does on its broker: what it refuses, what it goes on with, and what it has reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas_quorum.image.features import METADATA_VERSION
from barnabas_quorum.records import FaultyReplica, FeatureLevelRecord, PartitionChangeRecord, ReplicaFault
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import BrokerId, TopicPartition, Uuid
from tests.support.replicas import MemoryBroker, MiniCluster, batch, eventually, topic_id_of

CORRUPT, NO_ROOM = ReplicaFault.CORRUPT, ReplicaFault.NO_ROOM
T = TopicPartition("t", 0)


def listen(broker: MemoryBroker) -> list[ReplicaFault | None]:
    """What the broker reports of t-0 from now on."""
    heard: list[ReplicaFault | None] = []

    def note(topic_id: Uuid, partition: int, fault: ReplicaFault | None) -> None:
        assert (topic_id, partition) == (topic_id_of("t"), 0)
        heard.append(fault)

    broker.listener.hear_fault = note
    return heard


def know_faults(cluster: MiniCluster) -> None:
    cluster.controller.commit(FeatureLevelRecord(name=METADATA_VERSION, level=4))


async def test_without_room_a_leader_refuses_appends_and_serves_reads_until_it_has_room(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path) as cluster:
        know_faults(cluster)
        cluster.controller.create("t")
        heard, manager = listen(cluster[1]), cluster[1].manager
        assert manager is not None
        assert (await cluster[1].produce("t", batch())).error is None
        manager.on_space_changed(cluster[1].path, has_space=False)
        refused = await cluster[1].produce("t", batch())
        assert refused.error is not None and refused.error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "full" in str(refused.error)
        assert (await cluster[1].consume("t")).size_bytes == len(batch())
        manager.on_space_changed(cluster[1].path, has_space=True)
        assert (await cluster[1].produce("t", batch())).error is None
        assert heard == [NO_ROOM, None]


async def test_without_room_a_follower_fetches_no_more_until_it_has_room(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, lag_ms=200) as cluster:
        know_faults(cluster)
        cluster.controller.create("t")
        manager = cluster[2].manager
        assert manager is not None
        manager.on_space_changed(cluster[2].path, has_space=False)
        assert (await cluster[1].produce("t", batch(3))).error is None, "the ISR shrinks, and writes go on"
        assert cluster[2].partition("t").log.log_end_offset == 0
        manager.on_space_changed(cluster[2].path, has_space=True)
        await eventually(lambda: 2 in cluster.controller.registration("t").isr)
        assert cluster[2].partition("t").log.log_end_offset == 3


async def test_the_image_makes_a_leader_leave_faulty_followers_out_of_its_proposals(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path) as cluster:
        know_faults(cluster)
        cluster.controller.create("t")
        change = PartitionChangeRecord(
            topic_id=topic_id_of("t"),
            partition_id=0,
            isr=(BrokerId(1), BrokerId(3)),
            faults=(FaultyReplica(BrokerId(2), CORRUPT),),
        )
        cluster.controller.commit(change)
        before = cluster.controller.registration("t").partition_epoch
        assert (await cluster[1].produce("t", batch())).error is None
        await eventually(lambda: cluster[2].partition("t").log.log_end_offset == 1)
        assert cluster.controller.registration("t").partition_epoch == before, "it catches up, and is not proposed"


async def test_corrupt_comes_before_no_room_and_a_full_directory_outlives_a_repair(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path) as cluster:
        know_faults(cluster)
        cluster.controller.create("t")
        heard, manager = listen(cluster[1]), cluster[1].manager
        assert manager is not None
        manager.set_fault(T, CORRUPT)
        manager.set_fault(T, CORRUPT)
        assert (await cluster[1].produce("t", batch())).error is None, "what is new is sound"
        manager.on_space_changed(cluster[1].path, has_space=False)
        manager.set_fault(T, None)
        manager.on_space_changed(cluster[1].path, has_space=True)
        manager.set_fault(TopicPartition("unknown", 0), CORRUPT)
        assert heard == [CORRUPT, NO_ROOM, None]


@pytest.mark.parametrize("level", [3, 4])
async def test_faults_are_reported_once_the_cluster_knows_them(tmp_path: Path, level: int) -> None:
    async with MiniCluster(tmp_path, brokers=1) as cluster:
        cluster.controller.create("t", replicas=(1,))
        heard, manager = listen(cluster[1]), cluster[1].manager
        assert manager is not None
        manager.set_fault(T, CORRUPT)
        assert heard == []
        cluster.controller.commit(FeatureLevelRecord(name=METADATA_VERSION, level=level))
        assert heard == ([CORRUPT] if level == 4 else [])


async def test_a_restarted_broker_takes_its_damage_from_the_image_and_clears_what_is_over(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, brokers=2) as cluster:
        know_faults(cluster)
        cluster.controller.create("t", replicas=(1, 2))
        assert (await cluster[1].produce("t", batch())).error is None
        for fault, known in ((CORRUPT, [None]), (NO_ROOM, [None])):
            await cluster[2].stop()
            cluster.controller.commit(
                PartitionChangeRecord(
                    topic_id=topic_id_of("t"), partition_id=0, faults=(FaultyReplica(BrokerId(2), fault),)
                )
            )
            await cluster[2].start()
            assert cluster[2].partition("t").fault is (CORRUPT if fault is CORRUPT else None)
            heard, manager = listen(cluster[2]), cluster[2].manager
            assert manager is not None
            manager.set_fault(T, CORRUPT)
            manager.set_fault(T, None)
            assert heard[-1:] == known
