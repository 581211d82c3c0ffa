"""Turns of the event loop, for tests that wait for nothing but other tasks, and what the longest of them costs.

May touch:  asyncio, the CPU clock of a thread.   Must not touch: other clocks.
Invariants: no time passes in `turns`; a busy machine makes no turn longer.
Read next:  virtual_loop.py, for tests in which time shall pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Iterator
from typing import Any


async def turns(count: int = 30) -> None:
    """Let every task that can run go on, `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)


class LongestTurn:
    """CPU time of the longest turn of the loop so far, with what its thread did in it."""

    cpu_s = 0.0


@contextlib.contextmanager
def longest_turn() -> Iterator[LongestTurn]:
    """Measure the turns of the loops of this thread meanwhile. Flat loops over bytes make no calls, so nothing else sees them. The
    garbage collector rests: it would walk all that other tests have left, in whichever turn it begins."""
    found, run = LongestTurn(), asyncio.events.Handle._run

    def timed(handle: Any) -> None:
        began_s = time.thread_time()
        run(handle)
        found.cpu_s = max(found.cpu_s, time.thread_time() - began_s)

    asyncio.events.Handle._run = timed  # type: ignore[assignment, method-assign]
    gc.disable()
    try:
        yield found
    finally:
        gc.enable()
        asyncio.events.Handle._run = run  # type: ignore[method-assign]
