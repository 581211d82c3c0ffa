"""Few descriptors: files close and open again, held ones stay, and a process without any is no broken disk."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from barnabas_log.descriptors import SPARE_DESCRIPTORS, is_out_of_descriptors
from barnabas_log.directories.manager import LogManager
from barnabas_log.directories.manager_listener import LogManagerListener
from barnabas_log.disk import RealDisk
from barnabas_log.errors import OutOfDescriptors
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail import flush as flush_rounds
from barnabas_log.tail import retiring, truncating
from barnabas_log.tail.log_tail import HELD_BYTES_MAX
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition, Uuid
from tests.support.logs import NOW_MS, append, content, first_at, flush, make_batch, make_config, open_log, take

FILES_MAX = 5
TOPIC_ID = Uuid(b"t" * 16)


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    disk = RealDisk(wants_ring=False)
    disk.descriptors.files_max = FILES_MAX
    yield disk
    disk.close()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process can open nothing: every number below the limit is taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken: list[int] = []
    try:
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_no_more_files_stay_open_than_may_and_all_of_them_can_be_used(disk: RealDisk, tmp_path: Path) -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    files = [disk.open(tmp_path / str(number), create=True) for number in range(30)]
    for turn in range(3):
        for number, file in enumerate(files):
            assert file.append([b"%d.%d " % (number, turn)]) == len(f"{number}.{turn} ")
        assert len(os.listdir("/proc/self/fd")) - open_before <= FILES_MAX
    for number, file in enumerate(files):
        whole = b"%d.0 %d.1 %d.2 " % (number, number, number)
        assert file.read(0, 99) == os.pread(file.send_descriptor(), 99, 0) == whole and file.size_bytes == len(whole)
        file.truncate(2)
        file.sync()
        assert file.read(0, 99) == whole[:2]
        file.close()
    assert len(disk.descriptors) == 0 and disk.descriptors.stats.reopened > 0


def test_the_file_that_was_not_used_for_longest_is_closed(disk: RealDisk, tmp_path: Path) -> None:
    files = [disk.open(tmp_path / str(number), create=True) for number in range(FILES_MAX)]
    busy = files[0]
    for number in range(50):
        busy.send_descriptor()
        disk.open(tmp_path / f"other-{number}", create=True)
    assert disk.descriptors.stats.reopened <= 1, "used between any two others; at first all were new"


def test_a_held_file_keeps_its_descriptor_whatever_becomes_of_its_owner_and_name(
    disk: RealDisk, tmp_path: Path
) -> None:
    file = disk.open(tmp_path / "f", create=True)
    file.append([b"content"])
    file.rest()
    file.acquire()
    descriptor = file.send_descriptor()
    disk.rename(tmp_path / "f", tmp_path / "g")
    file.close()
    disk.remove(tmp_path / "g")
    file.rest()
    for number in range(3 * FILES_MAX):
        disk.open(tmp_path / str(number), create=True)
    assert file.send_descriptor() == descriptor and file.read(0, 99) == b"content"
    file.release()
    with pytest.raises(OSError, match="Bad file"):
        file.read(0, 1)


async def test_what_is_being_flushed_keeps_its_descriptor(disk: RealDisk, tmp_path: Path) -> None:
    files = [disk.open(tmp_path / str(number), create=True) for number in range(3 * FILES_MAX)]
    for file in files:
        file.append([b"x"])
    done = disk.flush(files)
    assert all(file._descriptor >= 0 for file in files)  # type: ignore[attr-defined]
    await done
    for file in files:
        file.close()


def test_a_process_without_descriptors_closes_files_that_nobody_uses(disk: RealDisk, tmp_path: Path) -> None:
    file, other = (disk.open(tmp_path / name, create=True) for name in ("f", "g"))
    file.append([b"f"])
    file.rest()
    with no_descriptor_left():
        assert file.read(0, 9) == b"f"
        assert disk.list_directory(tmp_path) == ["f", "g"]
        disk.write_file_atomically(tmp_path / "h", b"h")
        assert disk.read_file(tmp_path / "h") == b"h"
        disk.sync_directory(tmp_path)
    assert disk.descriptors.stats.closed > 0 == disk.descriptors.stats.refused
    other.close()


def test_steps_may_count_on_what_is_kept_back_and_are_refused_when_that_is_gone(tmp_path: Path) -> None:
    disk = RealDisk(wants_ring=False)  # as the metadata log's: nothing of it is closed to make room
    file = disk.open(tmp_path / "f", create=True)
    with no_descriptor_left():
        disk.ensure_descriptors(8, tmp_path)
        opened = [disk.open(tmp_path / str(number), create=True) for number in range(SPARE_DESCRIPTORS)]
        with pytest.raises(OSError, match="ulimit") as refused:
            disk.ensure_descriptors(1, tmp_path)
        assert is_out_of_descriptors(refused.value)
        with pytest.raises(OSError, match="Too many open files"):
            disk.open(tmp_path / "one too many", create=True)
        assert disk.descriptors.stats.refused == 2
        opened.pop().close()
        disk.ensure_descriptors(1, tmp_path)
    disk.ensure_descriptors(SPARE_DESCRIPTORS, tmp_path)
    for each in [file, *opened]:
        each.close()
    disk.close()


def test_a_log_rests_without_an_open_file(disk: RealDisk, tmp_path: Path) -> None:
    log = open_log(disk, directory=str(tmp_path / "t-0"))
    for _ in range(100):
        append(log)
    before = content(log)
    log.close()
    for is_clean in (True, False):
        log = open_log(disk, directory=str(tmp_path / "t-0"), is_clean_shutdown=is_clean)
        assert log.segment_count > 3 and len(disk.descriptors) == 0
        assert content(log) == before and len(disk.descriptors) <= FILES_MAX
        log.close()
        assert len(disk.descriptors) == 0


# ------------------------------------------------------------------ a log without descriptors


@pytest.mark.parametrize("seed", range(20))
def test_every_operation_is_done_or_refused_whole_and_can_be_done_again(seed: int) -> None:
    """The same history with and without want of descriptors makes the same log."""
    random = Random(seed)
    short, plain = (MemoryDisk() for _ in range(2))
    wanting, control = (open_log(disk, config=make_config(segment_bytes=1500)) for disk in (short, plain))
    refused = 0
    for _ in range(200):
        operation = draw_operation(random, control)
        expected = operation(control)
        short.is_short_of_descriptors = random.random() < 0.5
        try:
            found = operation(wanting)
        except OutOfDescriptors as error:
            assert error.is_retriable
            refused += 1
            short.is_short_of_descriptors = False
            found = operation(wanting)
        short.is_short_of_descriptors = False
        assert found == expected and not wanting.is_failed
        assert wanting.log_end_offset == control.log_end_offset
        assert wanting.log_start_offset == control.log_start_offset
    assert refused > 5
    assert content(wanting) == content(control) and wanting.base_offsets == control.base_offsets
    flush(wanting)
    assert wanting.flushed_end_offset == wanting.log_end_offset
    assert content(open_log(short, log_start_offset=wanting.log_start_offset)) == content(control), "also recovered"


def draw_operation(random: Random, control: UnifiedLog) -> Callable[[UnifiedLog], object]:
    kind = random.choice(["append"] * 6 + ["read"] * 2 + ["flush", "truncate", "retention", "time", "restart"])
    offset = Offset(random.randint(control.log_start_offset, control.log_end_offset))
    batch = make_batch(
        random.randint(1, 4), value=random.randbytes(60), timestamp_ms=NOW_MS + int(control.log_end_offset)
    )
    is_rare = random.random() < 0.2

    def operate(log: UnifiedLog) -> object:
        match kind:
            case "append":
                return log.tail.append_as_leader(batch, leader_epoch=Epoch(0), now_ms=NOW_MS)
            case "read":
                log.tail.write_pending(is_forced=True)
                return take(log.read(offset, bytes_max=700, end=log.log_end_offset, at_least_one_batch=True))
            case "flush":
                flush(log)
            case "truncate" if is_rare:
                truncating.truncate_to(log, offset)
            case "retention":
                log.update_high_watermark(offset)
                log.delete_records_before(max(offset, log.log_start_offset))
                retiring.apply_retention(log, NOW_MS)
            case "restart" if is_rare:
                truncating.truncate_fully_and_start_at(log, Offset(1000))
            case _:
                log.tail.write_pending(is_forced=True)
                return first_at(log, NOW_MS + int(offset))
        return None

    return operate


def test_what_waits_for_a_descriptor_is_bounded() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(segment_bytes=1 << 30))
    batch = make_batch(value=bytes(1 << 19))
    disk.is_short_of_descriptors = True
    accepted = 0
    with pytest.raises(OutOfDescriptors):
        for _ in range(2 * HELD_BYTES_MAX // len(batch)):
            log.tail.append_as_leader(batch, leader_epoch=Epoch(0), now_ms=NOW_MS)
            accepted += 1
    assert accepted == HELD_BYTES_MAX // len(batch) + 1
    disk.is_short_of_descriptors = False
    append(log, batch)
    assert log.written_end_offset == log.log_end_offset == accepted + 1 and not log.is_failed


async def test_no_directory_fails_for_want_of_descriptors_and_all_is_done_when_there_are_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flush_rounds, "RETRY_S", 0.001)
    disk = MemoryDisk()
    logs = LogManager(disk=disk, directories=["data"], default_config=make_config(), clock_ms=lambda: NOW_MS)
    await logs.load()
    flushed: list[UnifiedLog] = []

    class Listener(LogManagerListener):
        def on_flushed(self, log: UnifiedLog) -> None:
            flushed.append(log)

    logs.serve(Listener())
    log = logs.get_or_create(TopicPartition("t", 0), TOPIC_ID, make_config())
    append(log)
    running = asyncio.ensure_future(logs.run())
    disk.is_short_of_descriptors = True
    logs.request_flush(log)
    with pytest.raises(OutOfDescriptors):
        logs.get_or_create(TopicPartition("u", 0), TOPIC_ID, make_config())
    await logs.checkpoints.write_offsets()
    await logs.apply_retention()
    await asyncio.sleep(0.02)
    assert logs.health.online_directories == ["data"] and flushed == [] and not log.is_failed
    assert logs.get(TopicPartition("u", 0)) is None and not disk.exists("data/u-0")
    disk.is_short_of_descriptors = False
    async with asyncio.timeout(10):
        while not flushed:
            await asyncio.sleep(0.001)
    assert log.flushed_end_offset == 1
    assert logs.get_or_create(TopicPartition("u", 0), TOPIC_ID, make_config()).log_end_offset == 0
    running.cancel()
    await asyncio.wait((running,))


async def test_a_start_without_descriptors_fails_no_directory() -> None:
    disk = MemoryDisk()
    disk.make_directory("data/t-0")
    logs = LogManager(disk=disk, directories=["data"], default_config=make_config(), clock_ms=lambda: NOW_MS)
    disk.is_short_of_descriptors = True
    with pytest.raises(OutOfDescriptors):
        await logs.load()


async def test_a_check_without_descriptors_fails_no_directory() -> None:
    disk = MemoryDisk()
    logs = LogManager(disk=disk, directories=["data"], default_config=make_config(), clock_ms=lambda: NOW_MS)
    await logs.load()
    logs.serve(LogManagerListener())
    log = logs.get_or_create(TopicPartition("t", 0), TOPIC_ID, make_config())
    append(log)
    flush(log)
    disk.is_short_of_descriptors = True
    with pytest.raises(OutOfDescriptors):
        await logs.repairs.check(log, 0)
    assert logs.health.online_directories == ["data"] and not log.is_failed
    disk.is_short_of_descriptors = False
    assert await logs.repairs.check(log, 0) and not log.damage
