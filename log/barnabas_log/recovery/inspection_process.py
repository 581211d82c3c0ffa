"""The broker's end of the process that walks over the records of large batches.

May touch:  a process, its pipes, a lock, the monotonic clock.   Must not touch: asyncio, logs, the Disk.
Invariants: it blocks, so it is called from a pool's thread; the worker is exec'd, never forked with the broker's memory; one batch at a
            time; one that dies or is silent is ended, and its batch is not left without a verdict.
Read next:  inspection_worker.py, the other end; batch_inspection.py, which asks.
"""

from __future__ import annotations

import contextlib
import json
import logging
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from barnabas_log.recovery.inspection_worker import ASKED, TIME, WALK
from barnabas_wire.records.inspection import DatedRecord, UnsoundRecords, Walk

logger = logging.getLogger(__name__)

SILENT_S: Final = 30.0
"""A worker that does not answer for so long is taken for stuck: ten million records take ten seconds of a free core."""
LOOK_S: Final = 0.2
"""How often one that waits for the worker looks whether it is still wanted."""
TRIES: Final = 2
PAUSE_S: Final = 10.0
"""After so many failures in a row no worker is started for so long: each batch would wait for another one to fail."""


class NoWorker(Exception):
    """No worker can be started here, or each one ends during the batch."""


class InspectionProcess:
    """Starts a worker when there is a batch for it, and again when it has died. Safe to call from several threads."""

    def __init__(self) -> None:
        self.started = 0
        """Workers so far."""
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._resumes_s = 0.0
        """When a worker may be started again, by the monotonic clock."""
        self.is_closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the worker, None without one."""
        process = self._process
        return None if process is None else process.pid

    def walk(self, batch: bytes, *, keyless_max: int = 0) -> Walk:
        """Open a batch whose checksum is right, and walk over its records. Raises UnsoundRecords for what does not open, NoWorker."""
        fault, record, oldest_ms, newest_ms, *keyless = self._answer(batch, WALK, keyless_max, 0)
        return Walk(fault, record, oldest_ms, newest_ms, tuple(keyless))

    def find_time(
        self, batch: bytes, *, from_offset: int, from_ms: int, is_stopped: Callable[[], bool]
    ) -> DatedRecord | None:
        """Open a batch whose checksum is right; see inspection.find_time. is_stopped: asked now and then; the worker is ended where it
        says so. Raises UnsoundRecords, NoWorker."""
        found = self._answer(batch, TIME, from_offset, from_ms, is_stopped=is_stopped)
        return DatedRecord(*found) if found else None

    def _answer(self, batch: bytes, *question: int, is_stopped: Callable[[], bool] = lambda: False) -> list[int]:
        with self._lock:
            if time.monotonic() < self._resumes_s:
                raise NoWorker
            for _ in range(TRIES):
                if self.is_closed or is_stopped():
                    raise NoWorker
                try:
                    return self._ask(batch, question, is_stopped)
                except (OSError, ValueError, KeyError, TypeError) as error:
                    logger.warning("the process that walks over records failed: %r", error)
                    self._end()
            self._resumes_s = time.monotonic() + PAUSE_S
        raise NoWorker

    def close(self) -> None:
        """End the worker, also during a batch."""
        self.is_closed = True
        self._end()

    def _ask(self, batch: bytes, question: tuple[int, ...], is_stopped: Callable[[], bool]) -> list[int]:
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(ASKED.pack(len(batch), *question))
        process.stdin.write(batch)
        process.stdin.flush()
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        silent_until_s = time.monotonic() + SILENT_S
        while not poll.poll(LOOK_S * 1000):
            if is_stopped():
                self._end()
                raise NoWorker
            if time.monotonic() > silent_until_s:
                raise TimeoutError(f"no answer within {SILENT_S:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise OSError(f"process {process.pid} ended amid a batch of {len(batch)} bytes")
        answer = json.loads(line)
        if "unsound" in answer:
            raise UnsoundRecords(str(answer["unsound"]))
        (found,) = answer.values()
        return [] if found is None else [int(number) for number in found]

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = subprocess.Popen(
            # -P: what lies in the working directory is none of its modules
            [sys.executable, "-P", "-m", "barnabas_log.recovery.inspection_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.started += 1
        logger.info("process %d walks over the records of large batches", process.pid)
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
