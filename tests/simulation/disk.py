"""The disk of a simulated node: the memory disk of the log's tests, whose flushes are answered later on virtual time.

May touch:  the virtual loop.         Must not touch: real files.
Invariants: a flush makes durable what was written before it was asked for, at the moment it is answered and not before;
            a power cut keeps what was durable and any part of the rest; a kill keeps everything written.
Read next:  nodes.py.

A journal keeps renames in order: a power cut undoes the newest of those that were not flushed, never an older one without
them, and whatever was made since under an old name goes with that. A renamed directory goes or stays as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from barnabas_log.disk import File
from tests.log.memory_disk import Inode, MemoryDisk


@dataclass(slots=True)
class DiskFaults:
    """How slow the disks are; drawn per seed, one copy per node."""

    flush_s: float = 0.001
    slow: float = 0.0
    """Probability that a flush takes up to `slow_s`."""
    slow_s: float = 0.0
    stalled_until_s: float = 0.0
    """Until then no flush is answered."""


class SimulatedDisk(MemoryDisk):
    """A MemoryDisk with a seeded flush time."""

    def __init__(self, faults: DiskFaults, random: Random) -> None:
        super().__init__()
        self._faults = faults
        self._draw = random
        self._renames: list[tuple[str, str]] = []
        """Not durable yet, oldest first."""

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

    def rename(self, source: Any, target: Any) -> None:
        """See Disk.rename."""
        super().rename(source, target)
        _move(self.durable_names, str(source), str(target))
        self._renames.append((str(source), str(target)))

    def make_names_durable(self, directory: str) -> None:
        """Its renames are too from now on."""
        super().make_names_durable(directory)
        if self._renames:
            self._renames = [pair for pair in self._renames if pair[0].rpartition("/")[0] != directory]

    def after_crash(self, random: Random, *, is_power_cut: bool) -> SimulatedDisk:
        """What the next life finds."""
        after = SimulatedDisk(self._faults, self._draw)
        if not is_power_cut:
            copies = {inode: _copy(inode) for inode in (*self.names.values(), *self.durable_names.values())}
            after.names = {name: copies[inode] for name, inode in self.names.items()}
            after.durable_names = {name: copies[inode] for name, inode in self.durable_names.items()}
            after.directories, after._renames = set(self.directories), list(self._renames)
            return after
        kept = random.randint(0, len(self._renames)) if self._renames else 0
        for source, target in reversed(self._renames[kept:]):
            for names in (self.names, self.durable_names):
                for name in _at_or_below(names, source):
                    del names[name]
                _move(names, target, source)
            if target in self.directories:
                self.directories.discard(target)
                self.directories.add(source)
            self._lose_new_names(source.rpartition("/")[0])
        left = self.crash(random)
        after.names, after.directories, after.durable_names = left.names, left.directories, left.durable_names
        return after

    def _lose_new_names(self, directory: str) -> None:
        """What came after a lost rename is lost with it."""
        for name in [name for name in self.names if name.rpartition("/")[0] == directory]:
            if self.names[name] is not self.durable_names.get(name):
                del self.names[name]
        for name, inode in self.durable_names.items():
            if name.rpartition("/")[0] == directory:
                self.names[name] = inode

    def wipe(self, directory: str) -> None:
        """Everything below a directory is gone for good: a new disk was put in."""
        for names in (self.names, self.durable_names):
            for name in [name for name in names if name.startswith(f"{directory}/")]:
                del names[name]
        self.directories -= {name for name in self.directories if name.startswith(f"{directory}/")}

    def _flush_time(self) -> float:
        faults = self._faults
        time_s = faults.flush_s * (0.5 + self._draw.random())
        if faults.slow and self._draw.random() < faults.slow:
            time_s += self._draw.random() * faults.slow_s
        if faults.stalled_until_s:
            time_s = max(time_s, faults.stalled_until_s - asyncio.get_running_loop().time())
        return time_s


def _at_or_below(names: dict[str, Inode], path: str) -> list[str]:
    return [name for name in names if name == path or name.startswith(f"{path}/")]


def _move(names: dict[str, Inode], source: str, target: str) -> None:
    for name in _at_or_below(names, source):
        names[f"{target}{name[len(source) :]}"] = names.pop(name)


def _copy(inode: Inode) -> Inode:
    """What is left of the past life may still hold the other one."""
    copy = Inode()
    copy.content += inode.content
    copy.durable = inode.durable
    return copy
