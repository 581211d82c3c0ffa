"""All logs of a broker: loading, checkpoints, retention, deletion, failing directories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from barnabas_log.directories import checkpoints
from barnabas_log.directories.directory_state import OWN_DIRECTORY, LostReplica
from barnabas_log.directories.log_directory import parse_directory_name
from barnabas_log.directories.manager import LogManager
from barnabas_log.directories.manager_listener import LogManagerListener
from barnabas_log.directories.topic_witness import WITNESS_FILE, Fate, Identity, fate_of, identity_of, read_witnesses
from barnabas_log.disk import RealDisk
from barnabas_log.errors import InconsistentTopicId, OutOfOrderSequence, ProducersInDoubt, StorageFailed
from barnabas_log.forgotten import Copied
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail import truncating
from barnabas_log.tail.flush import RETRY_S as FLUSH_RETRY_S
from barnabas_log.tail.log_tail import UNNAMED_SEGMENTS_MAX
from barnabas_log.tail.producer_snapshots import list_snapshots, snapshot_path, write_snapshot
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import NO_OFFSET, ZERO_UUID, Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.records.batch import iterate_batches
from tests.support.logs import NOW_MS, append, content, flush, make_batch, make_config, open_log, take
from tests.support.turns import turns

OTHER_ID = Uuid(b"o" * 16)
TOPIC_ID = Uuid(b"t" * 16)
A0, B1, C2 = TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("c", 2)


def damage(disk: MemoryDisk, path: str, content: bytes | None) -> None:
    """Leave the file with that content, or not at all."""
    if content is None:
        disk.remove(path)
    else:
        disk.names[path].content[:] = content


class Broker(LogManagerListener):
    """A manager over a disk, with what it told."""

    def __init__(self, disk: MemoryDisk | RealDisk, *directories: str) -> None:
        self.disk = disk
        self.now_ms = NOW_MS
        self.flushed: list[tuple[TopicPartition, int]] = []
        self.failed: list[str] = []
        self.manager = LogManager(
            disk=disk,
            directories=directories or ("one",),
            default_config=make_config(retention_ms=10_000, file_delete_delay_ms=100),
            clock_ms=lambda: self.now_ms,
        )
        self.manager.serve(self)

    def on_flushed(self, log: UnifiedLog) -> None:
        self.flushed.append((log.topic_partition, log.flushed_end_offset))

    def on_directory_failed(self, directory: str, error: OSError) -> None:
        self.failed.append(directory)

    def log(self, topic_partition: TopicPartition = A0, topic_id: Uuid = TOPIC_ID) -> UnifiedLog:
        return self.manager.get_or_create(
            topic_partition, topic_id, make_config(retention_ms=10_000, file_delete_delay_ms=100)
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.manager.run())
        await turns()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def loaded(disk: MemoryDisk | RealDisk, *directories: str) -> Broker:
    broker = Broker(disk, *directories)
    await broker.manager.load()
    return broker


async def gone(find: Callable[[], list[str]]) -> None:
    """Wait until nothing is found."""
    async with asyncio.timeout(30):
        while find():
            await asyncio.sleep(0.01)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


async def test_logs_survive_a_clean_stop_and_a_kill(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    assert not broker.manager.is_clean_start
    for log in (broker.log(), broker.log(B1)):
        for n in range(40):
            append(log, make_batch(2, timestamp_ms=NOW_MS + n))
    broker.log().update_high_watermark(Offset(30))
    broker.log().delete_records_before(Offset(7))
    whole = content(broker.log())
    await broker.manager.close(broker_epoch=77)
    assert disk.exists("one/.kafka_cleanshutdown")

    again = await loaded(disk)
    assert again.manager.is_clean_start and again.manager.previous_broker_epoch == 77
    assert not disk.exists("one/.kafka_cleanshutdown"), "it speaks of one start only"
    assert set(again.manager.logs) == {A0, B1} and again.log().topic_id == TOPIC_ID
    assert (again.log().log_start_offset, again.log().log_end_offset, again.log(B1).log_end_offset) == (7, 80, 80)
    assert content(again.log()) == whole and again.log().recovery_report.scanned_bytes == 0

    killed = await loaded(disk)  # the second manager never stopped
    assert not killed.manager.is_clean_start and killed.manager.previous_broker_epoch == -1
    assert content(killed.log()) == whole and killed.manager.stats.logs_recovered == 2
    assert killed.manager.stats.recovery_scanned_bytes > 0


async def test_a_directory_that_stopped_uncleanly_hides_the_broker_epoch(disk: MemoryDisk) -> None:
    broker = await loaded(disk, "one", "two")
    await broker.manager.close(broker_epoch=5)
    disk.remove("two/.kafka_cleanshutdown")
    again = await loaded(disk, "one", "two")
    assert (again.manager.is_clean_start, again.manager.previous_broker_epoch) == (False, -1)


async def test_new_logs_go_where_the_fewest_are(disk: MemoryDisk) -> None:
    broker = await loaded(disk, "one", "two")
    for n in range(4):
        broker.log(TopicPartition("t", n))
    assert sorted(log.directory for log in broker.manager.logs.values()) == ["one/t-0", "one/t-2", "two/t-1", "two/t-3"]
    with pytest.raises(InconsistentTopicId):
        broker.log(TopicPartition("t", 0), Uuid(b"x" * 16))


@pytest.mark.parametrize("name", ["partition.metadata", WITNESS_FILE])
@pytest.mark.parametrize("left", [None, b"", bytes(43)])
async def test_a_log_with_one_witness_serves_its_topic_and_no_other(
    disk: MemoryDisk, name: str, left: bytes | None
) -> None:
    broker = await loaded(disk)
    append(broker.log())
    await broker.manager.close()
    damage(disk, f"one/a-0/{name}", left)
    again = await loaded(disk)
    with pytest.raises(InconsistentTopicId):
        again.log(A0, OTHER_ID)
    assert again.log().log_end_offset == 1 and again.log().identity is Identity.PROVED
    assert read_witnesses(disk, "one/a-0", A0) == (TOPIC_ID, TOPIC_ID), "what was missing is written anew"


@pytest.mark.parametrize("left", [None, b"", bytes(43)])
async def test_a_log_without_a_witness_serves_nobody_unless_it_holds_nothing(
    disk: MemoryDisk, left: bytes | None
) -> None:
    broker = await loaded(disk)
    append(broker.log())
    broker.log(B1)
    await broker.manager.close()
    for directory in ("a-0", "b-1"):
        for name in ("partition.metadata", WITNESS_FILE):
            damage(disk, f"one/{directory}/{name}", left)
    again = await loaded(disk)
    with pytest.raises(InconsistentTopicId, match="is of topic id"):
        again.log()
    assert again.log(B1, OTHER_ID).topic_id == OTHER_ID, "it holds nothing"
    kept_in = again.manager.give_up(A0, LostReplica(TOPIC_ID, Offset(1), "why"))
    assert kept_in is not None and kept_in.endswith("-stray") and f"{kept_in}/{0:020d}.log" in disk.names
    assert again.log().log_end_offset == 0
    found = (await loaded(disk)).manager
    assert found.lost_replica(A0, TOPIC_ID) == LostReplica(TOPIC_ID, Offset(1), "why"), "a restart does not forget it"
    assert found.lost_replica(A0, OTHER_ID) is None
    found.forget_lost(A0)
    assert (await loaded(disk)).manager.lost_replica(A0, TOPIC_ID) is None


async def test_every_flipped_bit_of_a_witness_leaves_the_log_to_its_topic_or_sets_it_aside(disk: MemoryDisk) -> None:
    append((await loaded(disk)).log())
    for name in ("partition.metadata", WITNESS_FILE):
        path = f"one/a-0/{name}"
        sound = disk.read_file(path)
        for position in range(len(sound)):
            for bit in range(8):
                flipped = bytearray(sound)
                flipped[position] ^= 1 << bit
                damage(disk, path, bytes(flipped))
                said = read_witnesses(disk, "one/a-0", A0)
                identity = identity_of(said, holds_records=True, has_second=True)
                assert fate_of(identity, said.topic_id, topic_id=TOPIC_ID) is not Fate.REMOVE, (name, position, bit)
                assert (
                    fate_of(identity, said.topic_id, topic_id=OTHER_ID) is not Fate.SERVE or said.topic_id == OTHER_ID
                )
        damage(disk, path, sound)


async def test_a_log_of_a_version_without_the_second_witness_gets_it_at_its_first_start(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    append(broker.log())
    await broker.manager.close()
    disk.remove(f"one/a-0/{WITNESS_FILE}")
    disk.remove_tree(f"one/{OWN_DIRECTORY}")  # as a former version does when it starts
    again = await loaded(disk)
    found = again.manager.get(A0)
    assert found is not None and found.identity is Identity.PROVED
    assert fate_of(found.identity, found.topic_id, topic_id=OTHER_ID) is Fate.REMOVE, (
        "today's rule for a deleted topic's log"
    )
    assert read_witnesses(disk, "one/a-0", A0) == (TOPIC_ID, TOPIC_ID)
    disk.remove(f"one/a-0/{WITNESS_FILE}")
    later = (await loaded(disk)).manager.get(A0)
    assert later is not None and later.identity is Identity.TOLD, "it had one, so that its loss is a damage"


async def test_what_was_flushed_and_is_gone_is_written_down_before_the_checkpoint_forgets_it(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    for name in (A0, B1, C2):
        for _ in range(5):
            append(broker.log(name))
    await broker.manager.close()
    disk.remove_tree("one/a-0")
    for path in [path for path in disk.names if path.startswith(f"one/{C2}/")]:
        disk.remove(path)  # and its directory stays
    disk.names[f"one/b-1/{0:020d}.log"].content[-3:] = b""
    for _ in range(2):  # a crash before anybody heard of it
        manager = (await loaded(disk)).manager
        lost = manager.lost_replica(A0, TOPIC_ID)
        assert lost is not None and lost.end_offset == 5 and "one/a-0 is gone" in lost.why
        lost = manager.lost_replica(B1, TOPIC_ID)
        assert lost is not None and lost.end_offset == 5 and "ends at offset 4" in lost.why
        lost = manager.lost_replica(C2, TOPIC_ID)
        assert lost is not None and lost.end_offset == 5 and "ends at offset 0" in lost.why
    assert manager.lost_replica(A0, OTHER_ID) is None, "another topic of that name has lost nothing"


async def test_a_flipped_bit_in_the_last_batch_is_no_loss_of_the_log(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    for _ in range(5):
        append(broker.log())
    await broker.manager.close()
    disk.remove("one/.kafka_cleanshutdown")
    disk.names[f"one/a-0/{0:020d}.log"].content[-3] ^= 1
    again = await loaded(disk)
    assert again.manager.lost_replica(A0, TOPIC_ID) is None and len(again.log().damage) == 1


async def test_a_deleted_topics_log_is_not_missed_though_the_checkpoint_still_names_it(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    append(broker.log())
    await broker.manager.close()
    broker = await loaded(disk)
    broker.manager.delete(A0)  # and a crash before the file forgets it
    again = await loaded(disk)
    assert again.log(A0, OTHER_ID).log_end_offset == 0
    assert again.manager.lost_replica(A0, OTHER_ID) is None


@pytest.mark.parametrize("seed", range(20))
async def test_what_a_killed_process_wrote_is_durable_with_its_topic_id_once_it_is_recovered(seed: int) -> None:
    disk = MemoryDisk()
    killed = await loaded(disk)
    append(killed.log())
    killed.log().tail.write_pending(is_forced=True)
    recovered = await loaded(disk)
    end = recovered.manager.logs[A0].flushed_end_offset
    assert end > 0
    left = (await loaded(disk.crash(Random(seed)))).manager.logs
    assert left[A0].flushed_end_offset == end and left[A0].topic_id == TOPIC_ID


async def test_the_name_of_a_log_that_a_killed_process_made_is_flushed_before_it_counts() -> None:
    class WatchedDisk(MemoryDisk):
        synced: ClassVar[list[str]] = []

        def sync_directory(self, path: str | Path) -> None:
            self.synced.append(str(path))
            super().sync_directory(path)

    disk = WatchedDisk()
    append((await loaded(disk)).log())
    disk.synced.clear()
    assert A0 in (await loaded(disk)).manager.logs
    assert "one" in disk.synced


async def test_requested_flushes_are_reported(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    async with broker.running():
        append(broker.log())
        append(broker.log(B1))
        for log in (broker.log(), broker.log(B1)):
            broker.manager.request_flush(log)
        await turns()
        assert sorted(broker.flushed) == [(A0, 1), (B1, 1)]
        assert broker.manager.flush_stats()["one"].round_s.count == 2


async def test_a_rolled_segment_is_flushed_without_being_asked(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    async with broker.running():
        log = broker.log()
        while log.segment_count == 1:
            append(log)
        await turns()
        assert broker.flushed and log.flushed_end_offset == log.written_end_offset


@pytest.mark.parametrize("is_follower", [False, True])
async def test_a_roll_never_waits_for_the_disk_while_flushes_run(
    monkeypatch: pytest.MonkeyPatch, is_follower: bool
) -> None:
    """In page cache mode nothing was flushed before the first roll, whose loop then waited for the directory's names."""
    disk = MemoryDisk()
    source = open_log(MemoryDisk(), config=make_config(segment_bytes=1 << 20))
    broker = await loaded(disk)
    async with broker.running():
        log = broker.log()
        disk.hold_flushes()
        blocking: list[str] = []
        monkeypatch.setattr(disk, "sync_directory", blocking.append)

        def take_one() -> None:
            offset = append(source, make_batch(2))
            if is_follower:
                read = source.read(offset, bytes_max=1 << 20, end=source.log_end_offset, at_least_one_batch=True)
                log.tail.append_as_follower(take(read), leader_epoch=Epoch(0))
            else:
                append(log, make_batch(2))

        while log.size_bytes < 1.8 * log.config.segment_bytes:
            take_one()
            await turns()
        assert log.segment_count == 1 and blocking == [], "it goes on in the full one, and the loop goes on too"
        disk.let_go()
        await turns()
        take_one()
        assert log.segment_count == 2 and log.base_offsets[1] == log.log_end_offset - 2 and blocking == []
        disk.hold_flushes()
        while log.segment_count < 2 + UNNAMED_SEGMENTS_MAX - 1:
            take_one()
            await turns()
        assert blocking == [], "a flush that takes long holds up no roll"
        while log.segment_count < 2 + UNNAMED_SEGMENTS_MAX:
            take_one()
            await turns()
        assert blocking == [log.directory], "until too many names have piled up"
        assert log.size_bytes < (2 + 2 * UNNAMED_SEGMENTS_MAX) * log.config.segment_bytes
        disk.let_go()
        await turns()
        assert content(log) == content(source)


async def test_a_roll_after_a_cut_that_is_not_flushed_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut may undo the cut and keep what was rolled since, which would follow what was cut."""
    disk = MemoryDisk()
    broker = await loaded(disk)
    async with broker.running():
        log = broker.log()
        append(log, make_batch(2))
        append(log, make_batch(2))
        disk.hold_flushes()
        blocking: list[str] = []
        monkeypatch.setattr(disk, "sync_directory", blocking.append)
        truncating.truncate_to(log, Offset(2))
        while log.segment_count == 1:
            append(log, make_batch(2))
            await turns()
        assert blocking == [log.directory]
        disk.let_go()


async def test_retention_of_all_there_is_does_not_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    broker = await loaded(disk)
    async with broker.running():
        log = broker.log()
        append(log, make_batch(timestamp_ms=NOW_MS - 20_000))
        log.update_high_watermark(Offset(1))
        disk.hold_flushes()
        blocking: list[str] = []
        monkeypatch.setattr(disk, "sync_directory", blocking.append)
        await broker.manager.apply_retention()
        assert blocking == [] and log.log_start_offset == 0, "nothing else has a durable name"
        disk.let_go()
        await turns()
        await broker.manager.apply_retention()
        await turns()
        assert blocking == [] and log.log_start_offset == 1


async def test_a_slow_flush_holds_writes_back_and_readers_see_what_is_written(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    async with broker.running():
        log = broker.log()
        append(log)
        disk.hold_flushes()
        broker.manager.request_flush(log)
        await turns()
        append(log)
        assert log.written_end_offset == 2, "a young flush is in nobody's way"
        log.durability.flush_round.began_at_s -= 1  # type: ignore[union-attr]
        append(log)
        assert (log.log_end_offset, log.written_end_offset) == (3, 2)
        read = log.read(Offset(0), bytes_max=9999, end=Offset(3), at_least_one_batch=True)
        assert read.next_offset == 2
        read.parts[0].file.release()
        other = broker.log(B1)
        append(other)
        assert other.written_end_offset == 1, "its file is not being flushed"
        broker.manager.request_flush(log)
        disk.let_go()
        await turns()
        assert log.flushed_end_offset == log.written_end_offset == 3


async def test_a_failed_flush_takes_the_directory_offline(disk: MemoryDisk) -> None:
    broker = await loaded(disk, "one", "two")
    log, other = broker.log(), broker.log(B1)
    async with broker.running():
        disk.fail_on = lambda operation, path: operation == "sync" and path.startswith("one/")
        append(log)
        broker.manager.request_flush(log)
        await turns()
        assert broker.failed == ["one"] and broker.manager.health.offline_directories == ["one"]
        with pytest.raises(StorageFailed):
            append(log)
        append(other)
        broker.manager.request_flush(other)
        await turns()
        assert broker.flushed == [(B1, 1)]
        assert broker.log(TopicPartition("new", 0)).directory.startswith("two/")
        disk.fail_on = lambda operation, path: False
    await broker.manager.close()
    assert not disk.exists("one/.kafka_cleanshutdown") and disk.exists("two/.kafka_cleanshutdown")


async def test_a_directory_that_cannot_be_loaded_is_offline_and_the_others_serve(disk: MemoryDisk) -> None:
    broker = await loaded(disk, "one", "two", "three")
    for log in (broker.log(), broker.log(B1)):
        append(log)
    await broker.manager.close(broker_epoch=7)
    disk.fail_on = lambda operation, path: operation == "read" and path.startswith("one/a-0")
    manager = LogManager(
        disk=disk,
        directories=("one", "two", "three"),
        default_config=make_config(),
        clock_ms=lambda: NOW_MS,
        directory_ids={"one": Uuid(b"1" * 16), "two": Uuid(b"2" * 16)},
        offline={"three": OSError(5, "input/output error")},
    )
    await manager.load()
    assert (manager.health.online_directories, manager.health.offline_directories) == (["two"], ["one", "three"])
    assert manager.health.online_directory_ids == [Uuid(b"2" * 16)]
    assert list(manager.logs) == [B1], "what was opened in a directory that fails is let go"
    assert manager.previous_broker_epoch == 7, "what works was stopped cleanly"
    new = manager.get_or_create(A0, TOPIC_ID, make_config(), directory_id=Uuid(b"1" * 16))
    assert new.directory.startswith("two/"), "never in one that is offline"
    await manager.close()


async def test_a_new_log_goes_where_the_cluster_has_it(disk: MemoryDisk) -> None:
    ids = {"one": Uuid(b"1" * 16), "two": Uuid(b"2" * 16)}
    manager = LogManager(
        disk=disk, directories=tuple(ids), default_config=make_config(), clock_ms=lambda: NOW_MS, directory_ids=ids
    )
    await manager.load()
    for partition in range(3):
        log = manager.get_or_create(TopicPartition("a", partition), TOPIC_ID, make_config(), directory_id=ids["two"])
        assert log.directory.startswith("two/")
    assert manager.get_or_create(B1, TOPIC_ID, make_config()).directory.startswith("one/"), (
        "else where there are fewest"
    )
    await manager.close()


async def test_without_any_directory_nothing_is_loaded(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    append(broker.log())
    await broker.manager.close()
    disk.fail_on = lambda operation, path: operation == "read"
    with pytest.raises(StorageFailed, match="no log directory works: one: "):
        await loaded(disk)


async def test_a_failed_write_takes_the_directory_offline_and_the_last_leaves_no_place(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    log = broker.log()
    disk.fail_on = lambda operation, path: operation == "append"
    with pytest.raises(StorageFailed):
        append(log)
    assert broker.failed == ["one"] and broker.manager.health.online_directories == []
    with pytest.raises(StorageFailed, match="no log directory"):
        broker.log(B1)


async def test_a_topic_id_that_cannot_be_written_fails_the_directory(disk: MemoryDisk) -> None:
    """Else its leader would host nothing, and the cluster would not hear of it."""
    append((await loaded(disk)).log())
    del disk.names["one/a-0/partition.metadata"]
    broker = await loaded(disk)
    disk.fail_on = lambda operation, path: operation == "write" and path.endswith("partition.metadata")
    with pytest.raises(StorageFailed):
        broker.log()
    assert broker.failed == ["one"]


async def test_checkpoints_say_what_is_flushed_and_epochs_come_first(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    log = broker.log()
    append(log, epoch=3)
    flush(log)
    append(log, epoch=3)
    await broker.manager.checkpoints.write_offsets()
    assert checkpoints.read_offsets(disk, "one/recovery-point-offset-checkpoint") == {A0: 1}
    assert checkpoints.read_epochs(disk, "one/a-0/leader-epoch-checkpoint") == [(3, 0)]

    order: list[str] = []
    write = disk.write_file_atomically
    disk.write_file_atomically = lambda path, data: order.append(path) or write(path, data)  # type: ignore[method-assign, func-returns-value]
    append(log, epoch=4)
    await broker.manager.checkpoints.write_offsets()
    assert order.index("one/a-0/leader-epoch-checkpoint") < order.index("one/recovery-point-offset-checkpoint")


async def test_a_truncation_below_the_saved_recovery_point_lowers_it_at_once(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    log = broker.log()
    for _ in range(10):
        append(log)
    flush(log)
    await broker.manager.checkpoints.write_offsets()
    truncating.truncate_to(log, Offset(12))
    assert checkpoints.read_offsets(disk, "one/recovery-point-offset-checkpoint") == {A0: 10}
    truncating.truncate_to(log, Offset(4))
    assert checkpoints.read_offsets(disk, "one/recovery-point-offset-checkpoint") == {A0: 4}


async def test_a_start_that_finds_less_than_was_flushed_says_so_before_more_is_written(disk: MemoryDisk) -> None:
    """Else the next start would believe what is written below the former point, and not yet flushed, unread."""
    log = (broker := await loaded(disk)).log()
    for _ in range(10):
        append(log)
    log.update_high_watermark(Offset(10))
    flush(log)
    await broker.manager.checkpoints.write_offsets()
    await broker.manager.checkpoints.write_high_watermarks()
    del disk.names["one/a-0/00000000000000000000.log"]
    found = (await loaded(disk)).manager.logs[A0].log_end_offset
    assert found == 0
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert checkpoints.read_offsets(disk, f"one/{name}") == {A0: 0}


@pytest.mark.parametrize("is_checkpoint_under_way", [False, True])
async def test_a_log_that_starts_over_lower_is_not_cut_by_its_former_start(
    disk: MemoryDisk, is_checkpoint_under_way: bool
) -> None:
    """As where a leader was elected uncleanly. What it took in since is flushed, and counted on."""
    broker = await loaded(disk)
    log = broker.log()
    truncating.truncate_fully_and_start_at(log, Offset(500))
    append(log, epoch=3)
    log.update_high_watermark(Offset(501))
    flush(log)
    writing = asyncio.gather(
        broker.manager.checkpoints.write_offsets(), broker.manager.checkpoints.write_high_watermarks()
    )
    if is_checkpoint_under_way:
        await asyncio.sleep(0)
    else:
        await writing
    truncating.truncate_fully_and_start_at(log, Offset(0))
    await writing
    append(log, make_batch(20), epoch=5)
    flush(log)
    again = (await loaded(disk.crash(Random(1)))).manager.logs[A0]
    assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (0, 0, 20)


async def test_a_checkpoint_begun_before_a_truncation_does_not_undo_it(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    log = broker.log()
    for _ in range(10):
        append(log)
    flush(log)
    writing = asyncio.create_task(broker.manager.checkpoints.write_offsets())
    await asyncio.sleep(0)
    truncating.truncate_to(log, Offset(4))
    await writing
    assert checkpoints.read_offsets(disk, "one/recovery-point-offset-checkpoint") == {A0: 4}


async def test_a_checkpoint_covers_nothing_whose_epochs_came_after_their_file(disk: MemoryDisk) -> None:
    """The epochs of many logs take their time to write: one may be cut and refilled by a new leader before the points are."""
    broker = await loaded(disk)
    log, other = broker.log(), broker.log(B1)
    append(log, make_batch(10), epoch=3)
    append(other, epoch=3)
    flush(log)
    flush(other)

    def refill(operation: str, path: str) -> bool:
        if (operation, path) == ("write", "one/b-1/leader-epoch-checkpoint") and log.latest_epoch == 3:
            truncating.truncate_to(log, Offset(0))
            append(log, make_batch(10), epoch=4)
            flush(log)
        return False

    disk.fail_on = refill
    await broker.manager.checkpoints.write_offsets()
    assert checkpoints.read_epochs(disk, "one/a-0/leader-epoch-checkpoint") == [(3, 0)]
    assert checkpoints.read_offsets(disk, "one/recovery-point-offset-checkpoint") == {A0: 0, B1: 1}
    await broker.manager.checkpoints.write_offsets()
    assert checkpoints.read_epochs(disk, "one/a-0/leader-epoch-checkpoint") == [(4, 0)]
    assert checkpoints.read_offsets(disk, "one/recovery-point-offset-checkpoint") == {A0: 10, B1: 1}


async def test_a_log_deleted_during_a_checkpoint_does_no_harm(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    for log in (broker.log(), broker.log(B1)):
        append(log, epoch=2)
        flush(log)
    writing = asyncio.create_task(broker.manager.checkpoints.write_offsets())
    await asyncio.sleep(0)
    broker.manager.delete(A0)
    await writing
    assert broker.failed == []
    assert checkpoints.read_offsets(disk, "one/recovery-point-offset-checkpoint") == {B1: 1}


class DatedDisk(MemoryDisk):
    """When a file was renamed and removed, by the loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.renamed_s: dict[str, float] = {}
        self.removed_s: dict[str, float] = {}

    def rename(self, source: Any, target: Any) -> None:
        super().rename(source, target)
        self.renamed_s[str(target)] = asyncio.get_running_loop().time()

    def remove(self, path: Any) -> None:
        super().remove(path)
        self.removed_s[str(path)] = asyncio.get_running_loop().time()


async def test_retention_runs_over_all_logs_and_their_files_go_after_the_delay() -> None:
    disk = DatedDisk()
    broker = await loaded(disk)
    async with broker.running():
        for log in (broker.log(), broker.log(B1)):
            for n in range(60):
                append(log, make_batch(2, timestamp_ms=NOW_MS - 60_000 + n))
                await asyncio.sleep(0)
            log.update_high_watermark(log.log_end_offset)
        await broker.manager.apply_retention()
        assert broker.manager.stats.segments_retired > 2
        broker.now_ms -= 3_600_000  # the wall clock is set while they wait
        await gone(lambda: [name for name in disk.names if name.endswith(".deleted")])
    waited_s = [disk.removed_s[name] - at_s for name, at_s in disk.renamed_s.items() if name.endswith(".deleted")]
    assert len(waited_s) >= broker.manager.stats.segments_retired and min(waited_s) >= 0.1, "file.delete.delay.ms"


async def test_a_checkpoint_forgets_no_start_that_was_saved_while_it_was_under_way(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    saved = broker.manager._directories[0].saved
    ends = saved.ends()
    log = broker.log()
    append(log, make_batch(9))
    log.update_high_watermark(Offset(9))
    await broker.manager.checkpoints.raise_log_starts({log: Offset(4)})
    saved.save(ends)
    assert checkpoints.read_offsets(disk, "one/log-start-offset-checkpoint") == {A0: 4}


async def test_a_log_that_is_filled_anew_keeps_its_start_though_a_checkpoint_is_written_meanwhile(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await loaded(disk)
    log = broker.log()
    batch = make_batch(9)
    append(log, batch)
    log.update_high_watermark(Offset(9))
    await broker.manager.checkpoints.raise_log_starts({log: Offset(4)})
    saved, refills = broker.manager._directories[0].saved, broker.manager.refills
    begin_anew = saved.begin_anew

    def begin_anew_amid_a_checkpoint(name: TopicPartition) -> None:
        begin_anew(name)
        saved.save(saved.ends())

    monkeypatch.setattr(saved, "begin_anew", begin_anew_amid_a_checkpoint)
    refill = await refills.begin(log)
    await refills.append(refill, bytes(make_batch(9, offset=0, leader_epoch=0)), Copied(Epoch(0), Offset(0)))
    await refills.seal(refill)
    assert refills.put_in_place(refill).log_start_offset == 4
    assert checkpoints.read_offsets(disk, "one/log-start-offset-checkpoint") == {A0: 4}


async def test_a_loaded_log_is_not_shortened_before_its_topics_settings_are_known(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    log = broker.log()
    for n in range(60):
        append(log, make_batch(2, timestamp_ms=NOW_MS - 60_000 + n))
    flush(log)
    await broker.manager.close(broker_epoch=1)
    again = await loaded(disk)
    found = again.manager.get(A0)
    assert found is not None
    found.update_high_watermark(found.log_end_offset)
    await again.manager.apply_retention()
    assert again.manager.stats.segments_retired == 0, "its topic may keep records for ever: nobody has said yet"
    assert again.log() is found, "ten seconds"
    await again.manager.apply_retention()
    assert again.manager.stats.segments_retired > 1


async def test_a_deleted_log_is_renamed_then_removed_and_may_come_again(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    async with broker.running():
        for _ in range(2):
            log = broker.log()
            append(log)
            broker.manager.request_flush(log)
            broker.manager.delete(A0)
            broker.manager.delete(A0)
            assert broker.manager.get(A0) is None and log.is_failed
        renamed = [name for name in disk.list_directory("one") if name.endswith("-delete") and name != OWN_DIRECTORY]
        await turns()
        assert broker.flushed == []
        assert len(renamed) == 2 and all(name.startswith("a-0.") for name in renamed)
        broker.now_ms -= 3_600_000  # the wall clock is set while they wait
        await gone(lambda: [name for name in disk.list_directory("one") if name.startswith("a-0")])


class JournaledDisk(MemoryDisk):
    """Which directories were removed whose new names a power cut could still undo."""

    def __init__(self) -> None:
        super().__init__()
        self.undoable: set[str] = set()
        self.removed: list[str] = []
        self.removed_early: list[str] = []

    def rename(self, source: Any, target: Any) -> None:
        super().rename(source, target)
        self.undoable.add(str(target))

    def sync_directory(self, path: Any) -> None:
        super().sync_directory(path)
        self.undoable = {name for name in self.undoable if name.rpartition("/")[0] != path}

    def remove_tree(self, path: Any) -> None:
        self.removed.append(path)
        if path in self.undoable:
            self.removed_early.append(path)
        super().remove_tree(path)


async def test_a_deleted_logs_files_go_once_no_power_cut_can_give_it_its_old_name_back() -> None:
    disk = JournaledDisk()
    broker = await loaded(disk)
    async with broker.running():
        append(broker.log())
        broker.manager.delete(A0)
        (renamed,) = disk.undoable
        await gone(lambda: [name for name in disk.list_directory("one") if name.startswith("a-0")])
    assert disk.removed == [renamed] and not disk.removed_early


async def test_a_filled_log_that_is_dropped_goes_once_no_power_cut_can_put_it_in_place() -> None:
    disk = JournaledDisk()
    broker = await loaded(disk)
    async with broker.running():
        refill = await broker.manager.refills.begin(broker.log())
        await broker.manager.refills.seal(refill)
        await broker.manager.refills.drop(refill)
    assert disk.removed == [refill.path] and not disk.removed_early


async def test_a_deletion_cut_short_is_finished_at_the_next_start(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    append(broker.log())
    broker.manager.delete(A0)
    again = await loaded(disk)
    assert dict(again.manager.logs) == {} and not [n for n in disk.names if "a-0" in n]


async def test_a_log_set_aside_keeps_its_records_and_is_not_loaded_again(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    append(broker.log())
    kept_in = broker.manager.set_aside(A0)
    assert kept_in is not None and kept_in.endswith("-stray") and broker.manager.get(A0) is None
    assert broker.manager.set_aside(A0) is None
    again = await loaded(disk)
    assert dict(again.manager.logs) == {}
    assert any(name.startswith(kept_in) and name.endswith(".log") for name in disk.names)


@pytest.mark.parametrize(
    ("topic_id", "directory_id", "right"),
    [
        (OTHER_ID, ZERO_UUID, "two"),
        (TOPIC_ID, ZERO_UUID, "one"),
        (TOPIC_ID, Uuid(b"2" * 16), "one"),
        (Uuid(b"x" * 16), ZERO_UUID, "two"),
    ],
)
async def test_of_a_log_in_two_directories_the_one_that_the_cluster_means_serves(
    disk: MemoryDisk, topic_id: Uuid, directory_id: Uuid, right: str
) -> None:
    """A directory was offline while its topic was deleted and made again in another."""
    former = await loaded(disk, "one")
    append(former.log())
    latter = await loaded(disk, "two")
    for _ in range(2):
        append(latter.log(A0, OTHER_ID))
    broker = await loaded(disk, "one", "two")
    assert broker.manager.get(A0) is None, "nobody can tell yet"
    broker.manager.homes.settle(A0, topic_id, directory_id=directory_id)
    log = broker.manager.get(A0)
    assert log is not None and log.directory == f"{right}/a-0" and not broker.manager.homes.rivals
    assert [name for name in disk.directories if name.endswith("-stray")] != [], "the other is kept"
    assert append(log) == {"one": 1, "two": 2}[right]
    assert set((await loaded(disk, "one", "two")).manager.logs) == {A0}


async def test_a_topic_made_again_is_not_cut_by_the_checkpoints_of_the_old(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    log = broker.log()
    for _ in range(50):
        append(log)
    flush(log)
    log.update_high_watermark(Offset(50))
    log.delete_records_before(Offset(45))
    await broker.manager.checkpoints.write_offsets()
    broker.manager.delete(A0)
    log = broker.log(A0, Uuid(b"2" * 16))
    for _ in range(30):
        append(log)
    killed = await loaded(disk)
    assert (killed.log(A0, Uuid(b"2" * 16)).log_start_offset, killed.log(A0, Uuid(b"2" * 16)).log_end_offset) == (0, 30)
    assert killed.manager.stats.logs_that_lost_flushed_data == 0


@pytest.mark.parametrize("is_made_at_once", [False, True])
async def test_topics_deleted_and_made_again_write_few_files_and_mostly_off_the_loop(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, is_made_at_once: bool
) -> None:
    broker = await loaded(disk)
    names = [TopicPartition("many", number) for number in range(20)]
    for name in names:
        append(broker.log(name))
        flush(broker.log(name))
        broker.log(name).update_high_watermark(Offset(1))
    await broker.manager.checkpoints.write_offsets()
    await broker.manager.checkpoints.write_high_watermarks()
    writes: list[str] = []
    on_loop: list[str] = []
    write, run = disk.write_file_atomically, disk.run

    async def run_off_loop(function: Callable[..., object], *args: object) -> object:
        before = len(on_loop)
        result = await run(function, *args)
        del on_loop[before:]
        return result

    def note(path: str, data: bytes) -> None:
        for calls in (writes, on_loop):
            calls.append(path)
        write(path, data)

    monkeypatch.setattr(disk, "write_file_atomically", note)
    monkeypatch.setattr(disk, "run", run_off_loop)
    async with broker.running():
        for name in names:
            broker.manager.delete(name)
        if not is_made_at_once:
            await turns()
            assert on_loop == []
        for name in names:
            broker.log(name, Uuid(b"2" * 16))
        assert len(on_loop) == len(writes) * is_made_at_once
    files = ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
    assert sorted(writes) == [f"one/{OWN_DIRECTORY}/{name}" for name in files] + [f"one/{name}" for name in files]
    for file in files:
        assert checkpoints.read_offsets(disk, f"one/{file}") == {}


async def test_a_topic_made_again_does_not_take_the_high_watermark_of_the_old(disk: MemoryDisk) -> None:
    """A crash right after it: what nobody has committed counted as committed (seed 14 of the node simulation)."""
    broker = await loaded(disk)
    for _ in range(5):
        append(broker.log())
    broker.log().update_high_watermark(Offset(5))
    await broker.manager.checkpoints.write_high_watermarks()
    broker.manager.delete(A0)
    for _ in range(7):
        append(broker.log(A0, Uuid(b"2" * 16)))
    flush(broker.log(A0, Uuid(b"2" * 16)))
    assert (await loaded(disk)).log(A0, Uuid(b"2" * 16)).high_watermark == 0


async def test_a_checkpoint_under_way_says_nothing_of_a_log_deleted_meanwhile(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    append(broker.log())
    broker.log().update_high_watermark(Offset(1))
    writing = asyncio.ensure_future(broker.manager.checkpoints.write_high_watermarks())
    await asyncio.sleep(0)  # it has taken what to write, and waits for its thread
    broker.manager.delete(A0)
    append(broker.log(A0, Uuid(b"2" * 16)))
    await writing
    assert checkpoints.read_offsets(disk, "one/replication-offset-checkpoint") == {}


async def test_high_watermarks_are_taken_from_replications_checkpoint(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    for _ in range(5):
        append(broker.log())
    await broker.manager.close()
    checkpoints.write_offsets(disk, "one/replication-offset-checkpoint", {A0: Offset(3)})
    assert (await loaded(disk)).log().high_watermark == 3


async def test_the_metadata_log_and_strangers_are_left_alone(disk: MemoryDisk) -> None:
    disk.make_directory("one/__cluster_metadata-0")
    disk.make_directory("one/lost+found")
    disk.open("one/meta.properties", create=True)
    assert dict((await loaded(disk)).manager.logs) == {}


async def test_silent_producers_are_forgotten(disk: MemoryDisk) -> None:
    broker = await loaded(disk)
    append(broker.log(), make_batch(producer_id=3, producer_epoch=0, base_sequence=0))
    await broker.manager._expire_producers()
    assert broker.log().producer_count == 1
    broker.now_ms += 86_400_000
    await broker.manager._expire_producers()
    assert (broker.log().producer_count, broker.manager.stats.producers_expired) == (0, 1)


async def test_the_whole_on_a_real_disk(tmp_path: Path) -> None:
    disk = RealDisk()
    broker = await loaded(disk, str(tmp_path / "one"), str(tmp_path / "two"))
    async with broker.running():
        for n in range(120):
            for log in (broker.log(), broker.log(B1)):
                log.tail.append_as_leader(make_batch(2), leader_epoch=Epoch(1), now_ms=NOW_MS)
                log.tail.write_pending()
                broker.manager.request_flush(log)
            if n % 10 == 0:
                await asyncio.sleep(0.001)
        all_flushed = asyncio.Event()

        class Listener(LogManagerListener):
            def on_flushed(self, log: UnifiedLog) -> None:
                if all(each.flushed_end_offset == 240 for each in broker.manager.logs.values()):
                    all_flushed.set()

        broker.manager.serve(Listener())
        for log in (broker.log(), broker.log(B1)):
            broker.manager.request_flush(log)
        await all_flushed.wait()
        whole = content(broker.log())
        broker.manager.delete(B1)
    await broker.manager.close(broker_epoch=9)
    disk.close()
    disk = RealDisk()
    again = await loaded(disk, str(tmp_path / "one"), str(tmp_path / "two"))
    assert again.manager.previous_broker_epoch == 9 and set(again.manager.logs) == {A0}
    assert content(again.log()) == whole
    await again.manager.close()
    disk.close()


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("a-0", A0),
        ("x-y-12", TopicPartition("x-y", 12)),
        ("a", None),
        ("-3", None),
        ("a-b", None),
        ("a-0.aa-delete", None),
    ],
)
def test_directory_names(name: str, parsed: TopicPartition | None) -> None:
    assert parse_directory_name(name) == parsed


async def with_rot(disk: MemoryDisk) -> tuple[Broker, bytes, int, int]:
    """A broker started on a log whose second segment has rotted, and whose later producer snapshots are gone; the segment's sound
    bytes, its base offset and the position of the damaged batch."""
    broker = await loaded(disk)
    log = broker.log()
    for number in range(60):
        batch = make_batch(2, producer_id=7 + number % 3, producer_epoch=0, base_sequence=2 * (number // 3))
        append(log, batch, now_ms=NOW_MS)
    flush(log)
    assert log.segment_count >= 3
    base = log.base_offsets[1]
    path = log.segments.floor(base).file.path
    whole = bytes(disk.names[path].content)
    at = [position for position, _ in iterate_batches(whole)][2]
    await broker.manager.close()
    for offset in list_snapshots(disk, log.directory):
        if offset > base:
            disk.remove(snapshot_path(log.directory, offset))
    disk.names[path].content[at + 8] ^= 64  # of its length: even who reads headers alone stumbles
    return await loaded(disk), whole, base, at


async def test_a_repair_waits_for_a_descriptor_and_fails_no_directory(disk: MemoryDisk) -> None:
    broker, whole, _, _ = await with_rot(disk)
    log, manager = broker.log(), broker.manager
    async with broker.running():
        await turns()
        (damage,) = log.damage
        disk.is_short_of_descriptors = True
        repairing = asyncio.create_task(
            manager.repairs.replace_damaged(log, damage, whole[damage.position : damage.stop])
        )
        await asyncio.sleep(3 * FLUSH_RETRY_S)
        assert not repairing.done()
        assert not manager.health.offline_directories
        disk.is_short_of_descriptors = False
        assert await repairing
    assert not log.damage


async def test_while_damage_hides_producers_a_leader_takes_no_batch_that_may_be_a_repeat(disk: MemoryDisk) -> None:
    broker, whole, _, _ = await with_rot(disk)
    log, manager = broker.log(), broker.manager
    log.tail.is_sole_copy = False
    known = make_batch(2, producer_id=9, producer_epoch=0, base_sequence=38)
    follows = make_batch(2, producer_id=9, producer_epoch=0, base_sequence=40)
    strange = make_batch(2, producer_id=77, producer_epoch=0, base_sequence=0)
    late = make_batch(2, producer_id=9, producer_epoch=0, base_sequence=50)
    async with broker.running():
        await turns()
        (damage,) = log.damage
        for batch in (follows, strange, late):
            with pytest.raises(ProducersInDoubt) as refused:
                append(log, batch, now_ms=NOW_MS)
            assert refused.value.is_retriable
        end = log.log_end_offset
        assert log.tail.append_as_leader(known, leader_epoch=Epoch(0), now_ms=NOW_MS).is_duplicate, (
            "what is known is answered"
        )
        append(log, make_batch(1), now_ms=NOW_MS)
        assert log.log_end_offset == end + 1, "who numbers nothing may write"
        assert await manager.repairs.replace_damaged(log, damage, whole[damage.position : damage.stop])
        assert await manager.repairs.reload_producers(log)
        for batch in (follows, strange):
            append(log, batch, now_ms=NOW_MS)
        with pytest.raises(OutOfOrderSequence):
            append(log, late, now_ms=NOW_MS)


async def test_a_sole_copy_takes_batches_though_damage_hides_producers(disk: MemoryDisk) -> None:
    broker, _, _, _ = await with_rot(disk)
    log = broker.log()
    async with broker.running():
        await turns()
        assert log.damage
        append(log, make_batch(2, producer_id=77, producer_epoch=0, base_sequence=0), now_ms=NOW_MS)


async def test_producers_are_read_anew_once_what_was_damaged_is_repaired(disk: MemoryDisk) -> None:
    broker, whole, base, at = await with_rot(disk)
    log, manager = broker.log(), broker.manager
    async with broker.running():
        await turns()
        (damage,) = log.damage
        assert (damage.segment, damage.position) == (base, at), "found at the start, and not when the scrub comes by"
        assert not await manager.repairs.reload_producers(log)
        assert await manager.repairs.replace_damaged(log, damage, whole[damage.position : damage.stop])
        log.producers.end_offset = log.log_end_offset
        write_snapshot(disk, log.directory, log.producers).sync()  # as a roll does
        disk.sync_directory(log.directory)
        assert max(list_snapshots(disk, log.directory)) > damage.first_offset, "it may lack what is damaged"
        reading = asyncio.create_task(manager.repairs.reload_producers(log))
        await asyncio.sleep(0)
        append(log, make_batch(2, producer_id=7, producer_epoch=0, base_sequence=40))
        assert await reading
    knows = {entry.producer_id: [batch.first_sequence for batch in entry.batches] for entry in log.producers}
    assert knows == {7: [32, 34, 36, 38, 40], 8: [30, 32, 34, 36, 38], 9: [30, 32, 34, 36, 38]}
    assert log.doubted_from == NO_OFFSET
    for left in (disk, *(disk.crash(Random(seed)) for seed in range(9))):
        assert all(offset <= damage.first_offset for offset in list_snapshots(left, log.directory))
