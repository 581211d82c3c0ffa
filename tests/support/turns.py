"""Turns of the event loop, for tests that wait for nothing but other tasks.

May touch:  asyncio.   Must not touch: clocks.
Invariants: no time passes; bounded.
Read next:  virtual_loop.py, for tests in which time shall pass.
"""

from __future__ import annotations

import asyncio


async def turns(count: int = 30) -> None:
    """Let every task that can run go on, `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)
