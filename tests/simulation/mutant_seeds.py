"""The fixed seed of each planted bug: with it the bug was found, so with it the bug is looked for first.

May touch:  the file beside this one.  Must not touch: anything else.
Invariants: one line a bug, in order of its words, so that lines of two branches merge; a bug without a line is hunted.
Read next:  all_mutants.py, mutants/__main__.py and node_mutants.py, which ask and, told `--refresh`, write.

`mutant_seeds.txt` has lines `<seed> <the bug's words>`. Whatever changes what nodes write moves the moments of every seed, so a seed
stands for WINDOW seeds, from it on: always the same ones, and enough for most bugs. It is stale when none of them finds the bug: then
that is hunted from a random seed, the report names the seed that finds it now, and `make sim-mutants ARGS=--refresh` writes it here.
A bug that one seed in some hundred finds has a story instead (stories.py), which no change of other moments moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SEEDS_FILE = Path(__file__).with_suffix(".txt")
WINDOW = 12
"""How many seeds, from the fixed one on, are looked through for a bug before that one counts as stale."""


def load_seeds(file: Path = SEEDS_FILE) -> dict[str, int]:
    """The seed by the bug's words."""
    found = {}
    for line in file.read_text().splitlines():
        seed, _, bug = line.partition(" ")
        found[bug] = int(seed)
    return found


def save_seeds(seeds: Mapping[str, int], file: Path = SEEDS_FILE) -> None:
    """Put these in, and keep the others."""
    merged = {**load_seeds(file), **seeds}
    file.write_text("".join(f"{seed} {bug}\n" for bug, seed in sorted(merged.items())))
