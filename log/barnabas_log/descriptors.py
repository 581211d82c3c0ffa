"""The descriptors of one disk's files: how many stay open, which is closed first, and what happens when the process has none.

May touch:  the set of open files, spare descriptors.     Must not touch: what the files hold; disk.py opens and closes them.
Invariants: a file that anybody beside its owner holds, or that a thread of the disk may be using, keeps its descriptor;
            EMFILE and ENFILE never count as a broken disk.
Read next:  disk.py RealFile, which opens itself again when it is used.

Kafka keeps the .log, .index and .timeindex of every segment open (.index and .timeindex mapped), so its partitions are bounded by
RLIMIT_NOFILE, and EMFILE takes a log directory offline. Here a partition that is not used has no open file, and one
more file than the bound closes the one that was not used for longest.

Not obvious:
  - Which file was used last is not written down at each use, which would cost the hot path a call. A use sets a flag; the search
    for a file to close passes over flagged files once and takes the flag away (CLOCK).
  - Only the thread that made the disk closes files of others, because only there no file can be in use meanwhile. And
    only of a disk with a bound: the metadata log has few files and reads some in threads.
  - Spares are what a step that opens several files begins with (`ensure`), so that it does not stop halfway, and what the
    metadata log works with when an unbounded part of the process (gRPC) has taken the rest.
  - fdatasync reports an earlier write-back error to a descriptor that was opened after it, as long as it was not
    reported yet and the kernel still has the inode: so a file that is closed between write and flush does not hide one
    in durable mode, where the flush follows at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from barnabas_wire.lazy_dataclass import dataclass

SPARE_DESCRIPTORS = 16
"""Kept back for steps that must not stop halfway."""
_FREED_AT_ONCE = 8
"""Files closed when the process has no descriptor left: others than we will want some, too."""
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

T = TypeVar("T")


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether an error says that the process (EMFILE) or the machine (ENFILE) has no descriptor left, and nothing of the disk."""
    return isinstance(error, OSError) and error.errno in _NO_DESCRIPTORS


class OpenFile(Protocol):
    """A file that can go without its descriptor."""

    def close_if_idle(self) -> bool:
        """Close the descriptor unless somebody holds the file or has used it since the last call; whether it is closed now."""
        ...


@dataclass(slots=True)
class DescriptorStats:
    """Counters of one disk since the start."""

    closed: int = 0
    """Files that were closed to make room."""
    reopened: int = 0
    """Uses of a file that had to open it again."""
    refused: int = 0
    """Files that could not be opened for want of a descriptor."""


class Descriptors:
    """What a disk has open."""

    def __init__(self) -> None:
        self.files_max: int | None = None
        """Files that stay open without being held; None: as many as there are, and none is closed for others."""
        self.stats = DescriptorStats()
        self._open: OrderedDict[OpenFile, None] = OrderedDict()
        self._thread = threading.get_ident()
        self._spares: list[int] = []
        self._is_ended = False
        self._fill_spares()

    def __len__(self) -> int:
        """Files that are open now."""
        return len(self._open)

    def note_open(self, file: OpenFile) -> None:
        """A file has a descriptor now; one too many closes another. In a thread of the disk it does not count: it is closed there
        soon, and no other thread may close it meanwhile."""
        if threading.get_ident() != self._thread:
            return
        if self.files_max is not None and len(self._open) >= self.files_max:
            self._close_idle(1 + len(self._open) - self.files_max)
        self._open[file] = None

    def note_closed(self, file: OpenFile) -> None:
        """A file has none any more. Any thread."""
        self._open.pop(file, None)
        if len(self._spares) < SPARE_DESCRIPTORS and not self._is_ended:
            self._fill_spares()

    def opening(self, operation: Callable[[], T]) -> T:
        """Do what opens files; where there is no descriptor, once more with some that were freed. Raises its OSError.

        It must be one that can be done again.
        """
        try:
            return operation()
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
        if not self._close_idle(_FREED_AT_ONCE):
            self._use_spares()
        try:
            return operation()
        except OSError as error:
            self.stats.refused += is_out_of_descriptors(error)
            raise

    def ensure(self, count: int, path: str) -> None:
        """Raise OSError (EMFILE) unless `count` further files can be opened, at most SPARE_DESCRIPTORS."""
        assert count <= SPARE_DESCRIPTORS, f"{count} descriptors are not kept back"
        if len(self._spares) >= count:
            return
        self._fill_spares()
        if len(self._spares) < count:
            self._close_idle(SPARE_DESCRIPTORS)
            self._fill_spares()
        if len(self._spares) < count:
            self.stats.refused += 1
            raise OSError(errno.EMFILE, f"{os.strerror(errno.EMFILE)}: raise the limit (ulimit -n)", path)

    def close(self) -> None:
        """Let go of the spares."""
        self._is_ended = True
        self._use_spares()

    def _fill_spares(self) -> None:
        with contextlib.suppress(OSError):  # then there are fewer; ensure counts them
            while len(self._spares) < SPARE_DESCRIPTORS:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _use_spares(self) -> None:
        with contextlib.suppress(IndexError):  # any thread: each takes one at a time
            while True:
                os.close(self._spares.pop())

    def _close_idle(self, count: int) -> int:
        """Close the files that were not used for longest; returns how many could be closed."""
        if self.files_max is None or threading.get_ident() != self._thread:
            return 0
        closed = 0
        looks = 2 * len(self._open)  # at the second look the flag of the first is gone
        while closed < count and looks and self._open:
            looks -= 1
            file, _ = self._open.popitem(last=False)
            if file.close_if_idle():
                closed += 1
            else:
                self._open[file] = None
        self.stats.closed += closed
        return closed
