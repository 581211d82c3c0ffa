"""The control lane: an event loop in its own thread.

May touch:  threads, asyncio.         Must not touch: what runs on the lane.
Invariants: whatever is scheduled on the lane's loop runs in the lane's thread; closing waits for the thread.
Read next:  node.py, which says what runs where.

Why a thread: under saturation a gRPC ping on the data loop takes 7.3 ms p50 and 34 ms at worst, on its own thread 1.9 and
12.6; and 200 ms of Python on the data loop cost the control lane 22 ms instead of 202 (measured). A separate process is
no better, and would need the image twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

JOIN_TIMEOUT_S = 10.0


class LoopLane:
    """A lane that is an event loop, whoever runs it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the lane and wait for it from another loop; cancelling the wait cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))


class ControlLane(LoopLane):
    """Starts its thread when made; `close` ends it."""

    def __init__(self) -> None:
        super().__init__(asyncio.new_event_loop())
        self._thread = threading.Thread(target=self._run, name="control-lane", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.wait(left, timeout=JOIN_TIMEOUT_S / 2))

    def close(self) -> None:
        """Cancel what still runs on the loop, wait for the thread, release the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(JOIN_TIMEOUT_S)
        if not self._thread.is_alive():
            self.loop.close()
