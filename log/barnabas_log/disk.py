"""The only way to a file: what the house needs of a disk, and the real one.

May touch:  os, its own threads.      Must not touch: what the bytes mean.
Invariants: append writes at size_bytes and nowhere else, so a failed write is overwritten, never skipped; a name is
            durable only after the flush of its directory; a file is closed when its last holder lets go.
Read next:  flush.py, which says when flush is called; disk_calls.py for what Linux alone has.

Why an interface: the simulator brings a disk that answers a flush *later*, tears the last write and forgets what was not
flushed. So no descriptor and no mmap goes above this file, except `send_descriptor` for sendfile, which a fake refuses.

Not obvious:
  - fdatasync flushes the size of a file that grew, so no fsync is needed for data. A new name needs its directory's flush.
  - A bare descriptor can be reused by another file after close: readers hold the File (acquire/release). A file that no
    reader holds besides its owner may be without a descriptor and opens itself again when it is used (descriptors.py).
  - acquire, release and close are called on the loop that owns the log, never from the disk's threads: no lock.
  - Do not preallocate: measured 0-30 % on fdatasync, and a reader of zeros could not distinguish the end from a torn tail. Blocks
    reserved behind the end (fallocate, FALLOC_FL_KEEP_SIZE, 16 MiB at a time) take a quarter of the kernel's instructions per
    MB away on ext4 and no cycles: the same MB/s in 20 runs of each in turn, RF 3, 1 MiB batches, flushed and not.
  - Nor write past the page cache on followers, whom few read from (O_DIRECT for the whole blocks of what came, by the ring, the
    ends as usual): a seventh fewer instructions, as many cycles, more waiting for the disk, no more MB/s, not even where the
    copy into aligned memory was left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, Protocol

from barnabas_log.descriptors import Descriptors
from barnabas_log.disk_calls import flush_data, forget_pages, give_way, read_if_cached, read_without_ahead
from barnabas_log.errors import DirectoryLocked
from barnabas_log.tail.flush_ring import FlushRing
from barnabas_log.tail.stalled_flushes import OnFlushed
from barnabas_wire.records.batch import Buffer

logger = logging.getLogger(__name__)

FLUSH_THREADS_MAX = 4
"""Measured: four parallel fdatasyncs give 15-18 % more MB/s than one after another; more give nothing."""
_ASIDE_BYTES = 64 * 1024
"""What is given back at once after a read that is to leave no trace: as much of the cache as others may lose by it."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_IOV_MAX = 1024
"""Linux's limit on parts per writev."""

StrPath = str | Path


class File(Protocol):
    """An append-only file, or a directory whose names are to be flushed.

    Used on the loop that owns the log; in a thread only while it is held there (acquire), or while its log has no
    other user.
    """

    path: str
    size_bytes: int
    """Bytes appended so far, as the page cache sees them."""

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write all parts at the end, in one system call where it can be; returns the bytes. Raises OSError."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Bytes at `position`; fewer only at the end of the file. Raises OSError."""
        ...

    def read_aside(self, position: int, size: int) -> bytes:
        """As read, and pages that had to come from the disk for it do not stay in memory."""
        ...

    def overwrite(self, position: int, data: Buffer) -> None:
        """Replace bytes that are there; not durable until the next sync or flush. For repairs alone. Raises OSError."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`; not durable until the next sync or flush."""
        ...

    def sync(self) -> None:
        """Make the content durable, blocking: recovery and checkpoints only."""
        ...

    def send_descriptor(self) -> int:
        """Descriptor for os.sendfile; a fake raises OSError, and the caller then uses read."""
        ...

    def acquire(self) -> None:
        """Take hold: the file stays open until as many releases, even if its owner closes it or its name goes.

        Raises OSError where it had to be opened again and cannot be; then nothing is held."""
        ...

    def rest(self) -> None:
        """Go without a descriptor until the next use, unless somebody holds the file: it is not expected to be used soon."""
        ...

    def release(self) -> None:
        """Let go."""
        ...

    def close(self) -> None:
        """The owner lets go; a second close does nothing."""
        ...


class FileRange(NamedTuple):
    """Bytes of a file to be sent to a peer. Whoever is given one owes `file.release()` once."""

    file: File
    position: int
    size: int


class Disk(Protocol):
    """Every durable file goes through this. All but flush and run block."""

    def open(self, path: StrPath, *, create: bool = False) -> File:
        """Open for reading and appending; `create` makes the file if it is not there. Raises FileNotFoundError."""
        ...

    def directory(self, path: StrPath) -> File:
        """A handle whose sync or flush makes the names in the directory durable; it can be neither read nor written."""
        ...

    def exists(self, path: StrPath) -> bool:
        """Whether a file or directory of that name is there."""
        ...

    def is_directory(self, path: StrPath) -> bool:
        """Whether a directory of that name is there, and no file."""
        ...

    def list_directory(self, path: StrPath) -> list[str]:
        """Names in the directory, sorted."""
        ...

    def make_directory(self, path: StrPath, *, below: StrPath | None = None) -> None:
        """Make the directory and its parents; nothing happens if it is there.

        below: a parent that must be there: it and what lies above are not made. Raises FileNotFoundError where it is gone.
        """
        ...

    def rename(self, source: StrPath, target: StrPath) -> None:
        """Give it another name, in place of what bears that; durable with the next flush of the directory."""
        ...

    def remove(self, path: StrPath) -> None:
        """Remove a file; nothing happens if it is gone."""
        ...

    def remove_tree(self, path: StrPath) -> None:
        """Remove a directory and all below; nothing happens if it is gone."""
        ...

    def sync_directory(self, path: StrPath) -> None:
        """Make the names in the directory durable, blocking."""
        ...

    def lock_directory(self, path: StrPath) -> None:
        """Keep every other process out until this one ends. Raises DirectoryLocked."""
        ...

    def read_file(self, path: StrPath) -> bytes:
        """The whole content; raises FileNotFoundError."""
        ...

    def write_file_atomically(self, path: StrPath, data: bytes) -> None:
        """Replace the content, durably: temporary file, flush, rename, flush of the directory. Old or new, never half."""
        ...

    def flush(self, files: Sequence[File]) -> Awaitable[None]:
        """Make all files durable, side by side. Raises an OSError of theirs after all have been tried.

        It begins with the call, not with the await.
        """
        ...

    def begin_flush(self, files: Sequence[File], on_done: OnFlushed) -> None:
        """The same for at least one file, and `on_done` is called with None or an error: later, on the loop, in whatever
        turn the disk is done. A task that awaits `flush` runs a turn later, and under load a turn is as long as a flush."""
        ...

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a blocking function in the disk's threads: recovery, cold reads, checkpoints, removals."""
        ...

    def free_bytes(self, path: StrPath) -> int:
        """Bytes that an unprivileged process may still write."""
        ...

    def ensure_descriptors(self, count: int, path: StrPath) -> None:
        """Before a step at `path` that must not stop halfway: raise OSError (EMFILE) unless `count` further files can be opened."""
        ...

    def total_bytes(self, path: StrPath) -> int:
        """Size of the file system that the path is on."""
        ...

    def close(self) -> None:
        """End the disk's threads and let go of the directory locks."""
        ...


class RealFile:
    """A file on the operating system's disk."""

    __slots__ = (
        "_close_descriptor",
        "_descriptor",
        "_descriptors",
        "_flags",
        "_holders",
        "_is_closed",
        "_is_used",
        "path",
        "size_bytes",
    )

    def __init__(
        self,
        path: str,
        descriptor: int,
        size_bytes: int,
        *,
        flags: int,
        descriptors: Descriptors,
        close_descriptor: Callable[[int], None] = os.close,
    ) -> None:
        """flags: to open it again with. close_descriptor: gets the descriptor when the last holder lets go."""
        self.path = path
        self.size_bytes = size_bytes
        self._close_descriptor = close_descriptor
        self._descriptor = descriptor
        self._descriptors = descriptors
        self._flags = flags
        self._holders = 1
        self._is_closed = False
        self._is_used = True
        """Since somebody last looked for a file to close."""
        descriptors.note_open(self)

    def append(self, parts: Sequence[Buffer]) -> int:
        """See File.append. Positioned, so bytes that a failed write left behind are overwritten by the next."""
        position = self.size_bytes
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open_again()
        self._is_used = True
        if len(parts) <= _IOV_MAX:
            written = os.pwritev(descriptor, parts, position)
            if written == sum(map(len, parts)):
                self.size_bytes = position + written
                return written
            parts = _rest(parts, written)
            position += written
        while parts:
            written = os.pwritev(descriptor, parts[:_IOV_MAX], position)
            position += written
            parts = _rest(parts, written)
        total = position - self.size_bytes
        self.size_bytes = position
        return total

    def read(self, position: int, size: int) -> bytes:
        """See File.read."""
        descriptor = self.send_descriptor()
        data = os.pread(descriptor, size, position)
        if len(data) == size or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < size:
            data = os.pread(descriptor, size - got, position + got)
            if not data:
                break
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def read_aside(self, position: int, size: int) -> bytes:
        """See File.read_aside. What the page cache holds is asked for first, and stays; on a file system that cannot say
        (tmpfs has nothing but its cache) all of it stays."""
        pieces = []
        descriptor = self.send_descriptor()
        end = min(position + size, os.fstat(descriptor).st_size)
        # without readahead, whose pages would not be given back
        read_without_ahead(descriptor)
        while position < end:
            wanted = min(_ASIDE_BYTES, end - position)
            buffer = bytearray(wanted)
            try:
                cached = read_if_cached(descriptor, buffer, position)
            except BlockingIOError:
                cached = 0
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
                data = self.read(position, wanted)
                if not data:
                    break
                pieces.append(data)
                position += len(data)
                continue
            pieces.append(bytes(buffer[:cached]))
            position += cached
            left = wanted - cached
            if left > 0:
                data = self.read(position, left)
                start = position - position % _PAGE_BYTES
                forget_pages(descriptor, start, -(-(position + left - start) // _PAGE_BYTES) * _PAGE_BYTES)
                pieces.append(data)
                position += len(data)
                if len(data) < left:
                    break
        return b"".join(pieces)

    def overwrite(self, position: int, data: Buffer) -> None:
        """See File.overwrite."""
        parts: Sequence[Buffer] = [data]
        descriptor = self.send_descriptor()
        while parts:
            written = os.pwritev(descriptor, parts, position)
            position += written
            parts = _rest(parts, written)
        self.size_bytes = max(self.size_bytes, position)

    def truncate(self, size_bytes: int) -> None:
        """See File.truncate."""
        os.ftruncate(self.send_descriptor(), size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        """See File.sync."""
        flush_data(self.send_descriptor())

    def send_descriptor(self) -> int:
        """See File.send_descriptor. Raises OSError where it had to be opened again and cannot be."""
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open_again()
        self._is_used = True
        return descriptor

    def acquire(self) -> None:
        """See File.acquire."""
        assert self._holders > 0, f"{self.path} is closed"
        if self._descriptor < 0:  # its name may go while it is held
            self._open_again()
        self._is_used = True
        self._holders += 1

    def release(self) -> None:
        """See File.release."""
        self._holders -= 1
        if self._holders == 0 and self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._descriptors.note_closed(self)
            self._close_descriptor(descriptor)
        assert self._holders >= 0, f"{self.path} was released more often than acquired"

    def close(self) -> None:
        """See File.close."""
        if not self._is_closed:
            self._is_closed = True
            self.release()

    def rest(self) -> None:
        """See File.rest."""
        self._is_used = False
        if self._descriptor >= 0 and self.close_if_idle():
            self._descriptors.note_closed(self)

    def close_if_idle(self) -> bool:
        """See OpenFile."""
        if self._holders != 1 or self._is_closed or self._is_used:  # closed: the one who holds it is a reader
            self._is_used = False
            return False
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
        return True

    def _open_again(self) -> int:
        if self._holders < 1:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        descriptor = self._descriptor = self._descriptors.opening(lambda: os.open(self.path, self._flags))
        self._is_used = True
        self._descriptors.stats.reopened += 1
        self._descriptors.note_open(self)
        return descriptor


class _Flush:
    """Files that become durable together. Made and ended on the loop; its files are held until the last is done."""

    __slots__ = ("_error", "_files", "_left", "_loop", "_on_done")

    def __init__(self, loop: asyncio.AbstractEventLoop, files: Sequence[File], on_done: OnFlushed) -> None:
        self._loop = loop
        self._files = files
        self._on_done = on_done
        self._error: OSError | None = None
        self._left = [True] + [False] * (len(files) - 1)
        """One entry per file, popped from the end, which needs no lock: the one that gets True is the last."""
        held = 0
        try:
            for file in files:
                file.acquire()
                held += 1
        except OSError:
            for file in files[:held]:
                file.release()
            raise

    def sync(self, file: File) -> None:
        """Make one of the files durable, in a thread; the last one wakes the loop."""
        try:
            file.sync()
        except OSError as error:
            self._error = error
        except Exception as error:  # a bug: as untold it would leave the flush in flight for ever
            self._error = OSError(f"the flush of {file.path} broke: {error!r}")
        if self._left.pop():
            with contextlib.suppress(RuntimeError):  # the loop has closed, and with it whoever waited
                self._loop.call_soon_threadsafe(self._end)

    def synced(self, error: OSError | None) -> None:
        """The ring made one of the files durable, or could not; on the loop."""
        if error is not None:
            self._error = error
        if self._left.pop():
            self._end()

    def _end(self) -> None:
        for file in self._files:
            file.release()
        self._on_done(self._error)


def _sync_files(queue: SimpleQueue[tuple[_Flush, File] | None]) -> None:
    """What a flush thread does.

    No executor, whose futures are 110 us of a flush's 280 us of CPU. And SCHED_BATCH, with which being woken does not
    interrupt the loop: the loop would only be run again at once, for it has the GIL that the thread then waits for. At RF 3
    with 16 KiB batches that halves the involuntary switches and saves 0.3 to 0.5 ms/MB of 9 (measured).
    """
    give_way()
    while (task := queue.get()) is not None:
        flush, file = task
        flush.sync(file)


class RealDisk:
    """The operating system's disk, with its own threads for what blocks."""

    def __init__(self, *, threads_max: int = FLUSH_THREADS_MAX, wants_ring: bool = True) -> None:
        """Made by the thread whose loop owns the files. wants_ring: flush by io_uring where the kernel lets us."""
        self.descriptors = Descriptors()
        self._executor = ThreadPoolExecutor(threads_max, thread_name_prefix="disk")
        self._threads_max = threads_max
        self._flushers: list[Thread] = []
        self._to_sync: SimpleQueue[tuple[_Flush, File] | None] = SimpleQueue()
        self._locks: list[int] = []
        self._wants_ring = wants_ring
        self._ring: FlushRing | None = None

    def open(self, path: StrPath, *, create: bool = False) -> File:
        """See Disk.open."""
        flags = os.O_RDWR | os.O_CLOEXEC
        creating = flags | os.O_CREAT if create else flags
        descriptor = self.descriptors.opening(lambda: os.open(path, creating, 0o644))
        return RealFile(
            str(path),
            descriptor,
            os.fstat(descriptor).st_size,
            flags=flags,
            descriptors=self.descriptors,
            close_descriptor=self._close_descriptor,
        )

    def _close_descriptor(self, descriptor: int) -> None:
        """Close it here, or in a thread when the file has no name any more: then its blocks are freed, which takes 40 ms for
        a large segment (measured), and whoever held a removed file last is on the loop."""
        if os.fstat(descriptor).st_nlink == 0:
            with contextlib.suppress(RuntimeError):  # the threads have ended, and nothing waits any more
                self._executor.submit(os.close, descriptor)
                return
        os.close(descriptor)

    def directory(self, path: StrPath) -> File:
        """See Disk.directory."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = self.descriptors.opening(lambda: os.open(path, flags))
        return RealFile(str(path), descriptor, 0, flags=flags, descriptors=self.descriptors)

    def exists(self, path: StrPath) -> bool:
        """See Disk.exists."""
        return os.path.exists(path)

    def is_directory(self, path: StrPath) -> bool:
        """See Disk.is_directory."""
        return os.path.isdir(path)

    def list_directory(self, path: StrPath) -> list[str]:
        """See Disk.list_directory."""
        return self.descriptors.opening(lambda: sorted(os.listdir(path)))

    def make_directory(self, path: StrPath, *, below: StrPath | None = None) -> None:
        """See Disk.make_directory."""
        if below is None:
            os.makedirs(path, exist_ok=True)
            return
        made = os.fspath(below)
        for name in os.path.relpath(path, below).split(
            os.sep
        ):  # one by one: what is renamed meanwhile is not made again
            made = os.path.join(made, name)
            with contextlib.suppress(FileExistsError):
                os.mkdir(made)

    def rename(self, source: StrPath, target: StrPath) -> None:
        """See Disk.rename."""
        os.replace(source, target)

    def remove(self, path: StrPath) -> None:
        """See Disk.remove."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: StrPath) -> None:
        """See Disk.remove_tree."""
        with contextlib.suppress(FileNotFoundError):
            self.descriptors.opening(lambda: shutil.rmtree(path))

    def sync_directory(self, path: StrPath) -> None:
        """See Disk.sync_directory."""
        descriptor = self.descriptors.opening(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            flush_data(descriptor)
        finally:
            os.close(descriptor)

    def lock_directory(self, path: StrPath) -> None:
        """See Disk.lock_directory. Kafka's own file name, so that a Kafka on the same directory is kept out too."""
        lock = os.path.join(path, ".lock")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = self.descriptors.opening(lambda: os.open(lock, flags, 0o644))
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise DirectoryLocked(f"{path} is in use by another process; stop it or use another log.dirs") from None
        self._locks.append(descriptor)

    def read_file(self, path: StrPath) -> bytes:
        """See Disk.read_file."""
        with self.descriptors.opening(lambda: open(path, "rb")) as stream:
            return stream.read()

    def write_file_atomically(self, path: StrPath, data: bytes) -> None:
        """See Disk.write_file_atomically."""
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)  # a crash may have left one
            file.append([data])
            file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(temporary)  # on a full disk it would only take room away
            raise
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path) or ".")

    def flush(self, files: Sequence[File]) -> Awaitable[None]:
        """See Disk.flush."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done(error: OSError | None) -> None:
            if future.done():  # cancelled
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)

        if files:
            self.begin_flush(files, on_done)
        else:
            future.set_result(None)
        return future

    def begin_flush(self, files: Sequence[File], on_done: OnFlushed) -> None:
        """See Disk.begin_flush. By the kernel's ring, else by threads."""
        loop = asyncio.get_running_loop()
        flush = _Flush(loop, files, on_done)
        if self._wants_ring:
            self._wants_ring = False
            try:
                self._ring = FlushRing(loop)
            except (OSError, AttributeError) as error:
                logger.info("io_uring is not to be had (%s): threads flush, which costs some throughput", error)
        ring = self._ring
        if ring is not None and ring.loop is loop:
            begun = 0
            while begun < len(files) and ring.fdatasync(files[begun].send_descriptor(), flush.synced):
                begun += 1
            files = files[begun:]
        while len(self._flushers) < min(len(files), self._threads_max):
            thread = Thread(target=_sync_files, args=(self._to_sync,), name="flush", daemon=True)
            self._flushers.append(thread)
            thread.start()
        for file in files:
            self._to_sync.put((flush, file))

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """See Disk.run."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def free_bytes(self, path: StrPath) -> int:
        """See Disk.free_bytes."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def ensure_descriptors(self, count: int, path: StrPath) -> None:
        """See Disk.ensure_descriptors."""
        self.descriptors.ensure(count, str(path))

    def total_bytes(self, path: StrPath) -> int:
        """See Disk.total_bytes."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def close(self) -> None:
        """See Disk.close."""
        self._executor.shutdown(wait=True)
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        for _ in self._flushers:
            self._to_sync.put(None)
        for thread in self._flushers:
            thread.join()
        self._flushers.clear()
        for descriptor in self._locks:
            os.close(descriptor)
        self._locks.clear()
        self.descriptors.close()


def _rest(parts: Sequence[Buffer], written: int) -> Sequence[Buffer]:
    """What a short write left over."""
    for index, part in enumerate(parts):
        if written < len(part):
            return [memoryview(part)[written:], *parts[index + 1 :]]
        written -= len(part)
    return []
