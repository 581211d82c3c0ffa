"""`python -m tests.simulation.mutants [--seed N]`: hunt every seeded bug from a random seed, and print what it took.

May touch:  the terminal.             Must not touch: anything else.
Invariants: exit status 1 when a bug survives the CPU limit or the clean code is accused.
Read next:  __init__.py.
"""

from __future__ import annotations

import argparse
import sys
from random import SystemRandom

from tests.simulation.mutants import CPU_LIMIT_S, MUTANTS, Hunt, Mutant, hunt

SEEDS_PER_SEARCH = 200


def search(mutant: Mutant | None, *, seed: int, cpu_limit_s: float, outcomes_only: bool) -> Hunt:
    """Search on until it is found or the CPU time is used up."""
    cpu_s = 0.0
    tried = 0
    while True:
        part = hunt(mutant, seed=seed + tried, seeds=SEEDS_PER_SEARCH, outcomes_only=outcomes_only)
        cpu_s += part.cpu_s
        tried += part.seeds_tried
        if part.is_found or cpu_s >= cpu_limit_s:
            return Hunt(is_found=part.is_found, seed=part.seed, seeds_tried=tried, cpu_s=cpu_s, law=part.law)


def main() -> int:
    """Print the table, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="where the search starts; random when not given")
    options = parser.parse_args()
    start = options.seed if options.seed is not None else SystemRandom().randrange(1 << 30)
    print(f"searching from seed {start}, at most {CPU_LIMIT_S} CPU seconds each")
    failed = False
    slowest_s = 0.0
    for outcomes_only in (True, False):
        print("outcome laws only:" if outcomes_only else "all laws:")
        for mutant in MUTANTS:
            result = search(mutant, seed=start, cpu_limit_s=CPU_LIMIT_S, outcomes_only=outcomes_only)
            failed |= not result.is_found
            slowest_s = max(slowest_s, result.cpu_s)
            print(
                f"  {mutant.bug:46} {'found' if result.is_found else 'NOT FOUND':9} seed {result.seed} "
                f"after {result.seeds_tried} seeds, {result.cpu_s:.1f} CPU s: {result.law}",
                flush=True,
            )
    clean = search(None, seed=start, cpu_limit_s=max(slowest_s, 10.0), outcomes_only=False)
    failed |= clean.is_found
    print(
        f"  {'clean code, all laws':46} {'ACCUSED: ' + clean.law if clean.is_found else 'no alarm'} "
        f"in {clean.seeds_tried} seeds, {clean.cpu_s:.1f} CPU s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
