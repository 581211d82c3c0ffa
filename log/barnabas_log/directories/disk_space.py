"""Space on a disk: what a full one is, when a directory takes records again, and a reserve for what must still be written.

May touch:  the Disk it is given.     Must not touch: logs, clocks, asyncio.
Invariants: a directory that ran full takes records again only above a second, higher mark, and once the reserve is there again;
            the reserve is a file of real blocks, so that removing it frees space.
Read next:  manager.py, which watches each log directory; barnabas_broker/metadata/metadata_log.py, which has its own
            reserve.

Differs from Kafka, which takes a full disk for a broken one and stops: nothing is lost by a write that found no space, and reads
need none. A flush that finds none is another matter (manager.py fails the directory): the pages may be gone from memory.
"""

from __future__ import annotations

import contextlib
import errno
from typing import NamedTuple

from barnabas_log.disk import Disk

STOP_SHARE, RESUME_SHARE = 16, 8
"""On a small file system the marks are at most this part of it, or a small disk would never take anything."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_BLOCK = bytes(64 * 1024)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that the disk or a quota is full, and nothing worse."""
    return isinstance(error, OSError) and error.errno in _FULL


class FreeSpaceMarks(NamedTuple):
    """Free bytes of a directory's file system."""

    stop: int
    """The free bytes below which nothing more is appended."""
    resume: int
    """The free bytes from which on it is again."""

    @classmethod
    def of(cls, *, stop: int, resume: int, total_bytes: int) -> FreeSpaceMarks:
        """The wanted marks, on a file system of that size."""
        low = min(stop, total_bytes // STOP_SHARE)
        return cls(low, max(low, min(resume, total_bytes // RESUME_SHARE)))

    def has_space(self, free_bytes: int, *, had_space: bool) -> bool:
        """Whether records may be appended; between the marks it stays as it was, so that leadership does not flap."""
        return free_bytes >= (self.stop if had_space else self.resume)


class Reserve:
    """A file that holds space for what must be written when the disk is full. Its methods block."""

    def __init__(self, disk: Disk, path: str, size_bytes: int) -> None:
        self.is_held = False
        self._disk = disk
        self._path = path
        self._size_bytes = size_bytes

    def take(self) -> bool:
        """Have the file there, whole; returns whether it is. Raises OSError for anything but want of space."""
        if not self.is_held and self._size_bytes:
            self.is_held = self._fill(self._path)
        return self.is_held or not self._size_bytes

    def fits_twice(self) -> bool:
        """Have it, and see whether as much could be written beside it: a quota, or blocks kept for root, do not show in free
        bytes. Raises as `take`."""
        if not self.take():
            return False
        probe = f"{self._path}.probe"
        fits = self._fill(probe)
        self._disk.remove(probe)
        return fits

    def _fill(self, path: str) -> bool:
        file = self._disk.open(path, create=True)
        try:
            if file.size_bytes > self._size_bytes:
                file.truncate(self._size_bytes)
            while (missing := self._size_bytes - file.size_bytes) > 0:
                file.append([_BLOCK[:missing]])
        except OSError as error:
            if not is_disk_full(error):
                raise
            with contextlib.suppress(OSError):
                self._disk.remove(path)
            return False
        finally:
            file.close()
        return True

    def spend(self) -> bool:
        """Remove the file; returns whether that freed space. A file of an earlier process counts too."""
        was_there = self.is_held or self._disk.exists(self._path)
        self.is_held = False
        self._disk.remove(self._path)
        return was_there
