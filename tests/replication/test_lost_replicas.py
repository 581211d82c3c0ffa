"""A replica that lost what it had: it leads nothing, says so, is refilled, and leads again when somebody accepts the loss."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

import pytest

from barnabas_log.directories import checkpoints
from barnabas_log.directories.directory_state import OWN_DIRECTORY, DirectoryState, LostReplica
from barnabas_log.directories.topic_witness import WITNESS_FILE
from barnabas_quorum.image.features import METADATA_VERSION
from barnabas_quorum.records import (
    FaultyReplica,
    FeatureLevelRecord,
    LeaderRecoveryState,
    PartitionChangeRecord,
    ReplicaFault,
)
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, TopicPartition
from tests.support.replicas import Listener, MiniCluster, batch, eventually, topic_id_of

LOST, CORRUPT = ReplicaFault.LOST, ReplicaFault.CORRUPT
Heard = list[ReplicaFault | None]
T_ID = topic_id_of("t")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[ReplicaFault | None]:
    """What brokers report of their replicas, restarts included."""
    reports: list[ReplicaFault | None] = []
    monkeypatch.setattr(Listener, "on_replica_fault", lambda self, topic_id, partition, fault: reports.append(fault))
    return reports


def set_level(cluster: MiniCluster, level: int) -> None:
    cluster.controller.commit(FeatureLevelRecord(name=METADATA_VERSION, level=level))


def zero_witnesses(directory: Path) -> None:
    for name in ("partition.metadata", WITNESS_FILE):
        path = directory / "t-0" / name
        path.write_bytes(bytes(path.stat().st_size))


def zero_witnesses_before_the_first_checkpoint(directory: Path) -> None:
    zero_witnesses(directory)
    (directory / checkpoints.CLEAN_SHUTDOWN_FILE).unlink()
    for name in (checkpoints.RECOVERY_POINTS_FILE, checkpoints.HIGH_WATERMARKS_FILE):
        for folder in (directory, directory / OWN_DIRECTORY):
            (folder / name).unlink()


def flip_topic_id(directory: Path) -> None:
    path = directory / "t-0" / "partition.metadata"
    content = bytearray(path.read_bytes())
    content[22] = ord("A") if content[22] != ord("A") else ord("B")
    path.write_bytes(content)


def strays(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name.endswith("-stray")]


@pytest.mark.parametrize("damage", [zero_witnesses, zero_witnesses_before_the_first_checkpoint, flip_topic_id])
async def test_a_follower_sets_a_doubtful_log_aside_and_is_refilled(
    tmp_path: Path, damage: object, heard: list[ReplicaFault | None]
) -> None:
    async with MiniCluster(tmp_path, brokers=2) as cluster:
        set_level(cluster, 7)
        cluster.controller.create("t", replicas=(1, 2))
        assert (await cluster[1].produce("t", batch(5))).error is None
        directory = Path(cluster[2].path)
        await cluster[2].stop()
        damage(directory)  # type: ignore[operator]
        await cluster[2].start()
        await eventually(lambda: None in heard and heard[0] is LOST)
        assert cluster[2].partition("t").log.log_end_offset == 5
        (stray,) = strays(directory)
        assert (stray / f"{0:020d}.log").stat().st_size > 0, "what it held is kept"


async def test_who_lost_what_it_had_does_not_lead_though_the_image_says_so(
    tmp_path: Path, heard: list[ReplicaFault | None]
) -> None:
    async with MiniCluster(tmp_path, brokers=1) as cluster:
        set_level(cluster, 7)
        cluster.controller.create("t", replicas=(1,))
        assert (await cluster[1].produce("t", batch(5))).error is None
        await cluster[1].stop()
        zero_witnesses(Path(cluster[1].path))
        await cluster[1].start()
        cluster.controller.change("t", leader=BrokerId(1))
        assert heard[:1] == [LOST]
        partition = cluster[1].partition("t")
        assert not partition.is_leader and partition.log.log_end_offset == 0
        assert (await cluster[1].produce("t", batch())).error is not None, "nothing goes on as if nothing had been"

        known = PartitionChangeRecord(
            topic_id=T_ID, partition_id=0, leader=NO_BROKER, isr=(), faults=(FaultyReplica(BrokerId(1), LOST),)
        )
        cluster.controller.commit(known)
        assert not cluster[1].partition("t").is_leader
        await cluster[1].stop()
        await cluster[1].start()
        assert cluster[1].partition("t").is_lost, "a restart does not forget it"
        accepted = PartitionChangeRecord(
            topic_id=T_ID,
            partition_id=0,
            leader=BrokerId(1),
            isr=(BrokerId(1),),
            faults=(),
            leader_recovery_state=LeaderRecoveryState.RECOVERING,
        )
        cluster.controller.commit(accepted)
        assert cluster[1].partition("t").is_leader and not cluster[1].partition("t").is_lost
        assert (await cluster[1].produce("t", batch())).error is None
        await cluster[1].stop()
        await cluster[1].start()
        assert not cluster[1].partition("t").is_lost


async def test_before_metadata_version_7_it_is_told_as_corrupt_and_leads_where_it_must(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, brokers=1) as cluster:
        set_level(cluster, 6)
        cluster.controller.create("t", replicas=(1,))
        assert (await cluster[1].produce("t", batch(5))).error is None
        await cluster[1].stop()
        zero_witnesses(Path(cluster[1].path))
        await cluster[1].start()
        cluster.controller.change("t", leader=BrokerId(1))
        await eventually(lambda: cluster[1].partition("t").is_leader)
        assert (await cluster[1].produce("t", batch())).error is None
        assert len(strays(Path(cluster[1].path))) == 1


async def test_an_older_copy_that_the_controller_found_is_refilled_and_cleared(
    tmp_path: Path, heard: list[ReplicaFault | None]
) -> None:
    async with MiniCluster(tmp_path, brokers=2) as cluster:
        set_level(cluster, 7)
        cluster.controller.create("t", replicas=(1, 2))
        assert (await cluster[1].produce("t", batch(5))).error is None
        await cluster[2].stop()
        change = PartitionChangeRecord(
            topic_id=T_ID, partition_id=0, isr=(BrokerId(1),), faults=(FaultyReplica(BrokerId(2), LOST),)
        )
        cluster.controller.commit(change)
        await cluster[2].start()
        assert cluster[2].partition("t").is_lost and heard == [], (
            "an image from before it was registered clears nothing"
        )
        await eventually(lambda: heard == [None])
        assert not cluster[2].partition("t").is_lost


async def test_a_directory_that_fails_as_its_doubtful_log_is_given_up_costs_no_more_than_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MiniCluster(tmp_path, brokers=2) as cluster:
        set_level(cluster, 7)
        cluster.controller.create("t", replicas=(1, 2))
        assert (await cluster[1].produce("t", batch(5))).error is None
        await cluster[2].stop()
        zero_witnesses(Path(cluster[2].path))
        add_lost = DirectoryState.add_lost

        def fail(self: DirectoryState, lost: Mapping[TopicPartition, LostReplica]) -> None:
            if lost:
                raise OSError(errno.EIO, "injected")
            add_lost(self, lost)

        monkeypatch.setattr(DirectoryState, "add_lost", fail)
        await cluster[2].start()
        await eventually(lambda: cluster[2].logs.health.offline_directories != [])
        assert strays(Path(cluster[2].path)) == [], "nothing is moved that could not be written down"
