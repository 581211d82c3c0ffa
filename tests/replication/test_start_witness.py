"""A leader that does not know where its log starts asks its in-sync followers, and deletes nothing on less."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas_log.directories.directory_state import OWN_DIRECTORY
from barnabas_log.errors import OffsetOutOfRange
from barnabas_replication.errors import OffsetNotAvailable
from barnabas_replication.follower.follower_log import append_as_follower
from barnabas_replication.leader.isr import IsrState
from barnabas_replication.leader.offset_lookup import EARLIEST_TIMESTAMP, list_offset
from barnabas_replication.leader.start_witness import witnessed_start
from barnabas_wire.kafka.ids import BrokerId, Offset
from tests.replication.test_deletion import delete
from tests.support.replicas import MiniCluster, PartitionBench, batch, eventually


@pytest.mark.parametrize(
    ("own", "high_watermark", "starts", "expected"),
    [
        (0, 9, (), None),  # nobody to ask
        (0, 9, (-1, 4), None),
        (0, 9, (4, 4), 4),
        (0, 9, (4, 6), 6),
        (0, 9, (0, 0), 0),
        (5, 9, (4, 0), 5),
        (0, 9, (9,), 9),
        (0, 3, (4, 4), None),  # not before the high watermark is there
    ],
)
def test_the_rule(own: int, high_watermark: int, starts: tuple[int, ...], expected: int | None) -> None:
    found = witnessed_start(
        log_start_offset=Offset(own), high_watermark=Offset(high_watermark), follower_starts=[*map(Offset, starts)]
    )
    assert found == expected


@pytest.mark.parametrize("is_doubted", [True, False])
def test_only_a_start_in_doubt_follows_and_only_every_in_sync_follower_settles_it(
    tmp_path: Path, is_doubted: bool
) -> None:
    bench = PartitionBench(tmp_path)
    bench.lead()
    bench.append(5)
    bench.log.is_start_doubted = is_doubted
    bench.fetch(2, 5, start=3)
    assert (bench.log.log_start_offset, bench.log.is_start_doubted) == (0, is_doubted)
    assert isinstance(bench.read().error, OffsetNotAvailable) == is_doubted
    if is_doubted:
        with pytest.raises(OffsetNotAvailable):
            list_offset(bench.partition, EARLIEST_TIMESTAMP)
    bench.fetch(3, 5, start=2)
    assert bench.hw == 5 and bench.log.log_start_offset == (3 if is_doubted else 0)
    bench.fetch(2, 5, start=3)
    assert not bench.log.is_start_doubted
    assert list_offset(bench.partition, EARLIEST_TIMESTAMP).offset == bench.log.log_start_offset
    bench.fetch(2, 5, start=4)  # its retention: from here on that is its own affair
    assert bench.log.log_start_offset == (3 if is_doubted else 0)
    bench.close()


def test_a_follower_out_of_sync_is_no_witness_and_a_sole_replica_asks_nobody(tmp_path: Path) -> None:
    bench = PartitionBench(tmp_path)
    bench.lead(isr=(1, 2))
    bench.append(5)
    bench.log.is_start_doubted = True
    bench.partition.remotes[BrokerId(3)] = bench.partition.remotes[BrokerId(3)]._replace(log_start_offset=Offset(5))
    bench.fetch(2, 5, start=1)
    assert bench.log.log_start_offset == 1
    bench.log.is_start_doubted = True
    bench.partition.isr = IsrState.of([BrokerId(1)])
    bench.partition.settle_log_start()
    with pytest.raises(OffsetNotAvailable):
        bench.partition.check_log_start()
    bench.host.time_ms += 100  # nobody came within replica.lag.time.max.ms
    bench.partition.check_log_start()
    assert bench.log.is_start_doubted
    bench.partition.replicas = (BrokerId(1),)
    bench.partition.settle_log_start()
    assert (bench.log.log_start_offset, bench.log.is_start_doubted) == (1, False)
    bench.close()


def test_a_follower_takes_its_leaders_word(tmp_path: Path) -> None:
    bench = PartitionBench(tmp_path)
    bench.follow()
    bench.log.is_start_doubted = True
    for number, is_doubted in enumerate((True, False)):  # it moves first
        append_as_follower(
            bench.partition,
            batch(3, base_offset=3 * number, leader_epoch=1),
            high_watermark=Offset(3),
            log_start_offset=Offset(2),
        )
        assert (bench.log.log_start_offset, bench.log.is_start_doubted) == (2, is_doubted)
    bench.close()


async def test_a_leader_that_lost_its_log_starts_shows_no_deleted_records(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, fetch_wait_ms=50).with_topic("t") as cluster:
        for _ in range(5):
            assert (await cluster[1].produce("t", batch())).error is None
        for node in (1, 2, 3):
            await cluster[node].logs.checkpoints.write_offsets()
        assert await delete(cluster, 3) == 3
        for node in (1, 2, 3):
            await cluster[node].kill()
        for below in (tmp_path / "broker1", tmp_path / "broker1" / OWN_DIRECTORY):
            for path in below.glob("*-offset-checkpoint"):
                path.unlink()
        for node in (1, 2, 3):
            await cluster[node].start()
        led = cluster[1].partition("t")
        cluster.controller.change("t", leader=1)
        await eventually(lambda: led.is_leader and not led.log.is_start_doubted)
        assert led.log.log_start_offset == 3
        assert isinstance((await cluster[1].consume("t", 0)).error, OffsetOutOfRange)
        await cluster[1].kill()
        await cluster[1].start()
        assert cluster[1].partition("t").log.log_start_offset == 3, "it was saved"
