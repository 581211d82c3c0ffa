"""The inspection of a batch, and the process that walks over large ones: real processes, killed and starved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from barnabas_log.batch_inspection import BatchInspector
from barnabas_log.config import LogConfig
from barnabas_log.errors import InvalidBatch
from barnabas_log.recovery import inspection_process as process_module
from barnabas_log.recovery.inspection_process import InspectionProcess, NoWorker
from barnabas_log.worker_process import NICE
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.records.batch import Record, build_batch, read_header, with_max_timestamp
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.inspection import UnsoundRecords
from tests.support.poison import POISON, TWO, batch

LARGE = build_batch(
    [Record(index, 1_000 + index, b"k", b"v" * 20) for index in range(20_000)], compression=CompressionType.LZ4
)


@pytest.fixture
def process() -> Iterator[InspectionProcess]:
    started = InspectionProcess()
    yield started
    started.close()


@pytest.fixture
def inspector() -> Iterator[BatchInspector]:
    made = BatchInspector()
    yield made
    made.close()


def test_the_process_says_what_the_walk_says(process: InspectionProcess) -> None:
    assert process.walk(LARGE) == (0, -1, 0, 19_999, ())
    found = process.walk(POISON["count 3, two records"][0])
    assert (found.fault, found.record) == (2, 2)
    with pytest.raises(UnsoundRecords, match="cannot be read"):
        process.walk(POISON["gzip truncated"][0])
    assert process.started == 1
    assert process.pid is not None
    worker = psutil.Process(process.pid)
    assert worker.nice() >= min(NICE, 19)
    assert not [each for each in worker.open_files() if each.path.startswith("/tmp")]


def test_a_worker_that_was_killed_is_replaced_and_its_batch_gets_a_verdict(process: InspectionProcess) -> None:
    process.walk(LARGE)
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert process.walk(LARGE).newest_ms == 19_999
    assert process.pid != first
    assert process.started == 2


def test_a_worker_that_says_nothing_is_ended(process: InspectionProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    process.walk(batch(TWO, 2))
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(process_module, "SILENT_S", 2.0)
    assert process.walk(batch(TWO, 2)).fault == 0
    assert process.pid != first
    assert not psutil.pid_exists(first)


def test_several_threads_get_their_own_answers(process: InspectionProcess) -> None:
    batches = [build_batch([Record(i, 7 * i, b"k", b"v") for i in range(count)]) for count in range(1, 60)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(process.walk, batches))
    assert [walk.newest_ms for walk in found] == [7 * index for index in range(59)]
    assert process.started == 1


def test_without_a_process_a_batch_is_walked_over_here(
    inspector: BatchInspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none can be started sound batches are taken all the same, and unsound ones are not."""

    tried = []

    def no_process(*args: object, **named: object) -> None:
        tried.append(args)
        raise OSError("no room for a process")

    monkeypatch.setattr(subprocess, "Popen", no_process)
    with pytest.raises(NoWorker):
        inspector.process.walk(LARGE)
    assert inspector.inspected(LARGE, LogConfig(), now_ms=0, steps_max=0) == LARGE
    with pytest.raises(InvalidBatch):
        inspector.inspected(POISON["trailing bytes"][0], LogConfig(), now_ms=0, steps_max=0)
    assert len(tried) == process_module.TRIES, "and not for each batch"


def test_the_greatest_time_of_a_large_batch_is_put_right_too(inspector: BatchInspector) -> None:
    for wrong in (-1, 1_000, 10**9):
        data = with_max_timestamp(LARGE, read_header(LARGE), wrong)
        assert inspector.inspected(data, LogConfig(), now_ms=0, steps_max=0) == LARGE


def test_a_closed_inspector_starts_nothing(inspector: BatchInspector) -> None:
    inspector.close()
    with pytest.raises(KafkaError, match="shutting down"):
        inspector.inspected(LARGE, LogConfig(), now_ms=0, steps_max=0)
    assert inspector.process.started == 0


def test_a_worker_ends_with_its_broker(tmp_path: Path) -> None:
    script = """
from barnabas_log.recovery.inspection_process import InspectionProcess
from tests.support.poison import TWO, batch
process = InspectionProcess()
process.walk(batch(TWO, 2))
print(process.pid, flush=True)
import time; time.sleep(60)
"""
    broker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    worker = psutil.Process(int(broker.stdout.readline()))
    broker.kill()
    broker.wait()
    broker.stdout.close()
    worker.wait(10)
    assert not worker.is_running()
