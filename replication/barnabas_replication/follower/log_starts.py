"""Log starts that are to rise with another replica's: saved first, a file at a time, then moved.

May touch:  asyncio, the logs' manager.   Must not touch: the network, partitions' state.
Invariants: what a follower reports as its log start is in a checkpoint file, so that it never falls again.
Read next:  barnabas_log/directories/checkpointing.py, `raise_log_starts`; deletion.py for the leader's side; start_witness.py.
"""

from __future__ import annotations

import asyncio

from barnabas_log.directories.manager import LogManager
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset


class RisingLogStarts:
    """`run` is the owner task; `note` is called on the same loop."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._due: dict[UnifiedLog, Offset] = {}
        self._is_due = asyncio.Event()

    def note(self, log: UnifiedLog, offset: Offset) -> None:
        """The log shall begin at `offset`."""
        self._due[log] = offset
        self._is_due.set()

    async def run(self) -> None:
        """Until cancelled. What comes while a file is written goes together into the next."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            due, self._due = self._due, {}
            await self._logs.checkpoints.raise_log_starts(due)
