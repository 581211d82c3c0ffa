"""The broker's end of the worker process, behind the interface that the driver cleans by.

May touch:  asyncio, processes.       Must not touch: logs, the Disk.
Invariants: the worker is exec'd, never forked with the broker's memory; it has no descriptor of the broker's but its pipes; one
            job at a time; a worker that answers nothing sensible is ended.
Read next:  worker.py, the other end; driver.py, which asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Callable
from typing import Final, Protocol

from barnabas_log.cleaner.rewrite import Job, Result

logger = logging.getLogger(__name__)

SILENT_S: Final = 120.0
"""A worker that says nothing for so long is taken for stuck; under a throttle it speaks once per chunk."""
_LINE_BYTES_MAX: Final = 64 * 1024 * 1024


class CleaningFailed(Exception):
    """A run came to nothing."""

    def __init__(self, kind: str, reason: str) -> None:
        """kind: corrupt, gone, room, memory, disk, or died."""
        super().__init__(reason)
        self.kind = kind


class Transform(Protocol):
    """Whoever does the work of a run: a process here, the same function inline in a simulation."""

    async def clean(self, job: Job, *, bytes_per_second: float, on_bytes: Callable[[int], None]) -> Result:
        """Do the job. Raises CleaningFailed."""
        ...

    async def rest(self) -> None:
        """No job is due for a while."""
        ...

    async def close(self) -> None:
        """End."""
        ...


class WorkerProcess:
    """Starts a worker when there is a job, and again when it has died."""

    def __init__(self, *arguments: str) -> None:
        """arguments: of the worker."""
        self._arguments = arguments
        self.started = 0
        """Workers so far."""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the worker, None without one."""
        return None if self._process is None else self._process.pid

    async def clean(self, job: Job, *, bytes_per_second: float, on_bytes: Callable[[int], None]) -> Result:
        """See Transform.clean."""
        try:
            process = self._process or await self._start()
            assert process.stdin is not None and process.stdout is not None
            fields = json.loads(job.encode()) | {"bytes_per_second": bytes_per_second}
            process.stdin.write(json.dumps(fields).encode() + b"\n")
            await process.stdin.drain()
            while True:
                async with asyncio.timeout(SILENT_S + (job_chunk_s(bytes_per_second))):
                    line = await process.stdout.readline()
                if not line:
                    raise CleaningFailed("died", f"the cleaner process {process.pid} ended amid its work")
                answer = json.loads(line)
                if "bytes" in answer:
                    on_bytes(int(answer["bytes"]))
                elif "failure" in answer:
                    raise CleaningFailed(str(answer["failure"]), str(answer["reason"]))
                else:
                    return Result.decode(answer["result"])
        except CleaningFailed as failure:
            if failure.kind in ("died", "memory"):
                await self.close()
            raise
        except (OSError, ValueError, KeyError, TypeError, TimeoutError) as error:
            await self.close()
            raise CleaningFailed("died", f"the cleaner process failed: {error!r}") from error
        except asyncio.CancelledError:
            await self.close()  # during a job: its answer would have no receiver
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # what lies in the working directory is none of its modules
            "-m",
            "barnabas_log.cleaner.worker",
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
        )
        self.started += 1
        logger.info("cleaner process %d started", self._process.pid)
        return self._process

    async def rest(self) -> None:
        """See Transform.rest."""
        await self.close()

    async def close(self) -> None:
        """End the worker: its stdin ends, and it is killed if that is not enough."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        assert process.stdin is not None, "it was started with pipes"
        process.stdin.close()
        # Until its pipes have ended, too: their transports would outlive a loop that closes now, in a process that
        # stays.
        await process.communicate()


def job_chunk_s(bytes_per_second: float) -> float:
    """How long a chunk may take under a throttle."""
    return 4 * 1024 * 1024 / bytes_per_second if bytes_per_second else 0.0
