"""A full disk: what waits for room, what is refused, what goes on, and that nothing is lost by it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from barnabas_log.config import LogConfig, LogManagerConfig
from barnabas_log.directories.disk_space import FreeSpaceMarks, Reserve, is_disk_full
from barnabas_log.directories.log_directory import RESERVE_FILE
from barnabas_log.directories.manager import LogManager
from barnabas_log.directories.manager_listener import LogManagerListener
from barnabas_log.disk import File
from barnabas_log.errors import DiskFull
from barnabas_log.memory_disk import MemoryDisk, MemoryFile
from barnabas_log.recovery.opening import open_partition_log
from barnabas_log.tail import truncating
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.records.batch import Buffer
from tests.support.replicas import batch
from tests.support.turns import turns

TP, TOPIC_ID = TopicPartition("t", 0), Uuid(b"t" * 16)
MIB = 1 << 20


class FullDisk(MemoryDisk):
    """A memory disk that takes so many more bytes, and then a part of one more write."""

    def __init__(self, error: int = errno.ENOSPC) -> None:
        super().__init__()
        self.left = 1 << 40
        self.error = error

    def take(self, size: int, path: str) -> int:
        taken = min(size, self.left)
        self.left -= taken
        return taken

    def refuse(self, path: str) -> OSError:
        return OSError(self.error, "no room", path)

    def open(self, path: Any, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        assert isinstance(file, MemoryFile)
        return FullFile(self, str(path), file._inode)

    def remove(self, path: Any) -> None:
        inode = self.names.get(str(path))
        self.left += 0 if inode is None else len(inode.content)
        super().remove(path)

    def write_file_atomically(self, path: Any, data: bytes) -> None:
        if self.left < len(data):
            raise self.refuse(str(path))
        super().write_file_atomically(path, data)

    def free_bytes(self, path: Any) -> int:
        return self.left


class FullFile(MemoryFile):
    _disk: FullDisk

    def append(self, parts: Sequence[Buffer]) -> int:
        data = b"".join(parts)
        taken = self._disk.take(len(data), self.path)
        super().append([data[:taken]])
        if taken < len(data):
            raise self._disk.refuse(self.path)
        return taken

    def truncate(self, size_bytes: int) -> None:
        self._disk.left += self.size_bytes - size_bytes
        super().truncate(size_bytes)


def open_log(disk: MemoryDisk, **more: Any) -> UnifiedLog:
    disk.make_directory("d")
    return open_partition_log(
        disk=disk,
        directory="d/t-0",
        topic_partition=TP,
        topic_id=TOPIC_ID,
        config=LogConfig(**more),
        now_ms=0,
    )


def append(log: UnifiedLog, count: int = 1) -> None:
    log.tail.append_as_leader(batch(count), leader_epoch=Epoch(1), now_ms=0)


def content(log: UnifiedLog) -> bytes:
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, bytes_max=1 << 20, end=log.log_end_offset, at_least_one_batch=True)
        for part in read.parts:
            found += part.file.read(part.position, part.size)
            part.file.release()
        offset = read.next_offset
    return found


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_without_room_is_cut_back_waits_and_goes_on(error: int) -> None:
    disk = FullDisk(error)
    log = open_log(disk)
    append(log)
    log.tail.write_pending()
    size = len(batch())
    disk.left = size // 2
    append(log, 3)
    for _ in range(2):
        with pytest.raises(DiskFull):
            log.tail.write_pending()
        assert (log.written_end_offset, log.log_end_offset, log.is_failed) == (1, 4, False)
        assert len(disk.names["d/t-0/00000000000000000000.log"].content) == size, "no torn batch stays behind"
    assert log.read(Offset(0), bytes_max=1 << 20, end=Offset(4), at_least_one_batch=True).next_offset == 1
    files = log.dirty_files()
    for file in files:
        file.sync()
    log.mark_flushed(log.written_end_offset)
    assert log.flushed_end_offset == 1, "what is written is flushed, and no more"
    disk.left = 1 << 20
    log.tail.write_pending()
    assert log.written_end_offset == 4
    fresh = open_log(MemoryDisk())
    for count in (1, 3):
        append(fresh, count)
    fresh.tail.write_pending()
    assert content(log) == content(fresh)


def test_a_follower_without_room_keeps_what_came_and_may_cut_it_again() -> None:
    for cut in (1, 2, 3, 6):
        disk = FullDisk()
        log = open_log(disk)
        for base in (0, 1, 2):
            log.tail.append_as_follower(batch(1, base_offset=base, leader_epoch=1), leader_epoch=Epoch(1))
        disk.left = 10
        with pytest.raises(DiskFull):
            log.tail.append_as_follower(batch(4, base_offset=3, leader_epoch=1), leader_epoch=Epoch(1))
        assert (log.written_end_offset, log.log_end_offset) == (3, 7)
        truncating.truncate_to(log, Offset(cut))
        end = min(cut, 3)
        assert (log.written_end_offset, log.log_end_offset) == (end, end), "of the unwritten nothing was promised"
        disk.left = 1 << 20
        log.tail.append_as_follower(batch(2, base_offset=end, leader_epoch=2), leader_epoch=Epoch(2))
        assert log.written_end_offset == end + 2
        assert len(content(log)) == disk.names["d/t-0/00000000000000000000.log"].content.__len__()


def test_a_roll_without_room_appends_nothing_and_is_done_again() -> None:
    size = len(batch())
    for left in range(0, 400, 7):
        disk = FullDisk()
        log = open_log(disk, segment_bytes=2 * size, index_interval_bytes=0)
        for _ in range(2):
            append(log)
        log.tail.write_pending()
        disk.left = left
        try:
            append(log)
        except DiskFull:
            assert log.log_end_offset == 2
            disk.left = 1 << 20
            append(log)
        disk.left = 1 << 20
        append(log)
        append(log)
        log.tail.write_pending()
        assert (log.log_end_offset, log.segment_count) == (5, 3)
        log.close()
        again = open_log(disk.crash(Random(1)), segment_bytes=2 * size, index_interval_bytes=0)
        assert again.log_end_offset == 5 and not again.recovery_report.is_flushed_data_lost


def test_marks_keep_their_distance_and_leave_a_small_disk_its_use() -> None:
    marks = FreeSpaceMarks.of(stop=32 * MIB, resume=64 * MIB, total_bytes=1 << 40)
    assert marks == (32 * MIB, 64 * MIB)
    assert [
        marks.has_space(free * MIB, had_space=had) for free, had in ((31, True), (33, True), (33, False), (64, False))
    ] == [
        False,
        True,
        False,
        True,
    ]
    assert FreeSpaceMarks.of(stop=32 * MIB, resume=64 * MIB, total_bytes=16 * MIB) == (MIB, 2 * MIB)
    assert FreeSpaceMarks.of(stop=0, resume=0, total_bytes=MIB).has_space(0, had_space=True)


def test_a_reserve_is_whole_or_not_there_and_spending_it_makes_room() -> None:
    disk = FullDisk()
    disk.make_directory("d")
    reserve = Reserve(disk, "d/reserve", 200_000)
    disk.left = 100_000
    assert not reserve.take() and "d/reserve" not in disk.names and disk.left == 100_000
    disk.left = 200_000
    assert reserve.take() and reserve.take() and disk.left == 0
    of_next_life = Reserve(disk, "d/reserve", 200_000)
    assert of_next_life.take() and disk.left == 0
    assert of_next_life.spend() and disk.left == 200_000
    assert not of_next_life.spend()


def test_only_want_of_room_is_want_of_room() -> None:
    assert is_disk_full(OSError(errno.ENOSPC, "x")) and is_disk_full(OSError(errno.EDQUOT, "x"))
    assert not is_disk_full(OSError(errno.EIO, "x")) and not is_disk_full(OSError(errno.EMFILE, "x"))


# --- the manager ----------------------------------------------------------------------------------------------------------


class Listener(LogManagerListener):
    """Notes whether a directory has room."""

    def __init__(self, heard: list[bool], *, stays_when_full: bool = True) -> None:
        self._heard = heard
        self._stays_when_full = stays_when_full

    def on_space_changed(self, directory: str, has_space: bool) -> None:
        self._heard.append(has_space)

    def stays_when_full(self) -> bool:
        return self._stays_when_full


@asynccontextmanager
async def managed(disk: MemoryDisk, **config: Any) -> AsyncIterator[tuple[LogManager, list[bool]]]:
    manager = LogManager(
        disk=disk,
        directories=["d"],
        default_config=LogConfig(),
        clock_ms=lambda: 0,
        config=LogManagerConfig(
            **{"free_bytes_min": 10_000, "free_bytes_resume": 20_000, "reserve_bytes": 5_000} | config
        ),
    )
    heard: list[bool] = []
    await manager.load()
    manager.serve(Listener(heard))
    running = asyncio.ensure_future(manager.run())
    await asyncio.sleep(0)
    try:
        yield manager, heard
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_directory_stops_below_one_mark_and_goes_on_above_the_other() -> None:
    disk = FullDisk()
    async with managed(disk) as (manager, heard):
        assert f"d/{RESERVE_FILE}" in disk.names
        for left, full in ((9_999, True), (19_999, True), (20_000, False), (10_000, False)):
            disk.left = left
            await manager.check_free_space()
            await turns()
            assert bool(manager.health.full_directories) is full
        assert heard == [False, True] and manager.stats.directories_filled == 1


async def test_a_disk_that_does_not_answer_is_reported_while_it_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with managed(FullDisk()) as (manager, _):
        (rounds,) = {directory.rounds for directory in manager._directories}
        for age_s in (4.9, 7.0, 0.0):
            monkeypatch.setattr(rounds, "oldest_s", lambda age_s=age_s: age_s)
            caplog.clear()
            await manager.check_free_space()
            assert ("a flush of log directory d has not ended for 7 s" in caplog.text) is (age_s == 7.0)


async def test_a_quota_that_free_bytes_do_not_show_is_over_when_the_reserve_can_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = FullDisk(errno.EDQUOT)
    async with managed(disk) as (manager, heard):
        log = manager.get_or_create(TP, TOPIC_ID, LogConfig())
        monkeypatch.setattr(disk, "free_bytes", lambda path: 1 << 30)
        disk.left = 10
        append(log)
        with pytest.raises(DiskFull):
            log.tail.write_pending()
        await manager.checkpoints.write_offsets()
        await turns()
        assert heard == [False] and manager.health.online_directories == ["d"] and not log.is_failed
        assert disk.names["d/recovery-point-offset-checkpoint"].content, "written in the room that is kept for it"
        disk.left = 0
        await manager.check_free_space()
        assert manager.health.full_directories == ["d"]
        disk.left = 1 << 20
        await manager.check_free_space()
        assert manager.health.full_directories == [] and heard == [False, True]


@pytest.mark.parametrize("is_read", [False, True])
async def test_what_found_no_room_is_written_and_flushed_when_there_is_room(is_read: bool) -> None:
    """A producer that only repeats it would wait for ever: nothing is appended that would ask for a flush."""
    disk = FullDisk()
    async with managed(disk) as (manager, _):
        log = manager.get_or_create(TP, TOPIC_ID, LogConfig())
        disk.left = 10
        append(log)
        with pytest.raises(DiskFull):
            log.tail.write_pending()
        await turns()
        assert manager.health.full_directories == ["d"]
        disk.left = 1 << 20
        if is_read:
            log.tail.write_pending(is_forced=True)  # as a reader does
        await manager.check_free_space()
        await turns()
        assert log.flushed_end_offset == log.log_end_offset > 0


async def test_where_nobody_leads_past_a_full_directory_it_fails_as_before() -> None:
    disk = FullDisk()
    async with managed(disk) as (manager, heard):
        manager.serve(Listener(heard, stays_when_full=False))
        log = manager.get_or_create(TP, TOPIC_ID, LogConfig())
        disk.left = 100
        await manager.check_free_space()
        await turns()
        assert heard == [] and manager.health.full_directories == []
        disk.left = 10
        append(log)
        with pytest.raises(Exception, match="no room"):
            log.tail.write_pending()
        assert manager.health.offline_directories == ["d"] and log.is_failed


async def test_a_log_that_cannot_be_made_leaves_nothing_and_is_made_when_there_is_room() -> None:
    disk = FullDisk()
    async with managed(disk) as (manager, _):
        disk.left = 0
        with pytest.raises(DiskFull):
            manager.get_or_create(TP, TOPIC_ID, LogConfig())
        assert not disk.exists("d/t-0") and manager.health.online_directories == ["d"]
        disk.left = 1 << 20
        assert manager.get_or_create(TP, TOPIC_ID, LogConfig()).topic_id == TOPIC_ID


async def test_a_checkpoint_that_found_no_room_leaves_the_old_files_right() -> None:
    disk = FullDisk()
    async with managed(disk, reserve_bytes=0) as (manager, _):
        log = manager.get_or_create(TP, TOPIC_ID, LogConfig())
        append(log)
        log.tail.write_pending()
        manager.request_flush(log)
        await turns()
        disk.left = 5
        await manager.checkpoints.write_offsets()
        assert manager.health.online_directories == ["d"] and manager.health.full_directories == ["d"]
        assert disk.names["d/recovery-point-offset-checkpoint"].content == b"0\n0\n" and log.leader_epochs.is_dirty
        disk.left = 1 << 20
        await manager.checkpoints.write_offsets()
        assert b"t 0 1" in disk.names["d/recovery-point-offset-checkpoint"].content and not log.leader_epochs.is_dirty


async def test_retention_makes_room_where_no_checkpoint_can_say_so_first() -> None:
    disk = FullDisk()
    config = LogConfig(segment_bytes=300, retention_bytes=400)
    async with managed(disk, reserve_bytes=0) as (manager, _):
        log = manager.get_or_create(TP, TOPIC_ID, config)
        for _ in range(12):
            append(log)
            manager.request_flush(log)
            await turns()
        log.update_high_watermark(log.log_end_offset)
        disk.left = 5
        await manager.apply_retention()
        start = log.log_start_offset
        assert manager.health.full_directories == ["d"] and start > 0 and log.base_offsets[0] == start
    for seed in range(10):  # of each name a power cut leaves the old or the new where that is not flushed
        async with managed(disk.crash(Random(seed))) as (manager, _):
            assert manager.logs[TP].log_start_offset == start


async def test_a_start_on_a_full_disk_opens_what_is_there() -> None:
    disk = FullDisk()
    async with managed(disk) as (manager, _):
        log = manager.get_or_create(TP, TOPIC_ID, LogConfig())
        for _ in range(3):
            append(log)
        log.tail.write_pending()
    disk.left = 0
    async with managed(disk) as (manager, heard):
        await manager.check_free_space()
        await turns()
        found = manager.get(TP)
        assert found is not None and found.log_end_offset == 3
        assert heard == [False]
