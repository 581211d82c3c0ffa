"""A seed that does not end is broken like one that breaks a law: its name and where it stands are told.

May touch:  SIGPROF and its timer, the file that names the seed.      Must not touch: the simulations, the real clock.
Invariants: a seed that has used HANG_CPU_S of CPU time ends as SeedNeverEnded, which names it; a seed that ends costs nothing.
Read next:  mutants/__init__.py, whose searches are killed where even this does not help.

The signal is raised as a KeyboardInterrupt: asyncio hands everything else to the task or the handler of errors, and the run
would go on. It comes again and again, for the loop's clean-up may not end either.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

HANG_CPU_S = 60.0
"""A seed that takes so long has fallen into a loop: most end within one."""
AGAIN_CPU_S = 5.0
FRAMES_TOLD = 8


class SeedNeverEnded(AssertionError):
    """A seed was still running after HANG_CPU_S; says which, and where."""


class _OutOfTime(KeyboardInterrupt):
    """Gets through asyncio."""


@contextmanager
def watched(seed: int, *, cpu_s: float | None = None, running: Path | None = None) -> Iterator[None]:
    """Run one seed within. For the main thread alone, as signals are.

    cpu_s: CPU seconds of this process that it may take; HANG_CPU_S when not given.
    running: where to write the seed, for who must kill this process.

    Raises SeedNeverEnded.
    """
    if running is not None:
        running.write_text(str(seed))
    limit_s = HANG_CPU_S if cpu_s is None else cpu_s
    stack = ""

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal stack
        if not stack:
            frames = traceback.extract_stack(frame)[-FRAMES_TOLD:]
            stack = " < ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(frames))
        raise _OutOfTime

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, limit_s, AGAIN_CPU_S)
    try:
        yield
    except BaseException as error:
        if not stack:
            raise
        raise SeedNeverEnded(f"seed {seed} had not ended after {limit_s:g} CPU s, at {stack}") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
    if stack:
        raise SeedNeverEnded(f"seed {seed} had not ended after {limit_s:g} CPU s, at {stack}")
