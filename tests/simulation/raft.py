"""`python -m tests.simulation.raft --seed N --steps N --seeds K`: run the consensus core through seeds of faults.

May touch:  the terminal.             Must not touch: anything else.
Invariants: the printed trace hash depends on the seed, the steps, what is left out and the code, on nothing else; exit
            status 1 when a law breaks, 2 when every run was void.
Read next:  raft_simulator.py; sweep.py, which runs as many seeds as a budget allows.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from barnabas_simulation.fault_list import FaultList, Without
from tests.simulation.raft_simulator import HASH_MASK, Figures, Simulation
from tests.simulation.shrinking import Broken, Shrunken, law_of, shrink
from tests.simulation.watchdog import watched

SHRINK_CPU_S = 30.0


def run(
    seed: int,
    *,
    steps: int,
    without: Without = Without(),  # noqa: B008 - immutable
    outcomes_only: bool = False,
    trace: bool = False,
    fault_list: FaultList | None = None,
) -> Figures:
    """One seed. Raises what the simulation raises; `fault_list` then holds what struck."""
    return Simulation(
        seed,
        steps=steps,
        checks_mechanisms=not outcomes_only,
        ends_calm=not outcomes_only,
        trace=trace,
        fault_list=fault_list if fault_list is not None else FaultList(without, only_count=True),
    ).run()


def find(seed: int, *, steps: int, without: Without, outcomes_only: bool = False) -> Broken | None:
    """One seed with its list of faults; None when it keeps all laws."""
    faults = FaultList(without)
    try:
        run(seed, steps=steps, outcomes_only=outcomes_only, fault_list=faults)
    except Exception as error:
        return Broken(law_of(error), faults)
    return None


def shrink_seed(seed: int, *, steps: int, cpu_limit_s: float, outcomes_only: bool = False) -> tuple[Broken, Shrunken]:
    """The faults of a failing seed, and fewer of them that break the same law. Raises ValueError when it does not fail."""
    first = find(seed, steps=steps, without=Without(), outcomes_only=outcomes_only)
    if first is None:
        raise ValueError(f"seed {seed} keeps all laws in {steps} steps")
    return first, shrink(
        lambda without: find(seed, steps=steps, without=without, outcomes_only=outcomes_only),
        first,
        cpu_limit_s=cpu_limit_s,
    )


def print_shrunken(command: str, first: Broken, shrunken: Shrunken) -> None:
    """The list, and the command that replays it."""
    print(
        f"faults: {len(shrunken.faults)} of {len(first.faults.struck())} break it too "
        f"(found in {shrunken.runs} runs, {shrunken.cpu_s:.1f} CPU s):"
    )
    for fault in shrunken.faults:
        print(f"  {fault}")
    print(f"again, with these alone: {command} --without {shrunken.without}")


def main(arguments: list[str] | None = None) -> int:
    """Run, print figures, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.raft", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=20_000, help="events per seed before the healing phase")
    parser.add_argument(
        "--outcomes-only",
        action="store_true",
        help="check only what a user or a disk could see, and leave out the healing phase",
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
    total = Totals()
    for seed in range(options.seed, options.seed + options.seeds):
        if time.process_time() - started >= options.cpu:
            break
        simulated: list[FaultList] = [FaultList(options.without, only_count=True)]
        try:
            with watched(seed, running=options.running):
                figures = run(
                    seed,
                    steps=options.steps,
                    outcomes_only=options.outcomes_only,
                    trace=options.trace,
                    fault_list=simulated[0],
                )
        except (AssertionError, IndexError) as broken:
            cpu_s = time.process_time() - started
            print(f"FOUND seed {seed}: {type(broken).__name__}: {broken}")
            print(f"cpu {cpu_s:.2f} s, seeds tried {seed - options.seed + 1}")
            command = f"python -m tests.simulation.raft --seed {seed} --steps {options.steps}"
            if options.outcomes_only:
                command += " --outcomes-only"
            left_out = f" --without {options.without}" if str(options.without) else ""
            print(f"again: {command}{left_out} --trace")
            if options.trace:
                raise
            if options.shrink:
                shrunken = shrink_seed(
                    seed, steps=options.steps, cpu_limit_s=options.shrink, outcomes_only=options.outcomes_only
                )
                print_shrunken(command, *shrunken)
            return 1
        total.add(figures)
    cpu_s = time.process_time() - started
    print(total.text(cpu_s))
    print(f"trace hash {total.trace_hash:016x}")
    return 2 if total.voids == total.seeds else 0


class Totals:
    """What several runs did together."""

    def __init__(self) -> None:
        self.seeds = 0
        self.events = 0
        self.simulated_us = 0
        self.voids = 0
        self.counts: dict[str, int] = {}
        self.trace_hash = 0

    def add(self, figures: Figures) -> None:
        """One more run."""
        self.seeds += 1
        self.events += figures.events
        self.simulated_us += figures.simulated_us
        self.voids += figures.is_void
        for name, value in {
            "commits": figures.committed,
            "leaders": figures.leaders,
            "crashes": figures.crashes,
            "of these at telling moments": figures.telling_crashes,
            "snapshots taken": figures.snapshots,
            "loaded": figures.installs,
            "voter sets committed": figures.voter_changes,
            "disks lost": figures.new_disks,
            "bits flipped": figures.flips,
            "of these made good": figures.regained,
            "stops for want of space": figures.full_disks,
        }.items():
            self.counts[name] = self.counts.get(name, 0) + value
        self.trace_hash = (self.trace_hash * 1_000_003 + figures.trace_hash) & HASH_MASK

    def text(self, cpu_s: float) -> str:
        """Two lines of figures."""
        counts = ", ".join(f"{value} {name}" for name, value in self.counts.items())
        cpu_s = max(cpu_s, 0.001)
        return (
            f"{self.seeds} seeds, {self.events} events, {self.simulated_us / 3.6e9:.2f} simulated hours, {counts}, "
            f"{self.voids} void runs\n"
            f"cpu {cpu_s:.2f} s: {self.events / cpu_s:,.0f} events/s, "
            f"{self.simulated_us / 3.6e9 / cpu_s * 60:.2f} simulated hours per CPU minute"
        )


if __name__ == "__main__":
    sys.exit(main())
