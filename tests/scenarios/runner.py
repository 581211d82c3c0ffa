"""Typed scripts with expected output: `python -m tests.scenarios.runner [--rewrite] [FILE…]`.

May touch:  the scripts (only with --rewrite).        Must not touch: clocks, randomness.
Invariants: a script is blocks of commands, `----`, what they print, and a blank line; the same script always prints the
            same. A changed output is rewritten and then reviewed as a diff, never edited by hand.
Read next:  raft_scenario.py, the first interpreter; raft/, its scripts.

Lines that begin with # are comments and stay.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).parent
SEPARATOR = "----"


class Scenario(Protocol):
    """Interprets one script."""

    def run(self, command: str) -> list[str]:
        """Do what one line says; returns the lines it prints. Raises ValueError for a line it does not know."""
        ...

    def close(self) -> None:
        """The script has ended."""


@dataclass
class Block:
    """Comments and commands, and what they are to print."""

    source: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    @property
    def commands(self) -> list[str]:
        return [line for line in self.source if line and not line.startswith("#")]


def parse(text: str) -> list[Block]:
    """Split a script into its blocks."""
    blocks = []
    block = Block()
    in_output = False
    for line in [*text.splitlines(), ""]:
        if line == SEPARATOR:
            in_output = True
        elif in_output and line == "":
            blocks.append(block)
            block, in_output = Block(), False
        elif in_output:
            block.expected.append(line)
        else:
            block.source.append(line)
    if block.commands:
        raise ValueError(f"commands without {SEPARATOR} at the end: {block.commands}")
    return blocks


def play(path: Path, make_scenario: Callable[[], Scenario]) -> str:
    """The script with what it prints now."""
    scenario = make_scenario()
    parts = []
    try:
        for block in parse(path.read_text()):
            printed = [line for command in block.commands for line in scenario.run(command)]
            parts.append("\n".join([*block.source, SEPARATOR, *printed]) + "\n")
    finally:
        scenario.close()
    return "\n".join(parts)


def scripts() -> list[tuple[Path, Callable[[], Scenario]]]:
    """Every script with its interpreter, by the folder it lies in."""
    from tests.scenarios.group_scenario import GroupScenario
    from tests.scenarios.raft_scenario import RaftScenario
    from tests.scenarios.replica_scenario import ReplicaScenario
    from tests.scenarios.share_scenario import ShareScenario
    from tests.scenarios.transaction_scenario import TransactionScenario

    interpreters: dict[str, Callable[[], Scenario]] = {
        "fetch": ReplicaScenario,
        "group": GroupScenario,
        "isr": ReplicaScenario,
        "raft": RaftScenario,
        "share": ShareScenario,
        "transaction": TransactionScenario,
        "truncation": ReplicaScenario,
    }
    return [
        (path, interpreter)
        for folder, interpreter in interpreters.items()
        for path in sorted((HERE / folder).glob("*.txt"))
    ]


def main() -> int:
    """Compare or rewrite; exit status 1 when something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.runner", description=__doc__)
    parser.add_argument("--rewrite", action="store_true", help="write what is printed now into the scripts")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    wanted = {path.resolve() for path in options.files}
    differing = 0
    for path, interpreter in scripts():
        if wanted and path.resolve() not in wanted:
            continue
        printed = play(path, interpreter)
        if printed != path.read_text():
            differing += 1
            print(f"{path.relative_to(HERE)} {'rewritten' if options.rewrite else 'differs'}")
            if options.rewrite:
                path.write_text(printed)
    return 1 if differing and not options.rewrite else 0


if __name__ == "__main__":
    sys.exit(main())
