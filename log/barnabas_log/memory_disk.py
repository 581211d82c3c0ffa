"""A disk in memory that can be held up, broken and crashed: what is not flushed may be lost, torn or half old.

May touch:  the running loop.         Must not touch: real files, clocks.
Invariants: a flush makes durable what it was asked for; a crash keeps what was durable, and any part of the rest.
Read next:  disk.py, the interface.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from barnabas_log.disk import File
from barnabas_wire.records.batch import Buffer


class Inode:
    """Bytes behind a name: as the page cache has them, and as they are durable."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.rot: dict[int, int] = {}
        """Bits that flipped on the disk: position -> which of the byte. Seen by readers of a simulated disk."""


class MemoryFile:
    """An open file of a MemoryDisk."""

    def __init__(self, disk: MemoryDisk, path: str, inode: Inode | None) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self.holders = 1
        self.is_closed = False
        self.appends = 0

    @property
    def size_bytes(self) -> int:
        """See File.size_bytes."""
        return len(self._inode.content) if self._inode else 0

    @size_bytes.setter
    def size_bytes(self, value: int) -> None:
        """See File.size_bytes."""
        raise AssertionError("set by appending")

    def append(self, parts: Sequence[Buffer]) -> int:
        """See File.append."""
        assert self._inode is not None and self.holders > 0, f"{self.path} cannot be written"
        self._need_descriptor()
        self._disk.may_fail("append", self.path)
        self.appends += 1
        data = b"".join(parts)
        self._inode.content += data
        return len(data)

    def read(self, position: int, size: int) -> bytes:
        """See File.read."""
        assert self._inode is not None and self.holders > 0, f"{self.path} cannot be read"
        self._need_descriptor()
        self._disk.may_fail("read", self.path)
        if position < 0:
            raise OSError(errno.EINVAL, "a negative position", self.path)  # as pread(2)
        return bytes(self._inode.content[position : position + size])

    def read_aside(self, position: int, size: int) -> bytes:
        """See File.read_aside."""
        return self.read(position, size)

    def overwrite(self, position: int, data: Buffer) -> None:
        """As O_DSYNC would: what is replaced is durable at once, and a crash tears nothing else."""
        assert self._inode is not None and self.holders > 0, f"{self.path} cannot be written"
        self._disk.may_fail("append", self.path)
        self._inode.content[position : position + len(data)] = data
        for place in range(position, position + len(data)):
            self._inode.rot.pop(place, None)
        durable = bytearray(self._inode.durable)
        if position <= len(durable):
            durable[position : position + len(data)] = data
        self._inode.durable = bytes(durable)

    def truncate(self, size_bytes: int) -> None:
        """See File.truncate."""
        assert self._inode is not None and size_bytes <= len(self._inode.content)
        del self._inode.content[size_bytes:]
        if self._inode.rot:
            self._inode.rot = {place: bits for place, bits in self._inode.rot.items() if place < size_bytes}

    def sync(self) -> None:
        """See File.sync."""
        self._disk.may_fail("sync", self.path)
        if self._inode is None:
            self._disk.make_names_durable(self.path)
        else:
            self._inode.durable = bytes(self._inode.content)

    def send_descriptor(self) -> int:
        """See File.send_descriptor."""
        raise OSError("a file in memory has no descriptor")

    def acquire(self) -> None:
        """See File.acquire."""
        assert self.holders > 0
        self._need_descriptor()
        self.holders += 1

    def _need_descriptor(self) -> None:
        """While the disk is short of descriptors, every file without a holder was closed to make room."""
        if self.holders == 1 and not self.is_closed:
            self._disk.need_descriptor(self.path)

    def release(self) -> None:
        """See File.release."""
        assert self.holders > 0
        self.holders -= 1

    def rest(self) -> None:
        """See File.rest."""

    def close(self) -> None:
        """See File.close."""
        if not self.is_closed:
            self.is_closed = True
            self.release()


class MemoryDisk:
    """See the module. `hold_flushes` parks flushes until `let_go`; `fail_on` makes an operation on a path raise."""

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.directories: set[str] = {""}
        self.durable_names: dict[str, Inode] = {}
        self.fail_on: Callable[[str, str], bool] = lambda operation, path: False
        self.flushes: list[list[str]] = []
        self.telling: set[asyncio.Task[None]] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_short_of_descriptors = False
        """While it is, nothing can be opened, nor used that is not held by somebody beside its owner."""

    def need_descriptor(self, path: str) -> None:
        """Raise EMFILE while the disk is short of descriptors."""
        if self.is_short_of_descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def may_fail(self, operation: str, path: str) -> None:
        """Raise OSError where `fail_on` says so."""
        if self.fail_on(operation, path):
            raise OSError(5, f"injected {operation} error", path)

    def make_names_durable(self, directory: str) -> None:
        """The names that are in a directory now are there after a crash."""

        def is_inside(path: str) -> bool:
            return path.rpartition("/")[0] == directory

        for path in [path for path in self.durable_names if is_inside(path)]:
            del self.durable_names[path]
        self.durable_names.update({path: inode for path, inode in self.names.items() if is_inside(path)})

    def open(self, path: Any, *, create: bool = False) -> File:
        """See Disk.open."""
        self.need_descriptor(str(path))
        inode = self.names.get(str(path))
        if inode is None:
            if not create or str(path).rpartition("/")[0] not in self.directories:
                raise FileNotFoundError(path)
            inode = self.names[str(path)] = Inode()
        return MemoryFile(self, str(path), inode)

    def directory(self, path: Any) -> File:
        """See Disk.directory."""
        self.need_descriptor(str(path))
        return MemoryFile(self, str(path), None)

    def exists(self, path: Any) -> bool:
        """See Disk.exists."""
        return str(path) in self.names or str(path) in self.directories

    def is_directory(self, path: Any) -> bool:
        """See Disk.is_directory."""
        return str(path) in self.directories

    def list_directory(self, path: Any) -> list[str]:
        """See Disk.list_directory."""
        self.need_descriptor(str(path))
        prefix = f"{path}/"
        return sorted(
            {
                name[len(prefix) :].partition("/")[0]
                for name in (*self.names, *self.directories)
                if name.startswith(prefix)
            }
        )

    def make_directory(self, path: Any, *, below: Any = None) -> None:
        """See Disk.make_directory."""
        if below is not None and str(below) not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(below))
        parts = str(path).split("/")
        self.directories.update("/".join(parts[: n + 1]) for n in range(len(parts)))

    def rename(self, source: Any, target: Any) -> None:
        """See Disk.rename."""
        self.may_fail("rename", str(source))
        if str(source) in self.names:
            self.names[str(target)] = self.names.pop(str(source))
            return
        for name in [name for name in self.names if name.startswith(f"{source}/")]:
            self.names[f"{target}{name[len(str(source)) :]}"] = self.names.pop(name)
        self.directories.discard(str(source))
        self.directories.add(str(target))

    def remove(self, path: Any) -> None:
        """See Disk.remove."""
        self.names.pop(str(path), None)

    def remove_tree(self, path: Any) -> None:
        """See Disk.remove_tree."""
        for name in [name for name in self.names if name.startswith(f"{path}/")]:
            del self.names[name]
        self.directories = {name for name in self.directories if name != str(path) and not name.startswith(f"{path}/")}

    def sync_directory(self, path: Any) -> None:
        """See Disk.sync_directory."""
        self.need_descriptor(str(path))
        self.make_names_durable(str(path))

    def lock_directory(self, path: Any) -> None:
        """See Disk.lock_directory."""

    def read_file(self, path: Any) -> bytes:
        """See Disk.read_file."""
        self.need_descriptor(str(path))
        if str(path) not in self.names:
            raise FileNotFoundError(path)
        return bytes(self.names[str(path)].content)

    def write_file_atomically(self, path: Any, data: bytes) -> None:
        """See Disk.write_file_atomically."""
        self.need_descriptor(str(path))
        self.may_fail("write", str(path))
        if str(path).rpartition("/")[0] not in self.directories:
            raise FileNotFoundError(path)
        inode = Inode()
        inode.content += data
        inode.durable = data
        self.names[str(path)] = self.durable_names[str(path)] = inode

    def flush(self, files: Sequence[File]) -> Awaitable[None]:
        """See Disk.flush."""
        for file in files:
            file.acquire()
        self.flushes.append([file.path for file in files])
        return self._answer(files)

    def begin_flush(self, files: Sequence[File], on_done: Callable[[OSError | None], None]) -> None:
        """See Disk.begin_flush."""

        async def tell_later(flushing: Awaitable[None]) -> None:
            error = None
            try:
                await flushing
            except OSError as raised:
                error = raised
            on_done(error)

        task = asyncio.get_running_loop().create_task(tell_later(self.flush(files)))
        self.telling.add(task)
        task.add_done_callback(self.telling.discard)

    async def _answer(self, files: Sequence[File]) -> None:
        await asyncio.sleep(0)
        await self.gate.wait()
        try:
            for file in files:
                file.sync()
        finally:
            for file in files:
                file.release()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """See Disk.run."""
        await asyncio.sleep(0)
        return function(*args)

    def free_bytes(self, path: Any) -> int:
        """See Disk.free_bytes."""
        return 1 << 40

    def ensure_descriptors(self, count: int, path: Any) -> None:
        """See Disk.ensure_descriptors."""
        self.need_descriptor(str(path))

    def total_bytes(self, path: Any) -> int:
        """See Disk.total_bytes."""
        return 1 << 41

    def close(self) -> None:
        """See Disk.close."""

    def hold_flushes(self) -> None:
        """No flush is answered until `let_go`."""
        self.gate.clear()

    def let_go(self) -> None:
        """Answer the flushes that are held up, and all that come."""
        self.gate.set()

    def crash(self, random: Random) -> MemoryDisk:
        """What a power cut leaves: each name old or new; of each file the durable bytes and any part of the rest."""
        after = MemoryDisk()
        after.directories = set(self.directories)
        for path in sorted({*self.names, *self.durable_names}):
            current, durable = self.names.get(path), self.durable_names.get(path)
            survivor = durable if current is durable else random.choice([current, durable])
            if survivor is None:
                continue
            inode = after.names[path] = Inode()
            inode.content += _survive(bytes(survivor.content), survivor.durable, random)
            inode.durable = bytes(inode.content)
            inode.rot = {place: bits for place, bits in survivor.rot.items() if place < len(inode.content)}
            after.make_directory(path.rpartition("/")[0])  # which may have been removed, and that not reached the disk
        after.durable_names = dict(after.names)
        return after


def _survive(content: bytes, durable: bytes, random: Random) -> bytes:
    same = _alike(content, durable)
    if same == len(durable):  # only grown since the flush
        cut = random.randint(len(durable), len(content))
        tail = random.choice([b"", bytes(random.randint(0, 80)), random.randbytes(random.randint(0, 80))])
        return content[:cut] + (tail if cut < len(content) else b"")
    # truncated and overwritten since: a prefix of the new, then the old, as blocks reached the disk
    cut = random.randint(same, max(same, len(content)))
    return random.choice([durable, content[:cut], content[:cut] + durable[cut:]])


def _alike(one: bytes, other: bytes) -> int:
    """How many first bytes are the same; by halves: a file may have megabytes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
