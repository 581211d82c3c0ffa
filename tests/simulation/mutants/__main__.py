"""`python -m tests.simulation.mutants [--seed N] [--json FILE]`: find every planted bug with its fixed seed; hunt it where that is stale.

May touch:  the terminal, the file named; with --refresh the fixed seeds.     Must not touch: anything else.
Invariants: exit status 1 when a bug is found neither with its fixed seed nor by a hunt from a random one, whose second try is from other
            seeds, or when the clean code breaks a law with a fixed seed; then the last lines say which bug, which seed, which budget.
            The clean code is then searched from a random seed once: what that finds fails nothing, it is to become a scenario.
Read next:  __init__.py; ../mutant_seeds.py.
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

from tests.simulation.mutant_seeds import WINDOW, load_seeds, save_seeds
from tests.simulation.mutants import (
    CPU_LIMIT_S,
    MUTANTS,
    OTHER_SEEDS,
    SEEDS_MAX,
    STEPS,
    Hunt,
    Mutant,
    clean_limit_s,
    hunt,
)

LAW_WIDTH = 60
TRIES_MAX = 2
"""Of a hunt."""
ACCUSED = "CLEAN CODE ACCUSED with this seed"
"""Of what a hunt found: a seed that breaks a law without the bug proves nothing of it."""
PART_SEEDS = 1 << 28
"""How far apart the seeds of two parts of a clean search are."""


def search(mutant: Mutant, *, fixed: int | None, seed: int, cpu_limit_s: float) -> tuple[Hunt, str, int]:
    """The hunt, by which kind of law (outcomes alone where they suffice), and how many tries it took: 0 with the fixed seed, else at
    most two."""
    kind = "mechanism" if mutant.needs_mechanisms else "outcome"
    outcomes_only = not mutant.needs_mechanisms
    starts = [(0, fixed, WINDOW)] if fixed is not None else []
    for tries, start, seeds in [*starts, (1, seed, SEEDS_MAX), (2, seed + OTHER_SEEDS, SEEDS_MAX)]:
        try:
            result = hunt(mutant, seed=start, seeds=seeds, cpu_limit_s=cpu_limit_s, outcomes_only=outcomes_only)
        except RuntimeError as error:  # told in the end, with its seed: the other hunts go on
            result = Hunt(is_found=False, seed=None, seeds_tried=0, cpu_s=0.0, law=" ".join(str(error).split()[-60:]))
        if result.is_found:
            if tries and result.seed is not None:
                _, clean = _judge_clean(mutant.simulation, result.seed)
                if clean.is_found:
                    return replace(result, is_found=False, law=f"{ACCUSED}: {clean.law}"), kind, TRIES_MAX
            return result, kind, tries
    return result, kind, TRIES_MAX


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


def word_of(is_found: bool, tries: int, *, fixed: int | None) -> str:
    """How it went, in a word: found with the fixed seed, or that this is stale, or missing."""
    if not is_found:
        return "NOT FOUND"
    if tries == 0:
        return "found"
    return ("hunted" if fixed is None else "STALE") + (", 2nd try" if tries > 1 else "")


def stale_line(bug: str, *, fixed: int | None, seed: int) -> str:
    """What the report says of a bug that its fixed seed did not find."""
    former = "it has no fixed seed" if fixed is None else f"its fixed seed {fixed} is stale"
    return f"{bug}: {former}; {seed} finds it now (make sim-mutants ARGS=--refresh writes it down)"


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
    parser.add_argument("--refresh", action="store_true", help="write down the seeds that find what fixed seeds do not")
    parser.add_argument("--no-clean", action="store_true", help="leave the clean code alone")
    options = parser.parse_args(arguments)
    seeds = load_seeds()
    start = options.seed if options.seed is not None else SystemRandom().randrange(1 << 30)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.bug or options.only in mutant.name]
    if not chosen:
        parser.error(f"no planted bug has {options.only!r} in its words or in the name of its patch")
    print(
        f"{len(chosen)} bugs of the control plane and of share partitions, each with its fixed seed; hunts from seed {start}, "
        f"at most {options.cpu:.0f} CPU seconds each"
    )
    print(f"  {'bug':62} {'':9} {'seed':>10} {'seeds':>6} {'CPU s':>6}  law")
    stale: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        searching = pool.map(
            lambda each: search(each, fixed=seeds.get(each.bug), seed=start, cpu_limit_s=options.cpu), chosen
        )
        for mutant, (result, kind, tries) in zip(chosen, searching, strict=True):
            rows.append(row_of(mutant, result, kind, tries))
            word = word_of(result.is_found, tries, fixed=seeds.get(mutant.bug))
            if result.is_found and result.seed is not None and tries:
                stale[mutant.bug] = result.seed
                if options.refresh:  # at once: a run that is ended keeps what it has found
                    save_seeds({mutant.bug: result.seed})
            seed = result.seed if result.seed is not None else "-"
            print(
                f"  {mutant.bug:62} {word:9} {seed:>10} {result.seeds_tried:6} {result.cpu_s:6.1f}  {law_in_short(result.law)}",
                flush=True,
            )
        found = sum(row["found"] for row in rows)
        print(
            f"{found} of {len(rows)} found, {len(stale)} by a hunt, {sum(row['cpu_s'] for row in rows):.0f} CPU s in all"
        )
        clean: list[tuple[str, str, Hunt]] = []
        if not options.no_clean:
            fixed = [(each.simulation, seeds[each.bug]) for each in chosen if each.bug in seeds]
            gates = list(pool.map(lambda each: _judge_clean(*each), sorted(set(fixed))))
            names = sorted({row["simulation"] for row in rows})
            clean = [
                (name, "fixed", _together(of_it)) for name in names if (of_it := [g for n, g in gates if n == name])
            ]
            begun = {
                name: [
                    pool.submit(_search_clean, name, rows, start=start, part=part, parts=options.jobs)
                    for part in range(options.jobs)
                ]
                for name in names
            }
            clean += [(name, "random", _together([each.result() for each in parts])) for name, parts in begun.items()]
    for simulation, which, result in clean:
        verdict = f"ALARM: {result.law}" if result.is_found else "no alarm"
        print(
            f"  clean code, {simulation}, {which} seeds: {verdict} in {result.seeds_tried} seeds, {result.cpu_s:.1f} CPU s",
            flush=True,
        )
    for bug, seed in stale.items():
        print(stale_line(bug, fixed=seeds.get(bug), seed=seed))
    if options.json is not None:
        content = {
            "start": start,
            "steps": STEPS,
            "mutants": rows,
            "clean": {
                f"{name}, {which} seeds": {"accused": each.is_found, "seeds": each.seeds_tried, "cpu_s": each.cpu_s}
                for name, which, each in clean
            },
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    failures = [
        f"python -m tests.simulation.mutants --only {shlex.quote(row['bug'])} --seed {start} --cpu {options.cpu:.0f}   "
        f"# NOT FOUND, nor from seed {start + OTHER_SEEDS}; {row['law'] or 'the CPU time was used up'}"
        for row in rows
        if not row["found"]
    ]
    for name, which, each in clean:
        if not each.is_found:
            continue
        line = f"python -m tests.simulation --only {name} --seed {each.seed} --steps {STEPS[name]}   # clean code: {each.law}"
        if which == "fixed":
            failures.append(line.replace("# clean code", "# CLEAN CODE ACCUSED"))
        else:
            print(f"BECOMES A SCENARIO, and a line in the note: {line}")
    return failures


def _judge_clean(simulation: str, seed: int) -> tuple[str, Hunt]:
    """The clean code with one fixed seed."""
    try:
        found = hunt(None, seed=seed, seeds=1, cpu_limit_s=CPU_LIMIT_S, outcomes_only=False, simulation=simulation)
    except RuntimeError as error:
        found = Hunt(is_found=True, seed=seed, seeds_tried=0, cpu_s=0.0, law=" ".join(str(error).split()[:60]))
    return simulation, found


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
