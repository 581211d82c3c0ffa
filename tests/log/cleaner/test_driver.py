"""The cleaner of a manager, with its real worker process: it cleans, survives the worker's death, and sets aside what cannot be
cleaned."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from barnabas_log.cleaner import worker as worker_module
from barnabas_log.cleaner.process import CleaningFailed, WorkerProcess
from barnabas_log.cleaner.rewrite import Job, Result
from barnabas_log.cleaner.sealed import sealed_segments
from barnabas_log.cleaner.swap import CLEANING_DIRECTORY
from barnabas_log.config import CleanupPolicy, LogConfig, LogManagerConfig
from barnabas_log.directories.manager import LogManager
from barnabas_log.disk import RealDisk
from barnabas_log.tail import truncating
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import NO_OFFSET, Offset, TopicPartition, Uuid
from barnabas_wire.records.batch import Record, build_batch
from barnabas_wire.records.compression import CompressionType
from tests.log.cleaner.logs_to_clean import Row, rows_of
from tests.support.logs import NOW_MS, append, content, flush, make_config

TOPIC_ID = Uuid(b"c" * 16)
CHANGES, MORE = TopicPartition("changes", 0), TopicPartition("more", 0)
COMPACTED = make_config(cleanup_policy=CleanupPolicy.COMPACT, file_delete_delay_ms=0)
QUICK = LogManagerConfig(cleaner_backoff_ms=20, scrub_bytes_per_second_max=0)


class Cleaned:
    """A manager over real files."""

    def __init__(self, directory: Path, *, transform: Any = None, config: LogManagerConfig = QUICK) -> None:
        self.passed_ms = 0
        began_s = time.monotonic()
        self.worker = transform or WorkerProcess()
        self.disk = RealDisk()
        self.manager = LogManager(
            disk=self.disk,
            directories=[str(directory)],
            default_config=make_config(),
            clock_ms=lambda: NOW_MS + self.passed_ms + round((time.monotonic() - began_s) * 1000),
            config=config,
            transform=self.worker,
        )

    @property
    def stats(self) -> Any:
        return self.manager.cleaner.stats

    def log(self, name: TopicPartition = CHANGES, config: LogConfig = COMPACTED) -> UnifiedLog:
        return self.manager.get_or_create(name, TOPIC_ID, config)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.manager.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def cleaned(directory: Path, **settings: Any) -> AsyncIterator[Cleaned]:
    """Loaded, and its disk closed at the end."""
    made = Cleaned(directory, **settings)
    await made.manager.load()
    try:
        yield made
    finally:
        await made.manager.close()
        made.disk.close()


def fill(log: UnifiedLog, *, batches: int = 80, start: int = 0) -> list[Row]:
    """Keys that are written again and again; all committed and flushed."""
    for n in range(start, start + batches):
        records = [Record(i, NOW_MS + n, b"k%d" % ((n + i) % 9), b"%d-%d" % (n, i) * 9) for i in range(4)]
        append(log, build_batch(records, compression=CompressionType(n % 5)))
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    return rows_of(content(log))


def last_of_each(rows: list[Row]) -> dict[bytes | None, Row]:
    return {row.key: row for row in rows}


async def test_a_dirty_log_is_cleaned_by_a_process_of_its_own_and_only_once(tmp_path: Path) -> None:
    async with cleaned(tmp_path) as broker:
        log = broker.log()
        before, plain = fill(log), fill(broker.log(MORE, make_config()))
        size = log.size_bytes
        async with broker.running():
            await broker.until(lambda: broker.stats.runs >= 1 and not broker.stats.is_running)
            assert last_of_each(rows_of(content(log))) == last_of_each(before)
            assert log.size_bytes < size / 2 and log.clean_offset == log.base_offsets[-1]
            assert rows_of(content(broker.log(MORE, make_config()))) == plain
            await broker.until(lambda: not list((tmp_path / "changes-0").glob("*.log.deleted")))
            await asyncio.sleep(0.1)
            assert broker.stats.runs == 1, "a clean log is left alone"
            fill(log, batches=80, start=80)
            await broker.until(lambda: broker.stats.runs >= 2 and not broker.stats.is_running)
        names = {path.name for path in (tmp_path / "changes-0").iterdir()}
        assert not [name for name in names if "swap" in name or "cleaned" in name]
        assert not list((tmp_path / "changes-0" / ".cleaning").iterdir())
        rows, clean = rows_of(content(log)), log.clean_offset
    async with cleaned(tmp_path) as again:
        assert rows_of(content(again.log())) == rows and again.log().clean_offset == clean
        assert f"changes 0 {clean}" in (tmp_path / "cleaner-offset-checkpoint").read_text()


async def test_a_kill_after_a_run_loses_nothing_though_no_recovery_point_was_written(tmp_path: Path) -> None:
    async with cleaned(tmp_path) as broker:
        log = broker.log()
        fill(log)
        async with broker.running():
            await broker.until(lambda: bool(broker.stats.runs) and not broker.stats.is_running)
        rows, end = rows_of(content(log)), log.log_end_offset
        killed = Cleaned(tmp_path)
        await killed.manager.load()
        again = killed.manager.logs[CHANGES]
        assert again.recovery_report.scanned_bytes == again.size_bytes, "every batch was proved"
        assert rows_of(content(again)) == rows and again.log_end_offset == end
        killed.disk.close()


async def test_a_log_whose_topic_is_not_known_yet_is_not_cleaned(tmp_path: Path) -> None:
    async with cleaned(tmp_path) as broker:
        fill(broker.log())
    async with cleaned(tmp_path) as again, again.running():
        await asyncio.sleep(0.2)
        assert again.stats.runs == 0
        again.log().update_high_watermark(again.log().log_end_offset)
        await again.until(lambda: bool(again.stats.runs))


async def test_without_log_cleaner_enable_nothing_is_cleaned(tmp_path: Path) -> None:
    config = LogManagerConfig(cleaner_backoff_ms=20, is_cleaner_enabled=False)
    async with cleaned(tmp_path, config=config) as broker:
        fill(broker.log())
        async with broker.running():
            await asyncio.sleep(0.2)
        assert broker.stats.runs == 0 and broker.worker.started == 0


class KilledOnce(WorkerProcess):
    """A worker that is killed amid its first job."""

    async def clean(self, job: Job, *, bytes_per_second: float, on_bytes: Callable[[int], None]) -> Result:
        if self.started:
            return await super().clean(job, bytes_per_second=bytes_per_second, on_bytes=on_bytes)

        def kill(moved: int) -> None:
            assert self.pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            on_bytes(moved)

        return await super().clean(job, bytes_per_second=5_000.0, on_bytes=kill)


async def test_the_worker_is_reported_how_fast_it_may_be(tmp_path: Path) -> None:
    class Asked(WorkerProcess):
        limits: ClassVar[list[float]] = []

        async def clean(self, job: Job, *, bytes_per_second: float, on_bytes: Callable[[int], None]) -> Result:
            self.limits.append(bytes_per_second)
            return await super().clean(job, bytes_per_second=bytes_per_second, on_bytes=on_bytes)

    worker = Asked()
    config = replace(QUICK, cleaner_bytes_per_second_max=4e6)
    async with cleaned(tmp_path, config=config, transform=worker) as broker:
        fill(broker.log())
        async with broker.running():
            await broker.until(lambda: broker.stats.runs >= 1)
    assert worker.limits == [4e6]


def test_a_worker_moves_no_more_bytes_a_second_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [100.0]
    said: list[int] = []

    def work(*_: object, **named: object) -> Iterator[int]:
        for moved, takes_s in ((4_000_000, 0.1), (1_000_000, 0.1), (3_000_000, 5.0), (2_000_000, 0.0)):
            clock_s[0] += takes_s
            yield moved

    def sleep(seconds: float) -> None:
        clock_s[0] += seconds

    monkeypatch.setattr(worker_module, "rewrite", work)
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=lambda: clock_s[0], sleep=sleep))
    monkeypatch.setattr(worker_module, "_say", lambda line: said.append(line["bytes"]))
    took = []
    for limit in (1e6, sys.float_info.max):
        began_s = clock_s[0]
        worker_module._work(None, None, limit)  # type: ignore[arg-type]
        took.append(round(clock_s[0] - began_s, 3))
    assert took == [10.0, 5.2], "ten megabytes at one a second; without a limit, the work itself"
    assert sum(said) == 2 * 10_000_000


async def test_a_worker_that_is_killed_is_replaced_and_the_run_begins_anew(tmp_path: Path) -> None:
    async with cleaned(tmp_path, transform=KilledOnce()) as broker:
        log = broker.log()
        before = fill(log)
        async with broker.running():
            await broker.until(lambda: bool(broker.stats.runs))
        assert broker.stats.runs_failed == 1 and broker.worker.started == 2
        assert last_of_each(rows_of(content(log))) == last_of_each(before)
        assert not broker.stats.set_aside


async def test_a_damaged_log_is_set_aside_and_the_others_go_on(tmp_path: Path) -> None:
    async with cleaned(tmp_path) as broker:
        damaged, sound = broker.log(), broker.log(MORE)
        fill(damaged), fill(sound, batches=40)
        path = tmp_path / "changes-0" / f"{damaged.base_offsets[1]:020d}.log"
        raw = bytearray(path.read_bytes())
        raw[200] ^= 0xFF
        path.write_bytes(raw)
        async with broker.running():
            await broker.until(lambda: CHANGES in broker.stats.set_aside and bool(broker.stats.runs))
            await broker.until(lambda: bool(damaged.damage))
        assert "damaged" in broker.stats.set_aside[CHANGES]
        assert sound.clean_offset > 0 and damaged.clean_offset == 0


class Failing:
    """A transform that always dies."""

    def __init__(self) -> None:
        self.asked = 0
        self.started = 0

    async def clean(self, job: Job, *, bytes_per_second: float, on_bytes: Callable[[int], None]) -> Result:
        self.asked += 1
        raise CleaningFailed("died", "for the test")

    async def rest(self) -> None: ...

    async def close(self) -> None: ...


async def test_a_log_with_which_every_run_fails_is_set_aside_and_tried_again_later(tmp_path: Path) -> None:
    transform = Failing()
    async with cleaned(tmp_path, transform=transform) as broker:
        fill(broker.log())
        async with broker.running():
            for _ in range(400):
                broker.passed_ms += 400
                await asyncio.sleep(0.01)
                if broker.stats.set_aside:
                    break
            assert broker.stats.set_aside == {CHANGES: "died: for the test"} and transform.asked == 5
            broker.passed_ms += 3_700_000
            await broker.until(lambda: transform.asked == 6)


class CutsMeanwhile:
    """A transform amid whose work the log is cut."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.inner = worker
        self.meanwhile: Callable[[], None] = lambda: None

    async def clean(self, job: Job, *, bytes_per_second: float, on_bytes: Callable[[int], None]) -> Result:
        result = await self.inner.clean(job, bytes_per_second=bytes_per_second, on_bytes=on_bytes)
        self.meanwhile()
        return result

    async def rest(self) -> None: ...

    async def close(self) -> None:
        await self.inner.close()


@pytest.mark.parametrize("change", ["truncate", "delete", "doubt"])
async def test_a_run_over_a_log_that_changes_meanwhile_is_dropped(tmp_path: Path, change: str) -> None:
    transform = CutsMeanwhile(WorkerProcess())
    async with cleaned(tmp_path, transform=transform) as broker:
        log = broker.log()
        before = fill(log)

        def meanwhile() -> None:
            transform.meanwhile = lambda: None
            if change == "truncate":
                truncating.truncate_to(log, Offset(100))
            elif change == "doubt":
                log.tail.doubt_producers(Offset(100))
            else:
                broker.manager.delete(CHANGES)

        transform.meanwhile = meanwhile
        async with broker.running():
            await broker.until(lambda: bool(broker.stats.runs_dropped))
            assert not broker.stats.set_aside
            if change == "truncate":
                assert rows_of(content(log)) == [row for row in before if row.offset < 100]
            elif change == "doubt":
                assert rows_of(content(log)) == before
        assert broker.manager.health.offline_directories == []


@pytest.mark.parametrize("doubt", ["damage was repaired", "a segment was not read"])
async def test_a_log_is_cleaned_only_once_its_aborted_transactions_are_certain(tmp_path: Path, doubt: str) -> None:
    """Of a marker that was damaged as they were read, a later abort by its producer seemed to be the end, and reached over what was
    committed in between."""
    async with cleaned(tmp_path) as broker:
        log = broker.log()
        before = fill(log)
        if doubt == "damage was repaired":
            log.tail.doubt_producers(Offset(100))
        else:
            log.producers.unread = tuple(log.base_offsets[:1])
        async with broker.running():
            fill(broker.log(MORE))
            await broker.until(lambda: broker.stats.runs == 1 and not broker.stats.is_running)
            assert rows_of(content(log)) == before
            log.tail.doubted_from, log.producers.unread = NO_OFFSET, ()
            await broker.until(lambda: broker.stats.runs == 2 and not broker.stats.is_running)
        assert last_of_each(rows_of(content(log))) == last_of_each(before)


async def test_a_run_makes_no_directory_anew_that_has_just_been_deleted(tmp_path: Path) -> None:
    """A directory of that name without a log was left, which nobody removed."""
    async with cleaned(tmp_path) as broker:
        log = broker.log()
        fill(log)
        make, loop = broker.disk.make_directory, asyncio.get_running_loop()

        async def delete() -> None:
            broker.manager.delete(CHANGES)

        def make_late(path: Any, **rest: Any) -> None:
            if CLEANING_DIRECTORY in str(path):
                asyncio.run_coroutine_threadsafe(delete(), loop).result()
            make(path, **rest)

        broker.disk.make_directory = make_late  # type: ignore[method-assign]
        async with broker.running():
            await broker.until(lambda: bool(broker.stats.runs_dropped))
        assert not (tmp_path / str(CHANGES)).exists()
        assert broker.manager.health.offline_directories == []


BROKER = """
import json, subprocess, sys, time
from barnabas_log.cleaner.rewrite import Job
line = json.loads(sys.argv[1])
worker = subprocess.Popen([sys.executable, "-m", "barnabas_log.cleaner.worker"], stdin=subprocess.PIPE)
worker.stdin.write(json.dumps(line).encode() + b"\\n"); worker.stdin.flush()
print(worker.pid, flush=True)
time.sleep(60)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_worker_ends_with_its_broker_even_amid_a_job(tmp_path: Path) -> None:
    async with cleaned(tmp_path) as broker:
        log = broker.log()
        fill(log)
        (tmp_path / "run").mkdir()
        job = Job(
            directory=log.directory,
            run_directory=str(tmp_path / "run"),
            sources=sealed_segments(log, log.log_end_offset).sources,
            first_dirty=0,
            segment_bytes=4000,
            segment_index_bytes=4000,
            index_interval_bytes=300,
            now_ms=NOW_MS,
            delete_retention_ms=0,
            map_bytes_max=1 << 20,
        )
        line = json.dumps(json.loads(job.encode()) | {"bytes_per_second": 2_000.0})
        parent = subprocess.Popen([sys.executable, "-c", BROKER, line], stdout=subprocess.PIPE)  # noqa: ASYNC220
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        deadline_s = time.monotonic() + 30
        while not list((tmp_path / "run").iterdir()) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.05)
        assert is_running(pid)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
        while is_running(pid) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.05)
        assert not is_running(pid)
