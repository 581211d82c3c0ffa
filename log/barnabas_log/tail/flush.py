"""Flush rounds: how appended bytes of one directory become durable together.

May touch:  asyncio, the Disk and logs it is given.   Must not touch: files by any other way, peers.
Invariants: a log is in one round at a time; its flushed end is its written end taken before the round began; after a failed
            flush nothing of the directory counts as durable ever again (a second fsync that succeeds may lie: the failed
            pages are gone from memory).
Read next:  manager.py, which owns one of these per directory; unified_log.py dirty_files, mark_flushed.

Whatever asks for a log that is in a round shares that log's next: group commit. Logs do not wait for each other: one round of
all dirty logs at a time held a follower's flush up behind that of a partition it has nothing to do with, and where each log
has its own round the file system still commits them together (measured, RF 3, durable: 10 to 15 % more MB/s). With more
dirty logs than rounds each round takes its share, so that hundreds of them do not become hundreds of wake-ups.

Rounds are begun and ended by calls, not by a task: each wake-up of a task is a turn of the loop, and under load a turn takes
as long as a flush. The next round begins before the end of the last is reported: the disk never waits for callbacks. Nor does a round
wait to become larger: 1 to 8 MiB more per log gave no more MB/s, with 16 KiB or 1 MiB batches, and rounds of a log 4, 8 or 15 ms
apart gave 5, 11 and 25 % fewer with 16 KiB (measured, RF 3): what is in flight is bounded, so time is throughput.

Where the cost lies (RF 3 on two cores and one disk, 1 MiB batches, saturated; fdatasync replaced within one cluster, eleven
runs each): with a no-op in its place the MB/s of page cache mode, so rounds cost nothing that can be seen; with the disk's own
flush command alone 5 % fewer; with the pages written out and waited for 10 %; with fdatasync 22 %.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import partial

from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.disk import Disk, File
from barnabas_log.errors import OutOfDescriptors, StorageFailed
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.histogram import Histogram
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.lazy_dataclass import dataclass

ROUNDS_MAX = 4
"""Rounds in flight per directory."""
ROUND_FILES_MAX = 64
"""A round takes no further log when it has so many files: while they are flushed they keep their descriptors."""
RETRY_S = 0.05
"""The pause before logs that could not be flushed for want of a descriptor are tried again."""
SLOW_FLUSH_S = 0.020
"""A round older than this holds back writes to its files: they might wait for it (seen: 59 ms), and nothing that is
written now could be acknowledged sooner."""
STUCK_FLUSH_S = 5.0
"""A round older than this is reported: acknowledgements wait for it, and nothing else says that a disk does not answer."""


@dataclass(slots=True)
class FlushStats:
    """Counters of one directory since the start."""

    files: int = 0
    round_s: Histogram = field(default_factory=Histogram)


class _Round:
    """Logs whose files are being flushed, with their written ends as they were when it began."""

    __slots__ = ("_loop", "began_at_s", "ends", "file_count")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.began_at_s = loop.time()
        self.ends: dict[UnifiedLog, Offset] = {}
        self.file_count = 0

    def is_slow(self) -> bool:
        """See FlushRound."""
        return self._loop.time() - self.began_at_s > SLOW_FLUSH_S


class FlushRounds:
    """The rounds of one directory. While `run` runs, requests are taken up; those made before wait for it."""

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
        self._rounds: dict[_Round, None] = {}
        """The rounds in flight."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """While it runs."""
        self._is_beginning = False
        self._retry: asyncio.TimerHandle | None = None
        """While logs wait for descriptors."""
        self._is_failed = False

    def request(self, log: UnifiedLog) -> None:
        """Have the log flushed: now, or once more after the round it is in. The listener hears when that is over. After a
        failure nothing happens."""
        if self._is_failed:
            return
        self._requested[log] = None
        if self._is_beginning or len(self._rounds) == ROUNDS_MAX or log.durability.flush_round is not None:
            return  # what is on its way begins it
        if self._loop is not None:
            # Not within this call, which a log makes during its own changes.
            self._is_beginning = True
            self._loop.call_soon(self._begin_requested)

    def forget(self, log: UnifiedLog) -> None:
        """The log is being deleted: no round to come needs it."""
        self._requested.pop(log, None)

    def oldest_s(self) -> float:
        """How long the oldest round has been in flight, in s; 0 where none is."""
        if self._loop is None or not self._rounds:
            return 0.0
        return self._loop.time() - min(flying.began_at_s for flying in self._rounds)

    async def run(self) -> None:
        """Flush what is asked for until cancelled; what is then in flight does not count, unless it fails."""
        loop = self._loop = asyncio.get_running_loop()
        self._begin_rounds(loop)
        try:
            await loop.create_future()
        finally:
            self._loop = None
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None

    def _begin_requested(self) -> None:
        self._is_beginning = False
        if self._loop is not None:
            self._begin_rounds(self._loop)

    def _begin_rounds(self, loop: asyncio.AbstractEventLoop) -> None:
        while len(self._rounds) < ROUNDS_MAX and not self._is_failed:
            ready = [log for log in self._requested if log.durability.flush_round is None]
            if not ready:
                return
            share = -(-len(ready) // (ROUNDS_MAX - len(self._rounds)))
            beginning = _Round(loop)
            files: list[File] = []
            for log in ready[:share]:
                if len(files) >= ROUND_FILES_MAX:
                    break
                self._requested.pop(log, None)
                if log.is_failed:
                    continue
                try:
                    files += log.dirty_files()
                except StorageFailed:
                    continue  # the log has informed its listener, which fails the directory
                except OutOfDescriptors:
                    self._put_off([log], loop)
                    continue
                beginning.ends[log] = log.durability.written_end_offset
                log.durability.flush_round = beginning
            if not beginning.ends:
                if self._retry is not None:
                    return
                continue
            beginning.file_count = len(files)
            self._rounds[beginning] = None
            if not files:
                loop.call_soon(self._end, beginning, None)
                continue
            try:
                self._disk.begin_flush(files, partial(self._end, beginning))
            except OSError as error:
                self._forget(beginning)
                if not is_out_of_descriptors(error):
                    self.fail(error)
                    return
                self._put_off(beginning.ends, loop)
                return

    def _put_off(self, logs: Iterable[UnifiedLog], loop: asyncio.AbstractEventLoop) -> None:
        """Flush them a little later: nothing of the disk has failed."""
        for log in logs:
            self._requested[log] = None
        if self._retry is None:
            self._retry = loop.call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._begin_requested()

    def _end(self, ending: _Round, error: OSError | None) -> None:
        self._forget(ending)
        if error is not None:
            self.fail(error)
        loop = self._loop
        if self._is_failed or loop is None:
            return
        self.stats.round_s.observe(loop.time() - ending.began_at_s)
        self.stats.files += ending.file_count
        for log, offset in ending.ends.items():
            if not log.is_failed:
                log.mark_flushed(offset)
        if self._requested:
            self._begin_rounds(loop)
        for log in ending.ends:
            if log.is_failed:
                continue
            try:
                self._on_flushed(log)
            except Exception as bug:  # a bug of the listener must not end the flushes of all logs
                context = {"message": f"in the callback of the flush of {log.topic_partition}", "exception": bug}
                loop.call_exception_handler(context)

    def _forget(self, ended: _Round) -> None:
        del self._rounds[ended]
        for log in ended.ends:
            log.durability.flush_round = None

    def fail(self, error: OSError) -> None:
        """Poison the directory: no round is begun any more, and what those in flight flush does not count."""
        if not self._is_failed:
            self._is_failed = True
            self._requested.clear()
            self._on_failed(error)

    @property
    def is_running(self) -> bool:
        """Whether what is requested is begun."""
        return self._loop is not None and not self._is_failed

    @property
    def is_failed(self) -> bool:
        """Whether the directory is poisoned."""
        return self._is_failed
