"""Log starts that are to rise, with another replica's or by retention: saved first, a file at a time, then moved.

May touch:  asyncio, what saves and moves them.   Must not touch: files, peers.
Invariants: what a broker reports as the start of a log is in a checkpoint file, so that it never falls again.
Read next:  checkpointing.py, `raise_log_starts`; barnabas_replication/leader/deletion.py, which counts on it; start_witness.py there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset


class RisingLogStarts:
    """`run` is the owner task; `note` is called on the same loop."""

    def __init__(self, raise_all: Callable[[Mapping[UnifiedLog, Offset]], Awaitable[None]]) -> None:
        """raise_all: saves the starts of these logs, moves them, and retires what lies before them."""
        self._raise_all = raise_all
        self._due: dict[UnifiedLog, Offset] = {}
        self._is_due = asyncio.Event()

    def note(self, log: UnifiedLog, offset: Offset) -> None:
        """The log shall begin at `offset`."""
        self._due[log] = max(offset, self._due.get(log, offset))
        self._is_due.set()

    async def run(self) -> None:
        """Until cancelled. What comes while a file is written goes together into the next."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            due, self._due = self._due, {}
            await self._raise_all(due)
