"""`python -m tests.chaos.node --bug NAME [--journal DIRECTORY --faults FILE] -c server.properties …`: a real node with a bug.

May touch:  this process, before the node runs.   Must not touch: what barnabas-server does with the other arguments.
Invariants: but for the bug the node is barnabas-server; with a journal its disk is tests/power's.
Read next:  tests/simulation/node_mutants.py, whose planted bugs these are; data/run.py, which asks for one.
"""

from __future__ import annotations

import argparse
import sys

import pytest

from barnabas_broker.main import main as run_server
from tests.power.node import run as run_on_recording_disk
from tests.simulation.node_mutants import MUTANTS


def main(arguments: list[str]) -> int:
    """Plant the bug for as long as this process lives, then run the node; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--bug", required=True)
    options, rest = parser.parse_known_args(arguments)
    found = [mutant for mutant in MUTANTS if mutant.bug == options.bug]
    if not found:
        parser.error(f"no planted bug is called {options.bug!r}; there are: {'; '.join(m.bug for m in MUTANTS)}")
    found[0].plant(pytest.MonkeyPatch())
    return run_on_recording_disk(rest) if "--journal" in rest else run_server(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
