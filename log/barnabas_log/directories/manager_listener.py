"""The user of a broker's logs, as its log manager sees it.

May touch:  its arguments.            Must not touch: files, asyncio.
Invariants: a broker's logs have one user; calls come on the loop, and return at once.
Read next:  manager.py, which reports; replication's manager, the one real user.
"""

from __future__ import annotations

from barnabas_log.unified_log import UnifiedLog


class LogManagerListener:
    """Ignores every event, unless a subclass is given to `serve`. Calls come on the loop and return at once."""

    def on_flushed(self, log: UnifiedLog) -> None:
        """A flush of the log is done: its flushed_end_offset may have moved."""

    def on_log_start_moved(self, log: UnifiedLog) -> None:
        """The log begins later than before."""

    def on_damage(self, log: UnifiedLog) -> None:
        """What is known of the log's damage has changed."""

    def on_directory_failed(self, directory: str, error: OSError) -> None:
        """The directory went offline, once for all; its logs take nothing more."""

    def on_space_changed(self, directory: str, has_space: bool) -> None:
        """Whether the directory's logs may grow has changed. Comes in a separate turn of the loop, not during a
        write."""

    def may_compact(self) -> bool:
        """Whether every broker that may follow one of the logs takes batches with offsets missing between them."""
        return True

    def stays_when_full(self) -> bool:
        """Whether somebody leads others past a full directory; else it fails as a whole, as before there were faulty replicas."""
        return False
