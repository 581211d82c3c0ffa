"""The progress of long work: a bar on a terminal, a line now and then elsewhere.

May touch:  stderr, the clock.        Must not touch: stdout, the cluster.
Invariants: rich is imported only where there is a terminal; without one a line comes at most every LINE_PAUSE_S, and one at the end.
Read next:  moving.py.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import Any

from barnabas_admin.output import size_text, talk

LINE_PAUSE_S = 5.0
RATE_WINDOW_S = 10.0
"""The rate is that of the last seconds: what was copied before says little about what is to come."""


def rate_of(samples: deque[tuple[float, int]]) -> float | None:
    """Bytes per second over samples of (second, bytes); None where there is no span to measure."""
    (first_s, first), (last_s, last) = samples[0], samples[-1]
    return (last - first) / (last_s - first_s) if last_s > first_s else None


def time_left(rate: float | None, bytes_left: int) -> float | None:
    """Seconds until so many bytes are copied at a rate; None when it is not known."""
    if bytes_left == 0:
        return 0.0
    return bytes_left / rate if rate else None


def duration_text(seconds: float | None) -> str:
    """Seconds for people: 42s, 3m10s, 2h05m; ? for None."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


class Progress:
    """Use as a context manager; show() says how far the work is. `noun` is what `total` counts."""

    def __init__(self, what: str, *, total: int, noun: str) -> None:
        self._what = what
        self._total = total
        self._noun = noun
        self._samples: deque[tuple[float, int]] = deque()
        self._started_s = time.monotonic()
        self._line_at_s = -LINE_PAUSE_S
        self._last = ""
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=None, text="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._last:
            talk(f"{self._what}: {self._last}")

    def show(self, *, done: int, bytes_done: int = 0, bytes_total: int = 0) -> None:
        """How far it is: of what is counted, and in bytes where bytes are known."""
        now = time.monotonic()
        self._samples.append((now, bytes_done))
        while len(self._samples) > 2 and self._samples[0][0] < now - RATE_WINDOW_S:
            self._samples.popleft()
        text = f"{done} of {self._total} {self._noun}"
        if bytes_total:
            rate = rate_of(self._samples)
            text += f", {size_text(bytes_done)} of {size_text(bytes_total)}"
            if bytes_done < bytes_total:
                speed = size_text(int(rate)) if rate is not None else "?"
                text += f", {speed}/s, {duration_text(time_left(rate, bytes_total - bytes_done))} left"
        if done == self._total:
            text += f", in {duration_text(now - self._started_s)}"
        if self._bar is not None:
            self._bar.update(
                self._task, total=bytes_total or self._total, completed=bytes_done if bytes_total else done, text=text
            )
        elif now - self._line_at_s >= LINE_PAUSE_S:
            self._line_at_s = now
            talk(f"{self._what}: {text}")
            self._last = ""
            return
        self._last = text
