"""Seeded bugs of the control plane and of share partitions, each a patch, and the hunt that must find each of them.

May touch:  a temporary copy of the real code, subprocesses of its own.      Must not touch: the real code.
Invariants: every patch applies to the code as it stands; the hunt searches random seeds with the simulation that judges the
            clean code too, without any script.
Read next:  ../raft_simulator.py and ../controllers.py, which are searched; __main__.py, the table.

A simulator that finds nothing proves nothing until it has found these. Bugs of the core are hunted in the simulation of the
core; those of snapshots on disk, recovery, images and decisions in the one of whole controllers; those of share groups in the one of
share partitions. "Outcome laws" look only at
what a user or a disk could see; a bug that hurts nobody by itself is marked, and found by the mechanism it breaks.

Not among them, for random seeds need luck: "who rejoins votes in the former quorum with an empty log" fell after 51 CPU s from
one start and not within 600 from another. tests/broker/offline/test_quorum_recovery.py holds it.
Nor "a new leader leaves the old one's transaction open": none of 850 seeds, 357 CPU s; tests/metadata_quorum/test_transactions.py
holds it.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import barnabas_broker
import barnabas_coordination
import barnabas_quorum
from tests.simulation.watchdog import HANG_CPU_S

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
STEPS = {"raft": 5_000, "controllers": 6_000, "share": 4_000}
CPU_LIMIT_S = 600.0
"""For each bug."""
OTHER_SEEDS = 1 << 30
"""How far from the first try's seeds those of the second are."""
CLEAN_CPU_S_MIN, CLEAN_CPU_S_MAX = 100.0, 600.0
CLEAN_TIMES = 10
"""Clean code is searched for so many times as long as the slowest bug took to be found, within these bounds: a hunt that had no luck is
to make no run of hours. `make sim-long` searches on, and `python -m tests.simulation --only nodes --slant rot --seeds 1000`."""
KILL_CPU_S = int(2 * HANG_CPU_S)
"""Beyond its limit a search is killed: a seed of it neither ends nor lets the watchdog end it."""
SEEDS_MAX = 1_000_000
COPIES = (("metadata_quorum", barnabas_quorum), ("broker", barnabas_broker), ("broker", barnabas_coordination))
"""What a patch may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A patch, and which simulation is to find it."""

    name: str
    bug: str
    simulation: str
    """raft, controllers or share."""
    needs_mechanisms: bool = False
    """Harmless by itself, or harmful once in many thousand seeds: only a law on how the code works finds it in time."""
    is_tested: bool = False
    """Whether `make test` looks for it too, from its fixed seed on; `make sim-mutants` looks for all."""

    @property
    def patch(self) -> Path:
        """The patch file."""
        return HERE / f"{self.name}.patch"


def _read(patch: Path) -> Mutant:
    """A patch begins with lines that no tool takes for a part of it: `bug: WORDS`, `simulation: NAME`, and where they are so `needs
    mechanisms` and `tested`."""
    lines = patch.read_text(encoding="utf-8").partition("--- ")[0].splitlines()
    said = dict(line.partition(": ")[::2] for line in lines)
    return Mutant(
        name=patch.stem,
        bug=said["bug"],
        simulation=said["simulation"],
        needs_mechanisms="needs mechanisms" in said,
        is_tested="tested" in said,
    )


MUTANTS = tuple(sorted(map(_read, HERE.glob("*.patch")), key=lambda each: (each.simulation != "raft", each.name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """How a search ended."""

    is_found: bool
    seed: int | None
    seeds_tried: int
    cpu_s: float
    law: str


def applies(mutant: Mutant, root: Path) -> str | None:
    """Apply the patch to a copy of the code; None when it does, else what `patch` says."""
    applied = subprocess.run(
        ["patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch", "-i", str(mutant.patch)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return None if applied.returncode == 0 else applied.stdout + applied.stderr


def copy_code(root: Path) -> None:
    """What patches may change, as it lies in the repository."""
    for part, package in COPIES:
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, root / part / source.name, ignore=shutil.ignore_patterns("__pycache__"))


def clean_limit_s(slowest_s: float) -> float:
    """CPU seconds for which clean code is searched in each kind of simulation; slowest_s: what the slowest bug took."""
    return min(CLEAN_CPU_S_MAX, max(CLEAN_CPU_S_MIN, CLEAN_TIMES * slowest_s))


def hunt(
    mutant: Mutant | None,
    *,
    seed: int,
    seeds: int = SEEDS_MAX,
    cpu_limit_s: float = CPU_LIMIT_S,
    outcomes_only: bool = True,
    simulation: str = "raft",
) -> Hunt:
    """Search a mutant, or the clean code when there is none (then in `simulation`), through `seeds` seeds from `seed` on, or
    until the CPU time is used up.

    Raises RuntimeError when the patch does not apply or the search itself fails.
    """
    if mutant is not None:
        simulation = mutant.simulation
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        copy_code(root)
        if mutant is not None and (refusal := applies(mutant, root)) is not None:
            raise RuntimeError(f"{mutant.patch.name} does not apply any more:\n{refusal}")
        arguments = ["--seed", str(seed), "--seeds", str(seeds), "--steps", str(STEPS[simulation])]
        arguments += ["--cpu", str(cpu_limit_s)]
        if outcomes_only:
            arguments.append("--outcomes-only")
        paths = [str(REPOSITORY), *(str(root / part) for part, _ in COPIES)]
        names = ", ".join(package.__name__ for _, package in COPIES)
        running = root / "running"
        arguments += ["--running", str(running)]
        cpu_max = int(cpu_limit_s) + KILL_CPU_S
        program = (
            "import resource, sys\n"
            f"resource.setrlimit(resource.RLIMIT_CPU, ({cpu_max}, {cpu_max + 1}))\n"
            f"sys.path[:0] = {paths!r}\n"
            f"import {names}\n"
            f"assert all(each.__file__.startswith({str(root)!r}) for each in ({names}))\n"
            f"from tests.simulation.{simulation} import main\n"
            f"sys.exit(main({arguments!r}))\n"
        )
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False
        )
        last = int(running.read_text()) if running.exists() else seed
    if ran.returncode == -signal.SIGXCPU:
        law = f"SeedNeverEnded: seed {last} was running when the search was killed after {cpu_max} CPU s"
        return Hunt(is_found=True, seed=last, seeds_tried=last - seed + 1, cpu_s=cpu_max, law=law)
    cpu = re.search(r"cpu ([\d.]+) s", ran.stdout)
    if cpu is None:
        raise RuntimeError(f"the search failed with {ran.returncode} in seed {last}:\n{ran.stdout}{ran.stderr}")
    found = re.search(r"FOUND seed (\d+).*?: (.*)", ran.stdout)
    tried = re.search(r"(\d+) seeds, ", ran.stdout)
    return Hunt(
        is_found=found is not None,
        seed=int(found[1]) if found else None,
        seeds_tried=int(found[1]) - seed + 1 if found else int(tried[1]) if tried else 0,
        cpu_s=float(cpu[1]),
        law=found[2] if found else "",
    )
