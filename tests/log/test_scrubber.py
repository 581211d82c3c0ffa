"""The scrub of one directory: what it finds is kept, its place too, damaged indexes are made again, a full disk ends nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
from collections.abc import Callable
from typing import Any

import pytest

from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.recovery import repair, scrubber
from barnabas_log.recovery.scrub import newest_in_time_index
from barnabas_log.recovery.scrubber import SCRUB_FILE, Scrubber
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.records.batch import iterate_batches
from tests.support.logs import ORDERS, append, flush, make_batch, make_config, open_log

RATE = 1 << 40


class FullDisk(MemoryDisk):
    """Takes no checkpoint while it is full."""

    is_full = False

    def write_file_atomically(self, path: Any, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "full", str(path))
        super().write_file_atomically(path, data)


class Bench:
    def __init__(self, *, rate: int = RATE) -> None:
        self.disk = FullDisk()
        self.log = open_log(self.disk, config=make_config())
        for _ in range(60):
            append(self.log, make_batch(2))
        flush(self.log)
        self.reported: list[UnifiedLog] = []
        self.failed: list[OSError] = []
        self.rate = rate
        self.scrubber = self.make()

    def make(self) -> Scrubber:
        return Scrubber(
            disk=self.disk,
            path="data",
            logs={ORDERS: self.log},
            bytes_per_second=self.rate,
            on_damage=self.reported.append,
            on_failed=self.failed.append,
        )

    def flip(self, base_offset: int, at: int) -> None:
        content = self.disk.names[self.log.segments.floor(base_offset).file.path].content
        _, (position, _), *_ = iterate_batches(bytes(content))
        content[position + at] ^= 1

    async def run_until(self, condition: Callable[[], bool]) -> None:
        task = asyncio.create_task(self.scrubber.run())
        for _ in range(2_000):
            if condition() or task.done():
                break
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert condition()


async def test_a_pass_reads_everything_once_and_finds_what_is_damaged() -> None:
    bench = Bench()
    bench.flip(bench.log.base_offsets[1], 90)
    await bench.run_until(lambda: bench.scrubber.stats.passes == 1)
    stats = bench.scrubber.stats
    assert stats.bytes_checked >= stats.pass_bytes == bench.log.size_bytes
    assert stats.ranges_found == 1 and bench.reported == [bench.log]
    assert stats.batches_checked == 59 and not bench.failed


async def test_at_rate_zero_only_what_is_asked_for_is_read() -> None:
    bench = Bench(rate=0)
    bench.flip(bench.log.base_offsets[1], 90)
    bench.scrubber.request(bench.log, bench.log.base_offsets[0])
    await bench.run_until(lambda: not bench.scrubber.is_requested(bench.log))
    assert not bench.log.damage and bench.scrubber.stats.passes == 0
    bench.scrubber.request(bench.log)
    await bench.run_until(lambda: bool(bench.log.damage))


async def test_what_is_asked_for_is_checked_once_there_are_descriptors_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubber, "RETRY_S", 0.0)
    bench = Bench(rate=0)
    bench.flip(bench.log.base_offsets[1], 90)
    bench.scrubber.request(bench.log)
    bench.disk.is_short_of_descriptors = True
    with pytest.raises(AssertionError):
        await bench.run_until(lambda: not bench.scrubber.is_requested(bench.log))
    assert not bench.failed, "a replica would count as read, and nobody had read it"
    bench.disk.is_short_of_descriptors = False
    await bench.run_until(lambda: not bench.scrubber.is_requested(bench.log))
    assert bench.log.damage


async def test_place_and_damage_outlive_a_restart() -> None:
    bench = Bench()
    bench.flip(bench.log.base_offsets[1], 90)
    await bench.scrubber.check(bench.log, bench.log.base_offsets[1])
    damage = bench.log.damage
    bench.scrubber._checked = (*ORDERS, bench.log.base_offsets[2])
    await bench.scrubber.save()
    repair.set_damage(bench.log, bench.log.base_offsets[1], [])
    bench.scrubber = bench.make()
    bench.scrubber.load()
    assert bench.log.damage == damage != ()
    assert bench.scrubber.is_requested(bench.log), "looked at again before anything else"
    assert bench.scrubber._begin_pass() == [(*ORDERS, base) for base in reversed(bench.log.base_offsets[3:])]


async def test_a_file_that_cannot_be_read_is_no_reason_not_to_start() -> None:
    bench = Bench()
    for content in (b"", b"{", b"[]", json.dumps({"position": 3, "damage": [{}]}).encode()):
        bench.disk.write_file_atomically(f"data/{SCRUB_FILE}", content)
        bench.make().load()


async def test_a_damaged_index_is_made_again() -> None:
    bench = Bench()
    base = bench.log.base_offsets[0]
    segment = bench.log.segments.floor(base)
    for path, cut in ((segment.offset_index.path, 0), (segment.time_index.path, 1)):
        whole = bytes(bench.disk.names[path].content)
        content = bench.disk.names[path].content
        content[-1] ^= 1
        del content[len(content) - cut :]
        await bench.scrubber.check(bench.log, base)
        assert bytes(bench.disk.names[path].content) == whole
    assert bench.scrubber.stats.indexes_rebuilt == 2 and not bench.log.damage
    assert bench.log.read(base, bytes_max=99, end=bench.log.log_end_offset, at_least_one_batch=True).size_bytes


async def test_repaired_records_are_as_young_as_they_were_though_the_time_index_lacks_them() -> None:
    """The newest of a segment were damaged when a start made its time index. Retention took them early, after their repair."""
    bench = Bench()
    log = open_log(bench.disk, directory="data/young-0", config=make_config(segment_bytes=1 << 20))
    for timestamp_ms in (1_000, 9_000):
        append(log, make_batch(2, timestamp_ms=timestamp_ms))
    flush(log)
    log.close()
    content = bench.disk.names[log.active.file.path].content
    whole = bytes(content)
    content[-1] ^= 1
    log = open_log(bench.disk, directory="data/young-0", config=log.config, recovery_point=log.log_end_offset)
    (damage,) = log.damage
    repair.seal(log, 0)
    repair.replace_damaged(log, damage, whole[damage.position :])
    assert log.segments[0].newest_ms(now_ms=20_000) == 9_001, "retention may look before the index is made again"
    await bench.scrubber.check(log, 0)
    assert not log.damage and log.segments[0].newest_ms(now_ms=20_000) == 9_001
    assert newest_in_time_index(bench.disk.read_file(log.segments[0].time_index.path)) == 9_001, (
        "a crash would leave this"
    )


async def test_a_full_disk_puts_off_what_is_written_down_and_ends_nothing() -> None:
    bench = Bench()
    bench.disk.is_full = True
    bench.flip(bench.log.base_offsets[1], 90)
    await bench.run_until(lambda: bool(bench.reported))
    assert bench.log.damage and not bench.failed
    bench.disk.is_full = False
    await bench.scrubber.save()
    assert json.loads(bench.disk.read_file(f"data/{SCRUB_FILE}"))["damage"]
