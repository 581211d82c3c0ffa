"""What a disk asks of the operating system that Linux alone has, each with what stands for it elsewhere.

May touch:  descriptors that it is given, the priority of the calling thread.   Must not touch: names of files.
Invariants: the twin of a call keeps its promise about durability; of speed and memory it may promise less.
Read next:  disk.py, the caller; barnabas_wire/host_system.py, which says who is asked.

| Linux | elsewhere |
|---|---|
| fdatasync | F_FULLFSYNC on macOS, whose fsync leaves the drive's cache alone; else fsync |
| preadv with RWF_NOWAIT | what is in memory is unknown: as on a file system that cannot say |
| posix_fadvise | nothing: pages stay until the kernel wants them |
| SCHED_BATCH for a flush thread | nothing |
| io_uring (flush_ring.py) | threads |
| PR_SET_PDEATHSIG (worker_process.py) | a worker ends with its standard input |
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

from barnabas_wire.host_system import has_linux

_probe = [bytearray(1)]

if has_linux():

    def flush_data(descriptor: int, /) -> None:
        """Make a file durable, or the names in a directory."""
        os.fdatasync(descriptor)

    def read_if_cached(descriptor: int, buffer: bytearray, position: int) -> int:
        """Fill the buffer with what is in memory; returns the bytes. Raises BlockingIOError where the first is not, another OSError
        where it cannot be known."""
        return os.preadv(descriptor, (buffer,), position, os.RWF_NOWAIT)

    def is_cached(descriptor: int, position: int) -> bool:
        """Whether a byte can be had without the disk, as far as anybody can say."""
        try:
            os.preadv(descriptor, _probe, position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:  # a file system that does not know
            return True
        return True

    def read_without_ahead(descriptor: int) -> None:
        """Reads bring no more than was asked for, from now on."""
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def forget_pages(descriptor: int, position: int, size: int) -> None:
        """These need not stay in memory."""
        os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_DONTNEED)

    def give_way() -> None:
        """Being woken does not interrupt another thread, for the thread that calls."""
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

else:
    _FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)

    def flush_data(descriptor: int, /) -> None:
        """See above."""
        if _FULL_SYNC is not None:
            try:
                fcntl.fcntl(descriptor, _FULL_SYNC)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                    raise  # a file system that knows it, and failed
        os.fsync(descriptor)

    def read_if_cached(descriptor: int, buffer: bytearray, position: int) -> int:
        """See above."""
        raise OSError(errno.EOPNOTSUPP, "this system does not say what is in memory")

    def is_cached(descriptor: int, position: int) -> bool:
        """See above."""
        return True

    def read_without_ahead(descriptor: int) -> None:
        """See above."""

    def forget_pages(descriptor: int, position: int, size: int) -> None:
        """See above."""

    def give_way() -> None:
        """See above."""
