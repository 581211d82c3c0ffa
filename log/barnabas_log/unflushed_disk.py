"""The disk of a node whose directory goes with it: writes reach the page cache, and nothing ever waits for more.

May touch:  os, through disk.py.      Must not touch: threads.
Invariants: a flush is answered in a later turn of the loop, as everywhere; the bytes are those that a RealDisk would have.
Read next:  disk.py.

For files on tmpfs there is nothing to flush and nothing to wait for: each call to a thread and back would cost 20 us of CPU, and
beside a thread of the same process that computes two waits for the interpreter, 5 ms each.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

from barnabas_log.disk import File, RealDisk
from barnabas_log.tail.stalled_flushes import OnFlushed


class UnflushedDisk(RealDisk):
    """The operating system's disk without threads. A crash of the machine may take what was written; one of the process does not."""

    def __init__(self) -> None:
        super().__init__(wants_ring=False)

    def begin_flush(self, files: Sequence[File], on_done: OnFlushed) -> None:
        """See Disk.begin_flush."""
        asyncio.get_running_loop().call_soon(on_done, None)

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """See Disk.run. Done at once: on tmpfs nothing blocks."""
        return function(*args)

    def _close_descriptor(self, descriptor: int) -> None:
        os.close(descriptor)
