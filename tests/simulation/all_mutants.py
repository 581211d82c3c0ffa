"""`make sim-mutants`: every planted bug hunted, of the control plane and of log and replication; what failed is said last.

May touch:  the terminal.             Must not touch: anything else.
Invariants: exit status 1 when a bug was not found in two tries or clean code is accused; the last lines repeat that.
Read next:  mutants/__main__.py, node_mutants.py.
"""

from __future__ import annotations

import sys

from tests.simulation import node_mutants
from tests.simulation.mutants import __main__ as control_mutants


def main() -> int:
    """Run both; returns the exit status."""
    failures = [*control_mutants.run([]), *node_mutants.run([])]
    print("\n".join(["FAILED:", *failures]) if failures else "all found, and no alarm of clean code")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
