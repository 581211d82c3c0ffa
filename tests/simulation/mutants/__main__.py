"""`python -m tests.simulation.mutants [--seed N] [--json FILE]`: hunt every seeded bug from a random seed; print what it took.

May touch:  the terminal, the file named.     Must not touch: anything else.
Invariants: exit status 1 when a bug survives the CPU limit twice, the second time from other seeds, or the clean code is accused;
            then the last lines say which bug, which seed, which budget. The clean code is searched CLEAN_TIMES as long as the
            slowest bug took to be found.
Read next:  __init__.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import Any

from tests.simulation.mutants import (
    CPU_LIMIT_S,
    MUTANTS,
    OTHER_SEEDS,
    STEPS,
    Hunt,
    Mutant,
    clean_limit_s,
    hunt,
)

LAW_WIDTH = 60
PART_SEEDS = 1 << 28
"""How far apart the seeds of two parts of a clean search are."""


def search(mutant: Mutant, *, seed: int, cpu_limit_s: float) -> tuple[Hunt, str, int]:
    """The hunt, by which kind of law (outcomes alone where they suffice), and how many tries it took: at most two."""
    kind = "mechanism" if mutant.needs_mechanisms else "outcome"
    outcomes_only = not mutant.needs_mechanisms
    tries = 0
    for start in (seed, seed + OTHER_SEEDS):
        tries += 1
        try:
            result = hunt(mutant, seed=start, cpu_limit_s=cpu_limit_s, outcomes_only=outcomes_only)
        except RuntimeError as error:  # told in the end, with its seed: the other hunts go on
            result = Hunt(is_found=False, seed=None, seeds_tried=0, cpu_s=0.0, law=" ".join(str(error).split()[-60:]))
        if result.is_found:
            break
    return result, kind, tries


def row_of(mutant: Mutant, result: Hunt, kind: str, tries: int) -> dict[str, Any]:
    """What the table and the JSON say of one bug."""
    return {
        "bug": mutant.bug,
        "patch": mutant.patch.name,
        "simulation": mutant.simulation,
        "found": result.is_found,
        "laws": kind,
        "law": result.law,
        "seed": result.seed,
        "seeds_tried": result.seeds_tried,
        "tries": tries,
        "cpu_s": result.cpu_s,
    }


def law_in_short(law: str) -> str:
    """The law without the state that broke it."""
    return law.removeprefix("LawBroken: ").replace("\n", " ")[:LAW_WIDTH]


def main() -> int:
    """Print the table, return the exit status."""
    failures = run()
    print(*failures, sep="\n", end="\n" if failures else "")
    return 1 if failures else 0


def run(arguments: Sequence[str] | None = None) -> list[str]:
    """Print the table; returns a line for each bug that was not found and each accusation of clean code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="where the search starts; random when not given")
    parser.add_argument("--cpu", type=float, default=CPU_LIMIT_S, help="CPU seconds for each bug")
    parser.add_argument("--only", default="", help="bugs whose words or patch hold this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="hunts at the same time")
    parser.add_argument("--json", type=Path, help="write the table there too")
    options = parser.parse_args(arguments)
    start = options.seed if options.seed is not None else SystemRandom().randrange(1 << 30)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.bug or options.only in mutant.name]
    if not chosen:
        parser.error(f"no planted bug has {options.only!r} in its words or in the name of its patch")
    print(f"{len(chosen)} bugs of the control plane, from seed {start}, at most {options.cpu:.0f} CPU seconds each")
    print(f"  {'bug':62} {'':9} {'seed':>10} {'seeds':>6} {'CPU s':>6}  law")
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, (result, kind, tries) in zip(
            chosen, pool.map(lambda each: search(each, seed=start, cpu_limit_s=options.cpu), chosen), strict=True
        ):
            rows.append(row_of(mutant, result, kind, tries))
            word = ("found" if tries == 1 else "2nd try") if result.is_found else "NOT FOUND"
            seed = result.seed if result.seed is not None else "-"
            print(
                f"  {mutant.bug:62} {word:9} {seed:>10} {result.seeds_tried:6} {result.cpu_s:6.1f}  {law_in_short(result.law)}",
                flush=True,
            )
        found = sum(row["found"] for row in rows)
        again = sum(row["tries"] > 1 for row in rows)
        print(
            f"{found} of {len(rows)} found, {again} needed a second try, {sum(row['cpu_s'] for row in rows):.0f} CPU s in all"
        )
        names = sorted({row["simulation"] for row in rows})
        begun = {
            name: [
                pool.submit(_search_clean, name, rows, start=start, part=part, parts=options.jobs)
                for part in range(options.jobs)
            ]
            for name in names
        }
        clean = [(name, _together([each.result() for each in parts])) for name, parts in begun.items()]
    for simulation, result in clean:
        verdict = f"ACCUSED: {result.law}" if result.is_found else "no alarm"
        print(
            f"  clean code, {simulation}: {verdict} in {result.seeds_tried} seeds, {result.cpu_s:.1f} CPU s", flush=True
        )
    if options.json is not None:
        content = {
            "start": start,
            "steps": STEPS,
            "mutants": rows,
            "clean": {
                name: {"accused": each.is_found, "seeds": each.seeds_tried, "cpu_s": each.cpu_s} for name, each in clean
            },
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    failures = [
        f"python -m tests.simulation.mutants --only {shlex.quote(row['bug'])} --seed {start} --cpu {options.cpu:.0f}   "
        f"# NOT FOUND, nor from seed {start + OTHER_SEEDS}; {row['law'] or 'the CPU time was used up'}"
        for row in rows
        if not row["found"]
    ]
    failures += [
        f"python -m tests.simulation --only {name} --seed {each.seed} --steps {STEPS[name]}   # CLEAN CODE ACCUSED: {each.law}"
        for name, each in clean
        if each.is_found
    ]
    return failures


def _search_clean(simulation: str, rows: list[dict[str, Any]], *, start: int, part: int, parts: int) -> Hunt:
    """One part of the search, with seeds and a share of the CPU time of its own."""
    slowest_s = max(row["cpu_s"] for row in rows if row["simulation"] == simulation)
    limit_s = clean_limit_s(slowest_s) / parts
    seed = start + part * PART_SEEDS
    try:
        return hunt(None, seed=seed, cpu_limit_s=limit_s, outcomes_only=False, simulation=simulation)
    except RuntimeError as error:  # what no search came of is no proof
        return Hunt(is_found=True, seed=seed, seeds_tried=0, cpu_s=0.0, law=" ".join(str(error).split()[:60]))


def _together(parts: Sequence[Hunt]) -> Hunt:
    """One search that was done in parts; of several alarms the first."""
    told = next((part for part in parts if part.is_found), parts[0])
    return replace(told, seeds_tried=sum(part.seeds_tried for part in parts), cpu_s=sum(part.cpu_s for part in parts))


if __name__ == "__main__":
    sys.exit(main())
