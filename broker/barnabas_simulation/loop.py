"""An asyncio event loop on virtual time: sleeping costs nothing, and no task left to wake is an error.

May touch:  asyncio's base loop.      Must not touch: sockets, threads, the real clock.
Invariants: time moves only when nothing is ready; callbacks run in the order in which they became ready; one program gives
            one run.
Read next:  cluster.py.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas_simulation.sockets import SimulatedServer, SimulatedSockets, StreamEnd

WALL_START_MS = 1_700_000_000_000
"""What wall clocks show when a run begins, ms since 1970."""


CLEAN_UP_ROUNDS = 10
"""Tasks that catch their cancellation are cancelled so often."""


class Deadlock(AssertionError):
    """Everybody waits and no timer is armed."""


class Livelock(AssertionError):
    """Somebody goes round and round without waiting for anything."""


TURNS_AT_ONE_TIME_MAX = 100_000


class _VirtualSelector:
    """In place of the loop's wait for sockets: the wait is the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Let virtual time pass."""
        if timeout is None:
            raise Deadlock(f"at {self._loop.time():.3f} s nothing is ready and no timer is armed")
        if timeout > 0:
            self._loop.advance(timeout)
        return []

    def close(self) -> None:
        """Nothing to release."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs unmodified coroutines; `steps` counts the callbacks run."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self.steps = 0
        self.turns = 0
        self.stood_still_s = 0.0
        """The virtual seconds that passed while nothing could run."""
        self.stalls = 0
        self.after_turn: Callable[[], None] = lambda: None
        """Called after every turn of the loop; what it raises ends the run."""
        self.sockets: SimulatedSockets | None = None
        """Where connections lead; None: there are none."""
        self._turns_at_one_time = 0
        self._clock_resolution = math.ulp(0.0)
        """asyncio runs timers before their time by less than this. Code that then compares the two waits again, and a
        clock that does not move by itself may stay there for ever: so it is the least that a time differs from the
        next."""
        self._selector = _VirtualSelector(self)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Called by the selector alone."""
        self._now_s += seconds
        self._clock_resolution = math.ulp(self._now_s)
        self._turns_at_one_time = 0

    def stand_still(self, seconds: float) -> None:
        """Time passes and nothing runs, as where the machine is suspended or has no CPU time to give."""
        self._now_s += seconds
        self._clock_resolution = math.ulp(self._now_s)
        self.stood_still_s += seconds
        self.stalls += 1

    async def create_server(  # type: ignore[override]  # as far as the product asks for it
        self, protocol_factory: Callable[[], Any], host: str, port: int, **options: Any
    ) -> SimulatedServer:
        """See asyncio."""
        assert self.sockets is not None, "a run without sockets has no listeners"
        return self.sockets.bind(protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **options: Any
    ) -> tuple[StreamEnd, Any]:
        """See asyncio."""
        assert self.sockets is not None, "a run without sockets has no connections"
        return await self.sockets.connect(protocol_factory, host, port)

    def add_writer(self, fd: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """See asyncio."""
        assert self.sockets is not None, "a run without sockets has no connections"
        self.sockets.add_writer(fd, callback)

    def remove_writer(self, fd: int) -> bool:  # type: ignore[override]
        """See asyncio."""
        return self.sockets is not None and self.sockets.remove_writer(fd)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no socket events."""

    def _run_once(self) -> None:
        self.steps += len(self._ready)  # type: ignore[attr-defined]
        self.turns += 1
        self._turns_at_one_time += 1
        if self._turns_at_one_time > TURNS_AT_ONE_TIME_MAX:
            raise Livelock(f"at {self._now_s:.3f} s: {self._ready}")  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]
        self.after_turn()

    def _write_to_self(self) -> None:
        """Does nothing: no other thread waits to be woken."""

    def end(self) -> None:
        """Cancel what is left, whatever it does about it, and close: the run is over, and is not judged any more."""
        self.after_turn = lambda: None
        self.set_exception_handler(lambda loop, context: None)
        for _ in range(CLEAN_UP_ROUNDS):
            left = asyncio.all_tasks(self)
            if not left:
                break
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.wait(left, timeout=1.0))
        self.close()
