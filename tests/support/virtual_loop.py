"""Runs a test on the simulation's virtual time: a test of time-outs takes no time and always goes the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from barnabas_simulation.loop import WALL_START_MS, VirtualLoop

P = ParamSpec("P")
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine to its end on a loop of its own; every task must be done by then."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        result = loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        assert not left, f"tasks left behind: {left}"
        return result
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorate a test that is a coroutine, so that its clock jumps from timer to timer."""

    @wraps(test)
    def run_it(*args: P.args, **named: P.kwargs) -> None:
        run(test(*args, **named))

    return run_it


def now_ms() -> int:
    """Wall clock of the running virtual loop."""
    return WALL_START_MS + round(asyncio.get_running_loop().time() * 1000)
