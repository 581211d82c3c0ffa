"""One file of the audit log and its former one: whole lines, appended.

May touch:  the two files.            Must not touch: what is in a line, threads.
Invariants: a file has whole lines only, but for the last one after a crash; bytes_max bounds each of the two; a write that fails leaves
            the file as it was, and the next one tries again.
Read next:  audit.py, whose thread writes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final

FORMER: Final = ".1"


class AuditFile:
    """Open from the start, its owner's alone."""

    def __init__(self, path: str, bytes_max: int) -> None:
        """Raises OSError when it can be neither opened nor made."""
        self._path = path
        self._bytes_max = bytes_max
        self._descriptor = self._open()
        self._size = os.fstat(self._descriptor).st_size

    def write(self, line: bytes) -> None:
        """Append a line. Raises OSError; then nothing of it is in the file."""
        if self._size and self._size + len(line) > self._bytes_max:
            self._begin_anew()
        written = os.write(self._descriptor, line)
        if written != len(line):
            os.ftruncate(self._descriptor, self._size)
            raise OSError(errno.ENOSPC, "the line did not fit the disk", self._path)
        self._size += written

    def close(self) -> None:
        """Write no more."""
        os.close(self._descriptor)

    def _begin_anew(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # renamed the last time, when no new one could be made
            os.replace(self._path, self._path + FORMER)
        former, self._descriptor = self._descriptor, self._open()
        os.close(former)
        self._size = 0

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
