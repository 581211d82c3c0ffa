"""The disk of a simulated node: the memory disk of the log's tests, whose flushes are answered later on virtual time.

May touch:  the virtual loop.         Must not touch: real files.
Invariants: a flush makes durable what was written before it was asked for, at the moment it is answered and not before;
            a crash keeps what was durable and any part of the rest.
Read next:  nodes.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from barnabas_log.disk import File
from tests.log.memory_disk import MemoryDisk


@dataclass(slots=True)
class DiskFaults:
    """How slow the disks are; drawn per seed."""

    flush_s: float = 0.001
    slow: float = 0.0
    """Probability that a flush takes up to `slow_s`."""
    slow_s: float = 0.0


class SimulatedDisk(MemoryDisk):
    """A MemoryDisk with a seeded flush time."""

    def __init__(self, faults: DiskFaults, random: Random) -> None:
        super().__init__()
        self._faults = faults
        self._draw = random

    def flush(self, files: Sequence[File]) -> Awaitable[None]:
        """An answer inline would make flushes atomic and hide a leadership lost during one: it comes later."""
        for file in files:
            file.acquire()
        return self._answer_later(files, self._flush_time())

    async def _answer_later(self, files: Sequence[File], delay_s: float) -> None:
        try:
            await asyncio.sleep(delay_s)
            for file in files:
                file.sync()
        finally:
            for file in files:
                file.release()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Blocking work takes as long as a flush: most of it is one."""
        await asyncio.sleep(self._flush_time())
        return function(*args)

    def after_crash(self, random: Random) -> SimulatedDisk:
        """What the next life finds."""
        after = SimulatedDisk(self._faults, self._draw)
        left = self.crash(random)
        after.names, after.directories, after.durable_names = left.names, left.directories, left.durable_names
        return after

    def _flush_time(self) -> float:
        faults = self._faults
        time_s = faults.flush_s * (0.5 + self._draw.random())
        if faults.slow and self._draw.random() < faults.slow:
            time_s += self._draw.random() * faults.slow_s
        return time_s
