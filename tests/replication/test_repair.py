"""Rot under real logs of three brokers: marked, refetched, proved, put in place, cleared; and what cannot be repaired is reported."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from barnabas_log.directories.manager import LogManager
from barnabas_log.recovery.scrub import DamagedRange
from barnabas_quorum.controller.partition_change import build_change, faults_with
from barnabas_quorum.image.features import METADATA_VERSION, METADATA_VERSION_REPLICA_FAULTS
from barnabas_quorum.records import FeatureLevelRecord, ReplicaFault
from barnabas_replication.hosting.repair import (
    REPAIR_BYTES_MAX,
    DoesNotFit,
    RepairStep,
    ReplicaFacts,
    next_step,
    proved_batches,
)
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.records.batch import CorruptBatch, iterate_batches
from tests.support.replicas import FSYNC, MemoryBroker, MiniCluster, batch, eventually, topic_id_of

SMALL = replace(FSYNC, segment_bytes=1200, index_interval_bytes=200)


class Marks:
    """What brokers report of their replicas, given to the controller's own rule."""

    def __init__(self, cluster: MiniCluster) -> None:
        self.cluster = cluster
        self.seen: list[tuple[int, ReplicaFault | None]] = []

    def listen(self, broker: MemoryBroker) -> None:
        broker.listener.hear_fault = partial(self.report, broker)

    def report(self, broker: MemoryBroker, topic_id: Uuid, number: int, fault: ReplicaFault | None) -> None:
        self.seen.append((broker.id, fault))
        controller = self.cluster.controller
        registration = controller.image.topics.get_by_id(topic_id).partitions[number]  # type: ignore[union-attr]
        change = build_change(
            registration,
            topic_id=topic_id,
            partition_id=number,
            is_acceptable=lambda member: True,
            min_insync_replicas=1,
            target_faults=faults_with(registration, [BrokerId(broker.id)], fault),
        )
        if change is not None:
            controller.commit(change)


@contextlib.asynccontextmanager
async def marked_cluster(
    tmp_path: Path, *, replicas: tuple[int, ...] = (1, 2, 3), lag_ms: int = 30_000
) -> AsyncIterator[Marks]:
    """Topic t, some segments long, on brokers that report faults."""
    async with MiniCluster(tmp_path, log_config=SMALL, lag_ms=lag_ms) as cluster:
        cluster.controller.commit(FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_REPLICA_FAULTS))
        marks = Marks(cluster)
        for broker in cluster.brokers.values():
            marks.listen(broker)
        cluster.controller.create("t", replicas=replicas)
        for number in range(30):
            assert (await cluster[1].produce("t", batch(1 + number % 3, b"v" * 60))).error is None
        await eventually(lambda: all(cluster[n].partition("t").high_watermark == 60 for n in replicas))
        yield marks


def rot(broker: MemoryBroker, offset: int, *, at: int = 70) -> Path:
    """Flip a bit of the batch that holds `offset`, on the disk alone."""
    log = broker.partition("t").log
    segment = log.segments.floor(Offset(offset))
    path = Path(segment.file.path)
    data = bytearray(path.read_bytes())
    for position, header in iterate_batches(bytes(data)):
        if header.base_offset <= offset <= header.last_offset:
            data[position + at] ^= 1
            break
    with path.open("r+b") as file:  # the same file: the broker holds it open
        file.write(data)
    return path


def segment_files(broker: MemoryBroker) -> list[Path]:
    return sorted(Path(broker.path, "t-0").glob("*.log"))


def scribble(path: Path, rng: Random) -> None:
    """Overwrite a few places of a file, in place."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        for _ in range(rng.randint(0, 2) if size else 0):
            start = rng.randrange(size)
            file.seek(start)
            file.write(rng.randbytes(min(size - start, rng.choice([1, 30, 400]))))


def is_well(cluster: MiniCluster) -> bool:
    registration = cluster.controller.registration("t")
    whole = {cluster[n].bytes_of("t") for n in registration.replicas if not cluster[n].partition("t").log.damage}
    return (
        set(registration.isr) == set(registration.replicas)
        and not registration.faults
        and not any(cluster[n].partition("t").log.damage for n in registration.replicas)
        and len(whole) == 1
    )


@pytest.mark.parametrize(("at", "offset"), [(3, 0), (9, 29), (12, 59), (16, 20), (70, 59)])
async def test_a_followers_damage_is_marked_repaired_in_place_and_cleared(tmp_path: Path, offset: int, at: int) -> None:
    async with marked_cluster(tmp_path) as marks:
        cluster = marks.cluster
        whole, size = cluster[1].bytes_of("t"), cluster[2].partition("t").log.size_bytes
        rot(cluster[2], offset, at=at)
        cluster[2].logs.repairs.request_check(cluster[2].partition("t").log)
        await eventually(lambda: bool(marks.seen) and is_well(cluster))
        assert marks.seen == [(2, ReplicaFault.CORRUPT), (2, None)]
        assert cluster[2].bytes_of("t") == whole and cluster[2].partition("t").log.size_bytes == size
        assert cluster[2].logs.repairs.scrub_stats()[cluster[2].path].ranges_repaired == 1
        assert (await cluster[1].produce("t", batch())).error is None


async def test_damage_in_the_batch_that_the_log_start_lies_in_is_repaired(tmp_path: Path) -> None:
    """DeleteRecords had moved the start into it: the leader does not give the batch's first offset, but it gives the batch."""
    async with marked_cluster(tmp_path) as marks:
        cluster = marks.cluster
        key = cluster[1].partition("t").topic_partition
        manager = cluster[1].manager
        assert manager is not None and await manager.delete_records([(key, Offset(4))], timeout_ms=5_000) == [4]
        await eventually(lambda: all(cluster[n].partition("t").log.log_start_offset == 4 for n in (1, 2, 3)))
        rot(cluster[2], 4)
        cluster[2].logs.repairs.request_check(cluster[2].partition("t").log)
        await eventually(lambda: bool(marks.seen) and is_well(cluster))
        assert marks.seen == [(2, ReplicaFault.CORRUPT), (2, None)]


async def test_a_leader_hands_over_repairs_as_follower_and_may_lead_again(tmp_path: Path) -> None:
    async with marked_cluster(tmp_path) as marks:
        cluster = marks.cluster
        whole = cluster[2].bytes_of("t")
        rot(cluster[1], 20)
        cluster[1].logs.repairs.request_check(cluster[1].partition("t").log)
        await eventually(lambda: bool(marks.seen) and is_well(cluster))
        assert cluster.controller.registration("t").leader == 2
        assert cluster[1].bytes_of("t") == whole
        cluster.controller.change("t", leader=1)
        assert (await cluster[1].produce("t", batch())).error is None


async def test_alone_a_replica_reports_its_damage_and_serves_all_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with marked_cluster(tmp_path, replicas=(1,)) as marks:
        cluster = marks.cluster
        rot(cluster[1], 20)
        log = cluster[1].partition("t").log
        cluster[1].logs.repairs.request_check(log)
        await eventually(lambda: bool(log.damage))
        (damage,) = log.damage
        for offset in range(60):
            outcome = await cluster[1].consume("t", offset)
            if damage.first_offset <= offset < damage.end_offset:
                assert outcome.error is not None and outcome.error.code is ErrorCode.CORRUPT_MESSAGE
            else:
                assert outcome.error is None and outcome.size_bytes > 0
        assert (await cluster[1].produce("t", batch())).error is None
        reported = "no other replica in sync is there"
        await eventually(lambda: any(reported in record.message for record in caplog.records))
        registration = cluster.controller.registration("t")
        assert registration.leader == 1 and registration.fault_of(BrokerId(1)) is ReplicaFault.CORRUPT


async def test_a_restart_knows_what_was_damaged_and_repairs_it(tmp_path: Path) -> None:
    async with marked_cluster(tmp_path) as marks:
        cluster = marks.cluster
        cluster.cut_links.update(frozenset((2, other)) for other in (1, 3))
        rot(cluster[2], 20)
        cluster[2].logs.repairs.request_check(cluster[2].partition("t").log)
        await eventually(lambda: bool(cluster[2].partition("t").log.damage))
        (damage,) = cluster[2].partition("t").log.damage
        await cluster[2].stop()
        await cluster[2].start()
        assert cluster[2].partition("t").log.damage == (damage,), "known before it serves a byte"
        marks.listen(cluster[2])
        cluster.cut_links.clear()
        await eventually(lambda: is_well(cluster))


async def test_what_was_read_of_producers_beside_damage_that_is_gone_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It led, and refused every batch of every producer, until it was restarted."""
    load = LogManager.load

    async def load_and_check(self: LogManager) -> None:
        await load(self)
        for log in self.logs.values():
            for damage in log.damage:
                assert await self.repairs.check(log, damage.segment)  # before the partition is hosted

    async with marked_cluster(tmp_path) as marks:
        cluster = marks.cluster
        cluster[2].listener.hear_fault = lambda *report: None  # it is lost
        cluster.cut_links.update(frozenset((2, other)) for other in (1, 3))
        rot(cluster[2], 20)
        cluster[2].logs.repairs.request_check(cluster[2].partition("t").log)
        await eventually(lambda: bool(cluster[2].partition("t").log.damage))
        rot(cluster[2], 20)  # back again, as where it was cut off and fetched anew
        await cluster[2].stop()
        monkeypatch.setattr(LogManager, "load", load_and_check)
        await cluster[2].start()
        log = cluster[2].partition("t").log
        assert not log.damage
        assert log.doubted_from == 19
        cluster.cut_links.clear()
        await eventually(lambda: log.doubted_from == NO_OFFSET)


async def test_a_bit_that_flips_while_its_broker_is_stopped_cleanly_is_found_by_the_scrub_alone(tmp_path: Path) -> None:
    """It rejoined the ISR, might lead, and nobody knew."""
    async with marked_cluster(tmp_path) as marks:
        cluster = marks.cluster
        whole = cluster[1].bytes_of("t")
        await cluster[2].stop()
        path = segment_files(cluster[2])[1]
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 16
        path.write_bytes(data)
        await cluster[2].start()
        marks.listen(cluster[2])
        await eventually(lambda: path.read_bytes() != bytes(data) and is_well(cluster))
        assert cluster[2].bytes_of("t") == whole


async def test_a_replica_that_the_cluster_takes_for_corrupt_is_read_whole_before_it_is_cleared(tmp_path: Path) -> None:
    async with marked_cluster(tmp_path) as marks:
        cluster = marks.cluster
        await cluster[2].stop()
        marks.report(cluster[2], topic_id_of("t"), 0, ReplicaFault.CORRUPT)
        data = bytearray(segment_files(cluster[2])[0].read_bytes())
        data[100] ^= 1
        segment_files(cluster[2])[0].write_bytes(data)
        await cluster[2].start()
        marks.listen(cluster[2])
        await eventually(lambda: is_well(cluster))
        assert marks.seen[-1] == (2, None)
        assert cluster[2].logs.repairs.scrub_stats()[cluster[2].path].ranges_repaired == 1


async def test_damage_above_the_high_watermark_is_cut_once_nobody_counts_on_the_replica(tmp_path: Path) -> None:
    async with marked_cluster(tmp_path) as marks:
        cluster = marks.cluster
        partition = cluster[2].partition("t")
        rot(cluster[2], 59)
        # as where the leader has not told of its HW, and never will, for it is below min.insync.replicas
        partition.high_watermark = Offset(50)
        cluster.cut_links.add(frozenset((1, 2)))
        cluster[2].logs.repairs.request_check(partition.log)
        await eventually(lambda: partition.log.log_end_offset < 60)
        assert cluster.controller.registration("t").isr == (1, 3), "it left the ISR before"
        assert cluster[2].logs.repairs.scrub_stats()[cluster[2].path].ranges_repaired == 0, "not yet"
        cluster.cut_links.clear()
        await eventually(lambda: is_well(cluster))
        assert cluster[2].logs.repairs.scrub_stats()[cluster[2].path].ranges_repaired == 1


async def test_a_leader_whose_follower_refuses_what_it_sends_finds_its_own_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with marked_cluster(tmp_path, lag_ms=200) as marks:
        cluster = marks.cluster
        await cluster[3].stop()
        cluster.controller.change("t", isr=(1, 2))
        for _ in range(6):
            assert (await cluster[1].produce("t", batch(2, b"w" * 60))).error is None
        rot(cluster[1], 66)
        await cluster[3].start()
        marks.listen(cluster[3])
        await eventually(lambda: marks.seen[:1] == [(1, ReplicaFault.CORRUPT)] and is_well(cluster))
        refused = [record for record in caplog.records if "is refused" in record.message]
        assert [record.levelno for record in refused] == [logging.WARNING, logging.ERROR], "the first may be no damage"


async def test_random_rot_in_a_minority_ends_with_equal_replicas(tmp_path: Path) -> None:
    rng = Random(11)
    async with marked_cluster(tmp_path) as marks:
        cluster = marks.cluster
        whole = cluster[1].bytes_of("t")
        for _ in range(4):
            victim = rng.choice(list(cluster.brokers.values()))
            for path in segment_files(victim):
                scribble(path, rng)
            for broker in cluster.brokers.values():
                broker.logs.repairs.request_check(broker.partition("t").log)
            await eventually(
                lambda: (
                    not any(
                        broker.logs.repairs.is_check_requested(broker.partition("t").log)
                        for broker in cluster.brokers.values()
                    )
                    and is_well(cluster)
                )
            )
            assert cluster[1].bytes_of("t") == whole


def facts(**changes: object) -> ReplicaFacts:
    damage = DamagedRange(Offset(5), Offset(8), Offset(0), 100, 200, "rot")
    usual = ReplicaFacts(
        damage=damage,
        is_proved=True,
        is_following=True,
        is_known_out_of_sync=False,
        high_watermark=Offset(9),
        is_unrepairable=False,
    )
    return usual._replace(**changes)  # type: ignore[arg-type]


def test_what_is_done_next() -> None:
    assert next_step(facts()) is RepairStep.REFETCH
    assert next_step(facts(is_following=False)) is RepairStep.WAIT
    assert next_step(facts(damage=None)) is RepairStep.CLEAR
    assert next_step(facts(damage=None, is_proved=False)) is RepairStep.PROVE
    huge = DamagedRange(Offset(5), Offset(8), Offset(0), 0, REPAIR_BYTES_MAX + 1, "rot")
    for reason in ({"high_watermark": 7}, {"is_unrepairable": True}, {"damage": huge}):
        assert next_step(facts(**reason)) is RepairStep.WAIT, "an ISR member may be elected for what it would cut off"
        assert next_step(facts(**reason, is_known_out_of_sync=True)) is RepairStep.CUT
        assert next_step(facts(**reason, is_known_out_of_sync=True, is_following=False)) is RepairStep.WAIT


def test_only_sound_batches_of_the_wanted_offsets_and_epochs_are_taken() -> None:
    good = batch(2, base_offset=5, leader_epoch=2) + batch(1, base_offset=7, leader_epoch=3)
    wanted = {"expected": Offset(5), "end_offset": Offset(8), "epochs": (Epoch(2), Epoch(3))}
    assert proved_batches(good, **wanted) == len(good)  # type: ignore[arg-type]
    assert proved_batches(good + good[:70], **wanted) == len(good), "what follows is not looked at"  # type: ignore[arg-type]
    assert proved_batches(good[:-1], **wanted) < len(good)  # type: ignore[arg-type]
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x40
        with contextlib.suppress(CorruptBatch, DoesNotFit):
            assert proved_batches(bytes(bad), **wanted) < len(good), position  # type: ignore[arg-type]
    for changed in ({"expected": Offset(4)}, {"end_offset": Offset(6)}, {"epochs": (Epoch(3), Epoch(3))}):
        with pytest.raises(DoesNotFit):
            proved_batches(good, **(wanted | changed))  # type: ignore[arg-type]
