"""`make sim-mutants`: every planted bug found with its fixed seed, of the control plane and of log and replication; failures last.

May touch:  the terminal.             Must not touch: anything else.
Invariants: exit status 1 when a bug was found neither with its fixed seed nor by a hunt, or clean code is accused by a fixed seed; the last
            lines repeat that. Arguments go to both: `--refresh` writes down new seeds for stale ones.
Read next:  mutants/__main__.py, node_mutants.py, mutant_seeds.py.
"""

from __future__ import annotations

import sys

from tests.simulation import node_mutants
from tests.simulation.mutants import __main__ as control_mutants


def main() -> int:
    """Run both; returns the exit status."""
    failures = [*control_mutants.run(sys.argv[1:]), *node_mutants.run(sys.argv[1:])]
    print("\n".join(["FAILED:", *failures]) if failures else "all found, and no alarm of clean code with fixed seeds")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
