"""`python -m tests.simulation.share --seed N --steps N --seeds K`: share partitions through seeds of faults.

May touch:  the terminal.             Must not touch: anything else.
Invariants: the printed trace hash depends on the seed, the steps, what is left out and the code, on nothing else; exit status 1 when a law
            breaks, 2 when every run was void.
Read next:  share_simulator.py; sweep.py, which runs as many seeds as a budget allows.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import sys
import time
from pathlib import Path

from barnabas_simulation.fault_list import FaultList, Without
from tests.simulation.raft import SHRINK_CPU_S as SHRINK_CPU_S
from tests.simulation.raft import print_shrunken
from tests.simulation.share_simulator import Figures, ShareSimulation
from tests.simulation.shrinking import Broken, Shrunken, law_of, shrink
from tests.simulation.watchdog import watched


def find(seed: int, *, steps: int, without: Without) -> Broken | None:
    """One seed with its list of faults; None when it keeps all laws."""
    faults = FaultList(without)
    try:
        ShareSimulation(seed, steps=steps, fault_list=faults).run()
    except Exception as error:
        return Broken(law_of(error), faults)
    return None


def shrink_seed(seed: int, *, steps: int, cpu_limit_s: float) -> tuple[Broken, Shrunken]:
    """The faults of a failing seed, and fewer of them that break the same law. Raises ValueError when it does not fail."""
    first = find(seed, steps=steps, without=Without())
    if first is None:
        raise ValueError(f"seed {seed} keeps all laws in {steps} steps")
    return first, shrink(lambda without: find(seed, steps=steps, without=without), first, cpu_limit_s=cpu_limit_s)


def main(arguments: list[str] | None = None) -> int:
    """Run, print figures, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.share", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=20_000, help="events per seed before everything heals")
    parser.add_argument(
        "--outcomes-only", action="store_true", help="as the others have it; all laws here are of outcomes"
    )
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument(
        "--without", type=Without.parse, default=Without(), help="faults to leave out, such as 3,7-12,40-"
    )
    parser.add_argument(
        "--shrink", type=float, default=0.0, metavar="CPU_S", help="shrink a failing seed's faults for so long"
    )
    parser.add_argument("--cpu", type=float, default=float("inf"), help="begin no seed after so many CPU seconds")
    parser.add_argument("--running", type=Path, metavar="FILE", help="write there which seed is running")
    options = parser.parse_args(arguments)
    started = time.process_time()
    whole = Figures()
    digest = hashlib.sha256()
    done = voids = 0
    for seed in range(options.seed, options.seed + options.seeds):
        if time.process_time() - started >= options.cpu:
            break
        faults = FaultList(options.without, only_count=True)
        try:
            with watched(seed, running=options.running):
                figures = ShareSimulation(seed, steps=options.steps, fault_list=faults, is_traced=options.trace).run()
        except Exception as broken:
            if options.trace:
                raise
            print(f"FOUND seed {seed}: {type(broken).__name__}: {broken}")
            print(f"cpu {time.process_time() - started:.2f} s, seeds tried {seed - options.seed + 1}")
            command = f"python -m tests.simulation.share --seed {seed} --steps {options.steps}"
            left_out = f" --without {options.without}" if str(options.without) else ""
            print(f"again: {command}{left_out} --trace")
            if options.shrink:
                print_shrunken(command, *shrink_seed(seed, steps=options.steps, cpu_limit_s=options.shrink))
            return 1
        done += 1
        voids += figures.is_void
        whole.add(figures)
        digest.update(figures.trace_hash.encode())
    cpu_s = max(time.process_time() - started, 0.001)
    counts = ", ".join(
        f"{getattr(whole, each.name)} {each.name}"
        for each in dataclasses.fields(Figures)
        if each.name not in ("trace_hash", "is_void")
    )
    print(f"{done} seeds, {counts}, {voids} void runs")
    print(f"cpu {cpu_s:.2f} s: {whole.events / cpu_s:,.0f} events/s")
    print(f"trace hash {digest.hexdigest()}")
    return 2 if done and voids == done else 0


if __name__ == "__main__":
    sys.exit(main())
