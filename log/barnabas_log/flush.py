"""Flush rounds: how appended bytes of one directory become durable together.

May touch:  asyncio, the Disk and logs it is given.   Must not touch: files by any other way, peers.
Invariants: one round in flight per directory; a log's flushed end is its written end taken before the round began; after
            a failed flush nothing of the directory counts as durable ever again (a second fsync that succeeds may lie:
            the failed pages are gone from memory).
Read next:  manager.py, which owns one of these per directory; unified_log.py dirty_files, mark_flushed.

Everything that asks while a round is in flight shares the next: group commit. Its files are flushed side by side, and the
next round starts before the news of the last is told, so that the disk never waits for callbacks (both measured: one file
after another costs 15 % of throughput).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from barnabas_log.disk import Disk, File
from barnabas_log.errors import StorageFailed
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset

SLOW_FLUSH_S = 0.020
"""A round older than this holds back writes to its files: they might wait for it (seen: 59 ms), and nothing that is
written now could be acknowledged sooner."""


@dataclass(slots=True)
class FlushStats:
    """Counters of one directory since the start."""

    rounds: int = 0
    files: int = 0
    seconds_total: float = 0.0
    seconds_max: float = 0.0


class FlushRounds:
    """The rounds of one directory. `run` is the one task that flushes; requests made before it runs wait for it."""

    def __init__(
        self,
        *,
        disk: Disk,
        on_flushed: Callable[[UnifiedLog], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self.stats = FlushStats()
        self._disk = disk
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._requested: dict[UnifiedLog, None] = {}
        self._in_flight: dict[UnifiedLog, Offset] = {}
        self._flushed: list[UnifiedLog] = []
        self._began_at_s = 0.0
        self._wake = asyncio.Event()
        self._is_failed = False

    def request(self, log: UnifiedLog) -> None:
        """Take the log into the next round; the listener hears when it is over. After a failure nothing happens."""
        if not self._is_failed:
            self._requested[log] = None
            self._wake.set()

    def forget(self, log: UnifiedLog) -> None:
        """The log is being deleted: no round to come needs it."""
        self._requested.pop(log, None)

    def is_slow(self, log: UnifiedLog) -> bool:
        """Whether the log is in a round that has been in flight for longer than SLOW_FLUSH_S."""
        return log in self._in_flight and asyncio.get_running_loop().time() - self._began_at_s > SLOW_FLUSH_S

    async def run(self) -> None:
        """Flush round after round until cancelled or the disk fails."""
        while not self._is_failed:
            if not self._requested:
                self._tell()
            if not self._requested:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._flush_round()

    async def _flush_round(self) -> None:
        loop = asyncio.get_running_loop()
        requested, self._requested = self._requested, {}
        files: list[File] = []
        for log in requested:
            if log.is_failed:
                continue
            try:
                files += log.dirty_files()
            except StorageFailed:
                continue  # the log has told its listener, which fails the directory
            self._in_flight[log] = log.written_end_offset
        self._began_at_s = loop.time()
        flushing = self._disk.flush(files) if files else None
        self._tell()  # of the last round, now that the disk has work
        try:
            if flushing is not None:
                await flushing
        except OSError as error:
            self.fail(error)
            return
        finally:
            in_flight, self._in_flight = self._in_flight, {}
        seconds = loop.time() - self._began_at_s
        stats = self.stats
        stats.rounds += 1
        stats.files += len(files)
        stats.seconds_total += seconds
        stats.seconds_max = max(stats.seconds_max, seconds)
        if self._is_failed:
            return
        for log, offset in in_flight.items():
            if not log.is_failed:
                log.mark_flushed(offset)
        self._flushed += in_flight

    def _tell(self) -> None:
        flushed, self._flushed = self._flushed, []
        for log in flushed:
            if log.is_failed:
                continue
            try:
                self._on_flushed(log)
            except Exception as error:  # a bug of the listener must not end the flushes of all logs
                context = {"message": f"told of the flush of {log.topic_partition}", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    def fail(self, error: OSError) -> None:
        """Poison the directory: no round is begun any more, and what one in flight flushes does not count."""
        if not self._is_failed:
            self._is_failed = True
            self._requested.clear()
            self._wake.set()
            self._on_failed(error)

    @property
    def is_failed(self) -> bool:
        """Whether the directory is poisoned."""
        return self._is_failed
