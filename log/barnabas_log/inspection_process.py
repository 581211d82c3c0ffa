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
from typing import Final

from barnabas_log.inspection_worker import ASKED
from barnabas_wire.records.inspection import UnsoundRecords, Walk

logger = logging.getLogger(__name__)

SILENT_S: Final = 30.0
"""A worker that does not answer for so long is taken for stuck: ten million records take ten seconds of a free core."""
TRIES: Final = 2
PAUSE_S: Final = 10.0
"""After so many failures in a row no worker is started for so long: each batch would wait for another one to fail."""


class NoWorker(Exception):
    """No worker can be started here, or each one ends amid the batch."""


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
        """Of the worker, if there is one."""
        process = self._process
        return None if process is None else process.pid

    def walk(self, batch: bytes, *, keyless_max: int = 0) -> Walk:
        """Open a batch whose checksum is right, and walk over its records. Raises UnsoundRecords for what does not open, NoWorker."""
        with self._lock:
            if time.monotonic() < self._resumes_s:
                raise NoWorker
            for _ in range(TRIES):
                if self.is_closed:
                    raise NoWorker
                try:
                    return self._ask(batch, keyless_max)
                except (OSError, ValueError, KeyError, TypeError) as error:
                    logger.warning("the process that walks over records failed: %r", error)
                    self._end()
            self._resumes_s = time.monotonic() + PAUSE_S
        raise NoWorker

    def close(self) -> None:
        """End the worker, also amid a batch."""
        self.is_closed = True
        self._end()

    def _ask(self, batch: bytes, keyless_max: int) -> Walk:
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(ASKED.pack(len(batch), keyless_max))
        process.stdin.write(batch)
        process.stdin.flush()
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        if not poll.poll(SILENT_S * 1000):
            raise TimeoutError(f"no answer within {SILENT_S:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise OSError(f"process {process.pid} ended amid a batch of {len(batch)} bytes")
        answer = json.loads(line)
        if "unsound" in answer:
            raise UnsoundRecords(str(answer["unsound"]))
        fault, record, oldest_ms, newest_ms, *keyless = map(int, answer["walk"])
        return Walk(fault, record, oldest_ms, newest_ms, tuple(keyless))

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = subprocess.Popen(
            # -P: what lies in the working directory is none of its modules
            [sys.executable, "-P", "-m", "barnabas_log.inspection_worker"],
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
