"""Five seeded bugs of consensus, each a patch, and the hunt that must find each of them.

May touch:  a temporary copy of the real core, subprocesses of its own.      Must not touch: the real code.
Invariants: every patch applies to the code as it stands; the hunt searches with the outcome laws alone, from random seeds,
            with the simulator that judges the clean code too.
Read next:  ../raft_simulator.py.

A simulator that finds nothing proves nothing until it has found these.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import barnabas_quorum

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
STEPS = 5_000
CPU_LIMIT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A patch, and the seed from which the tests start their search (found by `python -m tests.simulation.mutants`)."""

    name: str
    bug: str
    test_seed: int

    @property
    def patch(self) -> Path:
        """The patch file."""
        return HERE / f"{self.name}.patch"


MUTANTS = (
    Mutant(name="vote_not_flushed", bug="vote not flushed before the reply", test_seed=700_000),
    Mutant(name="log_not_flushed", bug="log not flushed before the acknowledgement", test_seed=1),
    Mutant(name="no_up_to_date_check", bug="no up-to-date check on a vote", test_seed=1),
    Mutant(name="old_epoch_commit", bug="entries of an older epoch committed by count", test_seed=300_000),
    Mutant(name="two_votes", bug="two votes in one epoch", test_seed=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """How a search ended."""

    is_found: bool
    seed: int | None
    seeds_tried: int
    cpu_s: float
    law: str


def hunt(mutant: Mutant | None, *, seed: int, seeds: int, outcomes_only: bool = True) -> Hunt:
    """Search a mutant, or the clean code when there is none, through `seeds` seeds from `seed` on.

    Raises RuntimeError when the patch does not apply or the search itself fails.
    """
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        package = root / "metadata_quorum" / "barnabas_quorum"
        original = Path(barnabas_quorum.__file__).parent
        package.mkdir(parents=True)
        for name in ("__init__.py", "config.py"):
            shutil.copy(original / name, package)
        shutil.copytree(original / "raft", package / "raft", ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            applied = subprocess.run(
                ["patch", "-p1", "--fuzz=0", "-i", str(mutant.patch)],
                cwd=root,
                capture_output=True,
                text=True,
                check=False,
            )
            if applied.returncode != 0:
                raise RuntimeError(f"{mutant.patch.name} does not apply any more:\n{applied.stdout}{applied.stderr}")
        arguments = ["--seed", str(seed), "--seeds", str(seeds), "--steps", str(STEPS)]
        if outcomes_only:
            arguments.append("--outcomes-only")
        program = (
            f"import sys; sys.path[:0] = {[str(REPOSITORY), str(package.parent)]!r}\n"
            "import barnabas_quorum.raft.core as core\n"
            f"assert core.__file__.startswith({str(root)!r}), core.__file__\n"
            "from tests.simulation.raft import main\n"
            f"sys.exit(main({arguments!r}))\n"
        )
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    cpu = re.search(r"cpu ([\d.]+) s", ran.stdout)
    if cpu is None:
        raise RuntimeError(f"the search failed:\n{ran.stdout}{ran.stderr}")
    found = re.search(r"FOUND seed (\d+) .*?: (.*)", ran.stdout)
    return Hunt(
        is_found=found is not None,
        seed=int(found[1]) if found else None,
        seeds_tried=int(found[1]) - seed + 1 if found else seeds,
        cpu_s=float(cpu[1]),
        law=found[2] if found else "",
    )
