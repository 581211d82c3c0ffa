"""`python -m tests.simulation.raft --seed N --steps N --seeds K`: run the consensus core through seeds of faults.

May touch:  the terminal.             Must not touch: anything else.
Invariants: the printed trace hash depends on the seed, the steps and the code, on nothing else; exit status 1 when a law
            breaks, 2 when every run was void.
Read next:  raft_simulator.py.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.raft_simulator import HASH_MASK, Simulation


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
    options = parser.parse_args(arguments)

    started = time.process_time()
    events = simulated_us = committed = crashes = telling = leaders = voids = 0
    trace_hash = 0
    for seed in range(options.seed, options.seed + options.seeds):
        simulation = Simulation(
            seed,
            steps=options.steps,
            checks_mechanisms=not options.outcomes_only,
            ends_calm=not options.outcomes_only,
            trace=options.trace,
        )
        try:
            figures = simulation.run()
        except (AssertionError, IndexError) as broken:
            cpu_s = time.process_time() - started
            print(f"FOUND seed {seed} at {simulation.now_us / 1e6:.3f} s: {type(broken).__name__}: {broken}")
            print(f"cpu {cpu_s:.2f} s, seeds tried {seed - options.seed + 1}")
            print(f"again: python -m tests.simulation.raft --seed {seed} --steps {options.steps} --trace")
            if options.trace:
                raise
            return 1
        events += figures.events
        simulated_us += figures.simulated_us
        committed += figures.committed
        crashes += figures.crashes
        telling += figures.telling_crashes
        leaders += figures.leaders
        voids += figures.is_void
        trace_hash = (trace_hash * 1_000_003 + figures.trace_hash) & HASH_MASK
    cpu_s = time.process_time() - started
    print(
        f"{options.seeds} seeds, {events} events, {simulated_us / 3.6e9:.2f} simulated hours, {committed} commits, "
        f"{leaders} leaders, {crashes} crashes ({telling} at telling moments), {voids} void runs"
    )
    print(
        f"cpu {cpu_s:.2f} s: {events / cpu_s:,.0f} events/s, "
        f"{simulated_us / 3.6e9 / cpu_s * 60:.2f} simulated hours per CPU minute"
    )
    print(f"trace hash {trace_hash:016x}")
    return 2 if voids == options.seeds else 0


if __name__ == "__main__":
    sys.exit(main())
