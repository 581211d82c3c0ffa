"""How late one lane is: the delay of a timer on its event loop, and when the loop last turned.

May touch:  asyncio timers.           Must not touch: the lane's work.
Invariants: `last_tick_ms` is written by its own lane only and may be read from any thread.
Read next:  exporter.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas_broker.metrics.histogram import Histogram

PROBE_PERIOD_S = 0.25
"""A shorter period measures finer and costs more: 5 ms was 1.4 % of a core."""


class LaneProbe:
    """Lateness of one lane's timers (`lag`, seconds) and the time of its last turn (`last_tick_ms`)."""

    __slots__ = ("_clock_ms", "lag", "last_tick_ms")

    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        """`clock_ms` must be the clock that readers of `last_tick_ms` compare with."""
        self._clock_ms = clock_ms
        self.lag = Histogram()
        self.last_tick_ms = clock_ms()

    async def run(self) -> None:
        """Probe the running loop until cancelled; one task of the lane's task group."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PROBE_PERIOD_S
            await asyncio.sleep(PROBE_PERIOD_S)
            self.lag.observe(max(0.0, loop.time() - due))
            self.last_tick_ms = self._clock_ms()
