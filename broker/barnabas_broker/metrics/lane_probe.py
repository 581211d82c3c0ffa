"""How late one lane is: the delay of a timer on its event loop, when the loop last turned, and how many tasks it has.

May touch:  asyncio timers, the CPU clock of its thread.   Must not touch: the lane's work.
Invariants: `last_tick_ms` is written by its own lane only and may be read from any thread.
Read next:  exporter.py.

An idle lane is probed rarely: waking a process that slept costs about 200 us of CPU whatever it then does (measured),
which at 4 probes a second was an eighth of what an idle cluster used. A lane that works is probed often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from barnabas_wire.histogram import Histogram

BUSY_PERIOD_S = 0.1
"""A shorter period measures finer and costs more: 5 ms was 1.4 % of a core."""
IDLE_PERIOD_S = 1.0
BUSY_SHARE_MIN = 0.05
"""Share of a core above which a lane counts as working."""


def choose_period_s(*, cpu_s: float, elapsed_s: float) -> float:
    """Time to the next probe of a lane that used `cpu_s` of CPU in the last `elapsed_s`."""
    return BUSY_PERIOD_S if cpu_s >= BUSY_SHARE_MIN * elapsed_s else IDLE_PERIOD_S


class LaneProbe:
    """Lateness of one lane's timers (`lag`, seconds) and the time of its last turn (`last_tick_ms`)."""

    __slots__ = ("_clock_ms", "_cpu_s", "_loop", "lag", "last_tick_ms")

    def __init__(self, *, clock_ms: Callable[[], int], cpu_s: Callable[[], float] = time.thread_time) -> None:
        """`clock_ms` must be the clock that readers of `last_tick_ms` compare with; `cpu_s` is the CPU time of the lane's thread."""
        self._clock_ms = clock_ms
        self._cpu_s = cpu_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self.lag = Histogram()
        self.last_tick_ms = clock_ms()

    def count_tasks(self) -> int:
        """Tasks of the loop that are not done; 0 before run(). From any thread: asyncio copies its set until that succeeds."""
        return 0 if self._loop is None else len(asyncio.all_tasks(self._loop))

    async def run(self) -> None:
        """Probe the running loop until cancelled; one task of the lane's task group.

        The probe is a bare timer: waking a task for it would be a second turn of an idle loop, each time.
        """
        loop = self._loop = asyncio.get_running_loop()
        self.last_tick_ms = self._clock_ms()  # the lane may have opened logs for long since it was made
        broken: asyncio.Future[None] = loop.create_future()
        seen = (loop.time(), self._cpu_s())
        timer: asyncio.TimerHandle

        def tick() -> None:
            nonlocal seen, timer
            now, cpu_s = loop.time(), self._cpu_s()
            try:
                self.lag.observe(max(0.0, now - timer.when()))
                self.last_tick_ms = self._clock_ms()
            except Exception as error:  # carried to the task group, which stops the node with it
                broken.set_exception(error)
                return
            period_s = choose_period_s(cpu_s=cpu_s - seen[1], elapsed_s=now - seen[0])
            seen = (now, cpu_s)
            timer = loop.call_at(now + period_s, tick)

        timer = loop.call_later(IDLE_PERIOD_S, tick)
        try:
            await broken
        finally:
            timer.cancel()
