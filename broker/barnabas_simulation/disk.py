"""The disk of a simulated node: the log's disk in memory, whose flushes are answered later on virtual time.

May touch:  the virtual loop.         Must not touch: real files.
Invariants: a flush makes durable what was written before it was asked for, at the moment it is answered and not before;
            a power cut keeps what was durable and any part of the rest; a kill keeps everything written; a directory that
            is broken stays so until somebody repairs it, and is whole to the judge.
Read next:  barnabas_log/memory_disk.py; nodes.py.

A journal keeps renames in order: a power cut undoes the newest of those that were not flushed, never an older one without
them, and whatever was made since under an old name goes with that. A renamed directory goes or stays as a whole.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from barnabas_log.disk import File
from barnabas_log.memory_disk import Inode, MemoryDisk, MemoryFile
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import Buffer


@dataclass(slots=True)
class DiskFaults:
    """How slow the disks are; drawn per seed, one copy per node."""

    flush_s: float = 0.001
    slow: float = 0.0
    """Probability that a flush takes up to `slow_s`."""
    slow_s: float = 0.0
    stalled_until_s: float = 0.0
    """Until then no flush is answered."""
    are_logs_stalled: bool = False
    """No flush of a partition's log is answered, as where the metadata has its own disk."""
    are_logs_lying: bool = False
    """Flushes of partitions' logs are answered and do nothing: what a proof of power loss must find out."""


LOGS = "/data-"
"""A part of the paths of partition logs alone."""
STALL_STEP_S = 0.01
NO_ROOM_FOR = ("append", "write")
"""What a full disk refuses; it can still be read, flushed and renamed in."""


class SimulatedFile(MemoryFile):
    """A file that may be on a full disk."""

    _disk: SimulatedDisk

    def append(self, parts: Sequence[Buffer]) -> int:
        """See File.append. What has room is written, as a short write leaves it."""
        self._need_descriptor()
        if self._disk.takes(self.path, sum(map(len, parts))):
            with self._disk.judged():
                return super().append(parts)
        room = self._disk.room_for(self.path) if self._disk.broken else None
        if room is not None and self._inode is not None:
            self._inode.content += b"".join(parts)[:room]
        return super().append(parts)

    def sync(self) -> None:
        """See File.sync."""
        if not self._disk.is_lying_at(self.path):
            super().sync()

    def read(self, position: int, size: int) -> bytes:
        """See File.read. With the bits that flipped, unless the judge reads."""
        data = super().read(position, size)
        if self._inode is not None and self._inode.rot and not self._disk.is_judged:
            flipped = bytearray(data)
            for place, bits in self._inode.rot.items():
                if position <= place < position + len(data):
                    flipped[place - position] ^= bits
            data = bytes(flipped)
        return data

    def sync_to(self, size_bytes: int) -> None:
        """A flush that was asked for when the file was that long: what was written since is not durable by it."""
        assert self._inode is not None, "names are flushed by their directory"
        self._disk.may_fail("sync", self.path)
        if self._disk.is_lying_at(self.path):
            return
        content, durable = self._inode.content, self._inode.durable
        if len(durable) <= size_bytes or not content.startswith(durable):
            self._inode.durable = bytes(content[:size_bytes])


class SimulatedDisk(MemoryDisk):
    """A MemoryDisk with a seeded flush time, whose directories can break."""

    def __init__(self, faults: DiskFaults, random: Random) -> None:
        super().__init__()
        self._faults = faults
        self._draw = random
        self._is_of_a_former_life = False
        self._renames: list[tuple[str, str]] = []
        """Not durable yet, oldest first."""
        self.broken: dict[str, int] = {}
        """errno of what fails in a directory and below: EIO is everything, ENOSPC only what needs room, until there is again."""
        self.spare: dict[str, int] = {}
        """By directory: bytes that a full one takes all the same, because as many were removed of it (its reserve)."""
        self.is_judged = False

    def need_descriptor(self, path: str) -> None:
        """See MemoryDisk. The metadata log lives on the spares of a separate disk."""
        if LOGS in path and not self.is_judged:
            super().need_descriptor(path)

    @property
    def has_rot(self) -> bool:
        """Whether bits of a log that is in use are flipped."""
        return any(
            inode.rot and LOGS in path and path.endswith(".log") and "-delete/" not in path and "-stray/" not in path
            for path, inode in self.names.items()
        )

    # -- broken directories ----------------------------------------------------------------------------------------

    def may_fail(self, operation: str, path: str) -> None:
        """See MemoryDisk. Raises OSError where the directory is broken."""
        if self.broken and not self.is_judged:
            code = self._code_at(path)
            if code == errno.EIO or (code == errno.ENOSPC and operation in NO_ROOM_FOR):
                raise OSError(code, f"simulated {operation} error", path)

    def _code_at(self, path: str) -> int | None:
        return next(
            (code for broken, code in self.broken.items() if path == broken or path.startswith(f"{broken}/")), None
        )

    def unreadable(self, path: str) -> OSError | None:
        """The error that whoever reads a directory's meta.properties gets."""
        return OSError(errno.EIO, "simulated read error", path) if self.broken.get(path) == errno.EIO else None

    def free_bytes(self, path: Any) -> int:
        """See Disk.free_bytes."""
        return 0 if self._code_at(str(path)) == errno.ENOSPC else super().free_bytes(path)

    def takes(self, path: str, size: int) -> bool:
        """Whether a full directory has room for this all the same; then it is taken."""
        full = next(
            (each for each, code in self.broken.items() if code == errno.ENOSPC and path.startswith(f"{each}/")), ""
        )
        if not full or self.spare.get(full, 0) < size:
            return False
        self.spare[full] = self.spare.get(full, 0) - size  # an empty write needs none
        return True

    def write_file_atomically(self, path: Any, data: bytes) -> None:
        """See Disk.write_file_atomically."""
        if self.takes(str(path), len(data)):
            with self.judged():
                super().write_file_atomically(path, data)
        else:
            super().write_file_atomically(path, data)

    def room_for(self, path: str) -> int | None:
        """Bytes of a write that a full disk still takes; None: it is not full."""
        return self._draw.randint(0, 100) if self._code_at(path) == errno.ENOSPC else None

    def is_lying_at(self, path: str) -> bool:
        """Whether flushes there do nothing."""
        return self._faults.are_logs_lying and LOGS in path

    @contextmanager
    def judged(self) -> Iterator[None]:
        """The judge reads what a broken directory holds: nothing is lost of it yet."""
        self.is_judged = True
        try:
            yield
        finally:
            self.is_judged = False

    # -- the rest of Disk ------------------------------------------------------------------------------------------

    def open(self, path: Any, *, create: bool = False) -> File:
        """See Disk.open."""
        self.may_fail("open", str(path))
        file = super().open(path, create=create)
        assert isinstance(file, MemoryFile), "MemoryDisk opens these"
        return SimulatedFile(self, str(path), file._inode)

    def list_directory(self, path: Any) -> list[str]:
        """See Disk.list_directory."""
        self.may_fail("list", str(path))
        return super().list_directory(path)

    def make_directory(self, path: Any, *, below: Any = None) -> None:
        """See Disk.make_directory."""
        self.may_fail("make", str(path))
        super().make_directory(path, below=below)

    def read_file(self, path: Any) -> bytes:
        """See Disk.read_file."""
        self.may_fail("read", str(path))
        return super().read_file(path)

    def remove(self, path: Any) -> None:
        """See Disk.remove."""
        self.may_fail("remove", str(path))
        inode, directory = self.names.get(str(path)), str(path).rpartition("/")[0]
        if inode is not None and self.broken.get(directory) == errno.ENOSPC:
            self.spare[directory] = self.spare.get(directory, 0) + len(inode.content)
        super().remove(path)

    def remove_tree(self, path: Any) -> None:
        """See Disk.remove_tree."""
        self.may_fail("remove", str(path))
        super().remove_tree(path)

    def flush(self, files: Sequence[File]) -> Awaitable[None]:
        """An answer inline would make flushes atomic and hide a leadership lost during one: it comes later."""
        for file in files:
            file.acquire()
        return self._answer_later(files, self._flush_time())

    async def _answer_later(self, files: Sequence[File], delay_s: float) -> None:
        sizes = [file.size_bytes for file in files]
        try:
            await asyncio.sleep(delay_s)
            while self._faults.are_logs_stalled and any(LOGS in file.path for file in files):
                await asyncio.sleep(STALL_STEP_S)
            for file, size in zip(files, sizes, strict=True):
                if isinstance(file, SimulatedFile):
                    file.sync_to(size)
                else:
                    file.sync()
        finally:
            for file in files:
                file.release()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Blocking work takes as long as a flush: most of it is one."""
        await asyncio.sleep(self._flush_time())
        if self._is_of_a_former_life:
            raise asyncio.CancelledError  # its names are by now what the next life finds, and its threads ended with it
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
        self._is_of_a_former_life = True
        after = SimulatedDisk(self._faults, self._draw)
        after.broken, after.spare = dict(self.broken), dict(self.spare)
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
    copy.rot = dict(inode.rot)
    return copy
