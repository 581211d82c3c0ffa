"""What a log reports while it works, and asks before it writes: the manager answers, or the default does nothing.

May touch:  its arguments.            Must not touch: files, asyncio.
Invariants: a log calls these on the loop that owns it, and continues by what they return or raise.
Read next:  log_tail.py and unified_log.py, which call; manager.py, which answers for all logs of a broker.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

LogT = TypeVar("LogT", contravariant=True)
"""The log that reports: a parameter, since unified_log.py imports this file."""


class LogListener(Protocol[LogT]):
    """What a log reports to: its manager. Calls come on the loop that owns the log."""

    def on_log_start_moved(self, log: LogT) -> None:
        """The log begins later: by retention, or because records were deleted."""
        ...

    def on_segment_rolled(self, log: LogT) -> None:
        """A full segment waits to be flushed, whatever the flush mode."""
        ...

    def begin_flush(self, log: LogT) -> bool:
        """Have the log flushed while its loop runs on; False where there is no manager to do that."""
        ...

    def on_recovery_point_lowered(self, log: LogT) -> None:
        """The log was truncated below what was flushed: a recovery point on disk that is higher would be wrong."""
        ...

    def on_gap(self, log: LogT) -> None:
        """The log is about to get its first batch that does not continue the offsets: that must be on disk before, or recovery
        may take the gap for rot. Raises StorageFailed, DiskFull or OutOfDescriptors: then nothing is appended."""
        ...

    def on_index_doubted(self, log: LogT, base_offset: int) -> None:
        """An index of that segment does not fit it, and look-ups go without: it is to be checked, and made again."""
        ...

    def on_storage_failed(self, log: LogT, error: OSError) -> None:
        """A write failed; the log takes nothing more."""
        ...

    def on_disk_full(self, log: LogT, error: OSError) -> bool:
        """A write found no room. Returns whether the log may wait for room with what is queued; else it has failed."""
        ...


class NoListener:
    """The listener of a log without a manager."""

    def on_log_start_moved(self, log: object) -> None:
        """The log start is not saved."""

    def on_segment_rolled(self, log: object) -> None:
        """The sealed segment is not flushed."""

    def begin_flush(self, log: object) -> bool:
        """No flush is begun."""
        return False

    def on_index_doubted(self, log: object, base_offset: int) -> None:
        """The index is not made again."""

    def on_recovery_point_lowered(self, log: object) -> None:
        """No recovery point is saved."""

    def on_gap(self, log: object) -> None:
        """The gap is not saved."""

    def on_storage_failed(self, log: object, error: OSError) -> None:
        """The log remembers it by itself."""

    def on_disk_full(self, log: object, error: OSError) -> bool:
        """The log may wait."""
        return True
