"""An event loop whose time passes only when everybody waits: a test of time-outs takes no time and always goes the same way."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a descriptor, lets the loop's clock jump to its next timer."""

    clock_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock: everybody waits and no timer is armed")
        self.clock_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """time() starts at 0 and never touches the real clock."""

    def __init__(self) -> None:
        self.selector = _Selector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.clock_s

    def now_ms(self) -> int:
        """A wall clock to go with it."""
        return 1_700_000_000_000 + round(self.time() * 1000)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine to its end on a loop of its own; every task must be done by then."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        assert not left, f"tasks left behind: {left}"
        return result
    finally:
        loop.close()


def now_ms() -> int:
    """Wall clock of the running virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.now_ms()
