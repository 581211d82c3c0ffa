"""A key that was deleted stays so, though a replica was away while its tombstone was compacted away: the replica is filled anew."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas_log.cleaner.choice import Range
from barnabas_log.cleaner.rewrite import Job, Result, rewrite
from barnabas_log.config import CleanupPolicy, LogManagerConfig
from barnabas_log.directories import refills
from barnabas_log.disk import RealDisk
from barnabas_log.forgotten import FORGOTTEN_DELETIONS_FILE, Copied
from barnabas_quorum.image.features import METADATA_VERSION, METADATA_VERSION_COMPACTION, METADATA_VERSION_PROOF
from barnabas_quorum.records import FeatureLevelRecord, ReplicaFault
from barnabas_replication.follower.missed_deletions import Intake, intake_of
from barnabas_replication.hosting.repair import RepairStep, ReplicaFacts, next_step
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records
from tests.replication.test_repair import Marks
from tests.support.replicas import FSYNC, MemoryBroker, MiniCluster, PartitionBench, eventually

COMPACTED = replace(
    FSYNC,
    cleanup_policy=CleanupPolicy.COMPACT,
    segment_bytes=600,
    index_interval_bytes=0,
    delete_retention_ms=0,
    file_delete_delay_ms=0,
)


class Inline:
    """A worker within the test."""

    def __init__(self) -> None:
        self.disk = RealDisk()

    async def clean(self, job: Job, *, bytes_per_second: float, on_bytes: Callable[[int], None]) -> Result:
        work = rewrite(self.disk, job)
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: Result = end.value
                return result

    async def rest(self) -> None: ...

    async def close(self) -> None: ...


def keyed(key: str, value: str | None, times: int = 1) -> bytes:
    record = (key.encode(), None if value is None else value.encode())
    return build_batch([Record(number, 1000, *record) for number in range(times)])


def read_keys(broker: MemoryBroker) -> dict[str, str | None]:
    """What a reader of the replica from its start on ends up with."""
    found: dict[str, str | None] = {}
    data = broker.bytes_of("t")
    for position, header in iterate_batches(data):
        if header.record_count:
            for record in iterate_records(memoryview(data)[position : position + header.size_bytes]):
                found[(record.key or b"").decode()] = None if record.value is None else record.value.decode()
    return found


def names_beside(broker: MemoryBroker) -> list[str]:
    """Of second logs that are ready, and of old ones."""
    return [name for name in broker.disk.list_directory(broker.path) if name.startswith("t-0.")]


async def compact(broker: MemoryBroker) -> None:
    """All that is committed, twice: the first run sets the horizon, which has passed when the second comes."""
    log = broker.partition("t").log
    for _ in range(2):
        if log.log_end_offset > log.active.base_offset:
            log.tail.roll(1_700_000_000_000, is_due=True)
        await broker.logs.checkpoints.write_offsets()
        directory = broker.logs.homes.directories[log]
        await broker.logs.cleaner.clean(directory, log, Range(Offset(0), log.active.base_offset, 0, 1))


async def write(broker: MemoryBroker, key: str, value: str | None, times: int = 1) -> None:
    assert (await broker.produce("t", keyed(key, value, times))).error is None


async def settled(cluster: MiniCluster) -> None:
    end = cluster[1].partition("t").log.log_end_offset
    living = [broker for broker in cluster.brokers.values() if broker.manager is not None]
    await eventually(lambda: all(broker.partition("t").high_watermark == end for broker in living))


@contextlib.asynccontextmanager
async def cluster_with_a_stale_replica(
    tmp_path: Path, *, level: int = METADATA_VERSION_PROOF, start: bool = True
) -> AsyncIterator[tuple[MiniCluster, Marks]]:
    """Replica 3 holds a key whose tombstone was written, and compacted away, while it was away."""
    async with MiniCluster(tmp_path, log_config=COMPACTED, fetch_wait_ms=50) as cluster:
        for broker in cluster.brokers.values():
            await broker.stop()
        cluster.manager_config = LogManagerConfig(is_cleaner_enabled=False, scrub_bytes_per_second_max=0)
        cluster.transform = Inline()
        marks = Marks(cluster)
        for broker in cluster.brokers.values():
            await broker.start()
            marks.listen(broker)
        cluster.controller.commit(FeatureLevelRecord(name=METADATA_VERSION, level=level))
        cluster.controller.create("t")
        await write(cluster[1], "kept", "1")
        await write(cluster[1], "deleted", "1")
        await write(cluster[1], "changed", "1")
        await settled(cluster)
        await cluster[3].stop()
        cluster.controller.register(3, is_fenced=True)
        cluster.controller.change("t", isr=(1, 2))
        await write(cluster[1], "deleted", None)
        for number in range(20):
            await write(cluster[1], "changed", str(number), 2)
        await settled(cluster)
        for broker_id in (1, 2):
            await compact(cluster[broker_id])
            assert read_keys(cluster[broker_id]) == {"kept": "1", "changed": "19"}, "the tombstone is gone"
        if start:
            await cluster[3].start()
            marks.listen(cluster[3])
        yield cluster, marks


async def test_a_deleted_key_stays_deleted_though_who_was_away_leads(tmp_path: Path) -> None:
    async with cluster_with_a_stale_replica(tmp_path) as (cluster, marks):
        await eventually(lambda: 3 in cluster.controller.registration("t").isr)
        assert read_keys(cluster[3]) == {"kept": "1", "changed": "19"}
        assert marks.seen == [(3, ReplicaFault.CORRUPT), (3, None)], "it left ISR and ELR first, and is whole again"
        assert cluster[3].partition("t").log.forgotten.below == cluster[1].partition("t").log.forgotten.below
        cluster.controller.change("t", leader=3)
        await write(cluster[3], "new", "1")
        await settled(cluster)
        assert all(
            read_keys(broker) == {"kept": "1", "changed": "19", "new": "1"} for broker in cluster.brokers.values()
        )
        await cluster[3].kill()
        await cluster[3].start()
        assert read_keys(cluster[3]) == {"kept": "1", "changed": "19", "new": "1"}
        assert cluster[3].partition("t").log.forgotten.below == cluster[1].partition("t").log.forgotten.below
        await eventually(lambda: not names_beside(cluster[3]))


async def test_a_leader_that_doubts_what_it_has_forgotten_fills_the_replica_its_high_watermark_waits_for(
    tmp_path: Path,
) -> None:
    """Alone in the ISR, below min.insync.replicas, its high watermark cannot move until the replica joins."""
    async with cluster_with_a_stale_replica(tmp_path, start=False) as (cluster, marks):
        await cluster[2].stop()
        cluster.controller.register(2, is_fenced=True)
        cluster.controller.change("t", isr=(1,))
        log = cluster[1].partition("t").log
        assert cluster[1].manager is not None
        settings = {"t": replace(COMPACTED, min_insync_replicas=2)}
        cluster[1].manager.apply_delta(None, cluster.controller.image, settings=settings)
        await cluster[1].produce("t", keyed("late", "1"), acks=1)
        log.forgotten.publish(log.log_end_offset)  # as a start does that finds no file
        assert cluster[1].partition("t").high_watermark < log.log_end_offset
        await cluster[3].start()
        marks.listen(cluster[3])
        await eventually(lambda: cluster.controller.registration("t").isr == (1, 3))
        await eventually(lambda: cluster[1].partition("t").high_watermark == log.log_end_offset)
        assert read_keys(cluster[3]) == {"kept": "1", "changed": "19", "late": "1"}


async def test_before_the_feature_level_it_is_as_in_kafka(tmp_path: Path) -> None:
    async with cluster_with_a_stale_replica(tmp_path, level=METADATA_VERSION_COMPACTION) as (cluster, marks):
        await eventually(lambda: 3 in cluster.controller.registration("t").isr)
        assert "deleted" in read_keys(cluster[3]) and not marks.seen
        forgotten = cluster[3].partition("t").log.forgotten
        assert forgotten.below == cluster[3].partition("t").log.log_end_offset, "who copies from it must not trust it"


async def test_while_it_is_filled_the_old_log_stays_and_outlives_the_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = asyncio.Event()

    async def never(self: refills.Refills, refill: refills.Refill) -> None:
        held.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(refills.Refills, "seal", never)
    async with cluster_with_a_stale_replica(tmp_path) as (cluster, _):
        async with asyncio.timeout(20):
            await held.wait()
        registration = cluster.controller.registration("t")
        assert registration.fault_of(3) is ReplicaFault.CORRUPT  # type: ignore[arg-type]
        assert 3 not in (*registration.isr, *registration.elr)
        assert read_keys(cluster[3]) == {"kept": "1", "deleted": "1", "changed": "1"}
        for broker_id in (1, 2):
            await cluster[broker_id].kill()
        cluster.controller.change("t", leader=3, isr=(3,))
        assert read_keys(cluster[3])["kept"] == "1" and cluster[3].partition("t").is_leader
        await write(cluster[3], "new", "1")


async def test_a_leader_that_forgets_more_meanwhile_is_read_from_the_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = refills.Refills.begin_copy
    begun: list[Copied] = []

    async with cluster_with_a_stale_replica(tmp_path, start=False) as (cluster, marks):

        async def begin_copy(self: Any, refill: Any, copied: Copied, start: Offset) -> None:
            begun.append(copied)
            await real(self, refill, copied, start)
            if len(begun) == 1:
                for number in range(10):
                    await write(cluster[1], "kept", None)
                    await write(cluster[1], "changed", f"again {number}", 2)
                await settled_two(cluster)
                await compact(cluster[1])

        async def settled_two(cluster: MiniCluster) -> None:
            end = cluster[1].partition("t").log.log_end_offset
            await eventually(lambda: cluster[2].partition("t").high_watermark == end)

        monkeypatch.setattr(refills.Refills, "begin_copy", begin_copy)
        await cluster[3].start()
        marks.listen(cluster[3])
        await eventually(lambda: 3 in cluster.controller.registration("t").isr)
        assert len(begun) == 2 and begun[1].below > begun[0].below
        assert read_keys(cluster[3]) == {"changed": "again 9"}


STEPS = ("before it is sealed", "sealed", "the old one renamed", "in place")


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_each_step_of_the_swap_is_finished_or_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What stands on the disk at that step, copied as a kill would leave it, is opened by another process."""
    taken = asyncio.Event()

    def snap(directory: str) -> None:
        target = tmp_path / "after the kill"
        if not target.exists():
            shutil.copytree(directory, target)
            taken.set()

    real_seal, real_put = refills.Refills.seal, refills.Refills.put_in_place

    async def seal(self: Any, refill: Any) -> None:
        if step == STEPS[0]:
            snap(refill.directory.path)
        await real_seal(self, refill)
        if step == STEPS[1]:
            snap(refill.directory.path)

    def put_in_place(self: Any, refill: Any) -> Any:
        disk = self._disk
        real_sync = disk.sync_directory

        def sync_directory(path: Any) -> None:
            real_sync(path)
            if step == STEPS[2] and not disk.exists(refill.old.directory):
                snap(refill.directory.path)
            if step == STEPS[3] and refill.is_in_place:
                snap(refill.directory.path)

        disk.sync_directory = sync_directory
        try:
            return real_put(self, refill)
        finally:
            disk.sync_directory = real_sync

    monkeypatch.setattr(refills.Refills, "seal", seal)
    monkeypatch.setattr(refills.Refills, "put_in_place", put_in_place)
    async with cluster_with_a_stale_replica(tmp_path / "cluster") as (cluster, marks):
        async with asyncio.timeout(20):
            await taken.wait()
        await eventually(lambda: 3 in cluster.controller.registration("t").isr)
        await cluster[3].stop()
        cluster.controller.register(3, is_fenced=True)
        cluster.controller.change("t", isr=(1, 2))
        cluster[3].path = str(tmp_path / "after the kill")
        await cluster[3].start()
        marks.listen(cluster[3])
        log = cluster[3].partition("t").log
        is_new = step in STEPS[2:]
        if is_new:
            assert read_keys(cluster[3]) == {"kept": "1", "changed": "19"}, "finished"
            assert log.forgotten.below == cluster[1].partition("t").log.forgotten.below
        await eventually(lambda: 3 in cluster.controller.registration("t").isr)
        assert read_keys(cluster[3]) == {"kept": "1", "changed": "19"}, "undone, and filled once more"
        await eventually(lambda: not names_beside(cluster[3]))


async def test_a_new_replica_is_filled_in_place_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with cluster_with_a_stale_replica(tmp_path, start=False) as (cluster, marks):
        shutil.rmtree(Path(cluster[3].path, "t-0"))
        await cluster[3].start()
        marks.listen(cluster[3])
        await eventually(lambda: 3 in cluster.controller.registration("t").isr)
        assert read_keys(cluster[3]) == {"kept": "1", "changed": "19"}
        assert (3, ReplicaFault.CORRUPT) not in marks.seen, "it is no stale one"
        below = cluster[1].partition("t").log.forgotten.below
        log = cluster[3].partition("t").log
        assert log.forgotten.copied == Copied(cluster.controller.registration("t").leader_epoch, below)
        assert cluster[3].disk.exists(f"{log.directory}/{FORGOTTEN_DELETIONS_FILE}")


def test_what_is_taken_in_and_what_not() -> None:
    def intake(below: int, *, start: int, end: int, copied: Copied | None = None) -> Intake:
        return intake_of(
            forgotten_below=Offset(below),
            leader_epoch=Epoch(3),
            log_start_offset=Offset(start),
            log_end_offset=Offset(end),
            copied=copied,
        )

    assert intake(NO_OFFSET, start=0, end=5) is Intake.PLAIN
    assert intake(5, start=0, end=5) is Intake.PLAIN
    assert intake(6, start=0, end=5) is Intake.REFUSED
    assert intake(6, start=5, end=5) is Intake.FIRST_OF_COPY
    assert intake(6, start=0, end=5, copied=Copied(Epoch(3), Offset(6))) is Intake.COPY
    assert intake(7, start=0, end=5, copied=Copied(Epoch(3), Offset(6))) is Intake.REFUSED
    assert intake(6, start=0, end=5, copied=Copied(Epoch(2), Offset(6))) is Intake.REFUSED


def test_nothing_is_filled_anew_that_somebody_counts_on() -> None:
    facts = ReplicaFacts(None, True, True, False, Offset(9), False, has_missed_deletions=True)
    assert next_step(facts) is RepairStep.WAIT
    assert next_step(facts._replace(is_known_out_of_sync=True)) is RepairStep.REFILL
    assert next_step(facts._replace(is_following=False)) is RepairStep.CLEAR


def test_who_is_out_of_sync_hears_what_is_forgotten_past_our_high_watermark_too(tmp_path: Path) -> None:
    """A new leader's high watermark may be older than the compaction of its log."""
    bench = PartitionBench(tmp_path)
    bench.lead(isr=(1, 2))
    bench.append(5)
    bench.log.forgotten.publish(Offset(4))
    assert bench.hw == 0
    assert bench.fetch(3, 2).forgotten_below == 4
    assert bench.fetch(3, 4).forgotten_below == NO_OFFSET
    assert bench.fetch(2, 2).forgotten_below == NO_OFFSET, "it has had all that is committed"
    assert bench.fetch(-1, 0).forgotten_below == NO_OFFSET
    assert bench.fetch(-1, 0, flushed=0).forgotten_below == 4, "a replica that is filled anew"
    bench.close()
