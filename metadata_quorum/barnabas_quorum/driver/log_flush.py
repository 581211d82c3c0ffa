"""The metadata log is flushed: one flush at a time, whatever was written meanwhile is covered by the next.

May touch:  asyncio, the RaftLog.     Must not touch: the core, what is in the log.
Invariants: an end counts as flushed only when the flush that began at or after it has ended.
Read next:  node.py, which asks for flushes and has the core count their ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas_quorum.driver.quorum_events import Flushed
from barnabas_quorum.driver.quorum_stats import Stats
from barnabas_quorum.raft.journal import RaftLog

SETTLE_S = 1.0
"""After so long without a write the end of the last flush is noted, so that damage to it is not taken for an unfinished write.
Longer than the interval of the no-op records, each of whose flushes notes the one before: a quiet cluster flushes no more."""


class LogFlush:
    """Flushes one replica's log."""

    def __init__(self, *, log: RaftLog, stats: Stats, post: Callable[[Flushed], None]) -> None:
        """post: gets the end of each flush."""
        self.is_under_way = False
        self._log = log
        self._stats = stats
        self._post = post
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """Something was written."""
        self._wanted.set()

    async def run(self) -> None:
        """Flush whenever something was written, until cancelled. Raises OSError."""
        log = self._log
        loop = asyncio.get_running_loop()
        is_unsettled = False
        while True:
            try:
                async with asyncio.timeout(SETTLE_S if is_unsettled else None):
                    await self._wanted.wait()
            except TimeoutError:
                await log.settle()
                is_unsettled = False
                continue
            is_unsettled = True
            self._wanted.clear()
            self.is_under_way = True
            started_s = loop.time()
            end_offset = await log.flush()
            self._stats.flush_s.observe(loop.time() - started_s)
            self.is_under_way = False
            self._post(Flushed(end_offset))
