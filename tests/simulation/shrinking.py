"""How a failing run's list of faults is shrunk to one that breaks the same law.

May touch:  its arguments, the CPU clock.   Must not touch: the simulations, any random generator.
Invariants: what shrinking returns still breaks the same law.
Read next:  raft.py, controllers.py and node_seeds.py, which run seeds with faults left out; sweep.py, which shrinks what it finds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple

from barnabas_simulation.fault_list import Fault, FaultList, Without
from barnabas_wire.error_groups import first_error


class Shrunken(NamedTuple):
    """A smaller list that breaks the same law."""

    without: Without
    faults: list[Fault]
    runs: int
    cpu_s: float


class Broken(NamedTuple):
    """How a run failed."""

    law: str
    """Its name, without what differs from run to run."""
    faults: FaultList


def law_of(error: BaseException) -> str:
    """The law that an error names: `R5` of `LawBroken: R5: replica 3 …`; otherwise the kind of error."""
    error = first_error(error)
    found = re.match(r"[A-Z]+\d*\b|[^:]{1,60}", str(error))
    name = type(error).__name__
    return f"{name}: {found[0]}" if name == "LawBroken" and found else name


def shrink(run: Callable[[Without], Broken | None], first: Broken, *, cpu_limit_s: float) -> Shrunken:
    """Leave out as much as still breaks the law of `first` (delta debugging, Zeller's ddmin by complements).

    Args:
        run: runs once with faults left out; None when no law was broken.
        cpu_limit_s: after so many CPU seconds the best list so far counts.
    """
    began = time.process_time()
    kept = [fault.number for fault in first.faults.struck()]
    best = first.faults
    runs = 0
    parts = 2
    while kept and time.process_time() - began < cpu_limit_s:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            # Late faults first: what happens at the end has the least to do with it.
            end = len(kept) - start
            tried = kept[: max(0, end - size)] + kept[end:]
            runs += 1
            broken = run(_all_but(tried))
            if broken is not None and broken.law == first.law:
                struck = {fault.number for fault in broken.faults.struck()}
                kept = [number for number in tried if number in struck]
                best = broken.faults
                parts = max(2, parts - 1)
                break
            if time.process_time() - began >= cpu_limit_s:
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), parts * 2)
    return Shrunken(_all_but(kept), best.struck(), runs, time.process_time() - began)


def _all_but(kept: list[int]) -> Without:
    last = kept[-1] + 1 if kept else 0
    return Without(frozenset(range(last)) - frozenset(kept), last)
