"""Share partitions under seeds of faults, and the proof that the search would see a bug."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest

from tests.simulation.mutant_seeds import load_seeds
from tests.simulation.mutants import MUTANTS, REPOSITORY, Hunt, Mutant, hunt
from tests.simulation.share_simulator import Figures, ShareSimulation, Swarm
from tests.simulation.side_by_side import CORES, chosen, drop, processes, telling

FIRST_SEED, SEEDS, STEPS = 1, 24, 3_000
SEEDS_OF_BUGS = load_seeds()


def run(seed: int) -> Figures:
    """One seed, to its end."""
    with telling(seed):
        return ShareSimulation(seed, steps=STEPS).run()


def test_clean_code_keeps_every_law() -> None:
    whole = Figures()
    voids = 0
    with processes() as pool:
        for figures in pool.map(run, range(FIRST_SEED, FIRST_SEED + SEEDS), chunksize=6):
            whole.add(figures)
            voids += figures.is_void
    assert voids < SEEDS // 4, "too many runs said nothing"
    assert whole.deliveries > 100 * SEEDS and whole.acknowledged > 50 * SEEDS
    assert whole.leaders > 5 * SEEDS and whole.coordinators > 2 * SEEDS
    assert whole.dead_letters > 5 * SEEDS and whole.letters_failed > SEEDS
    assert whole.locks_ended > 5 * SEEDS and whole.refused > 5 * SEEDS


def test_same_seed_gives_same_trace_in_any_process() -> None:
    hashes = set()
    for hash_seed in ("1", "4242"):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.simulation.share", "--seed", "7", "--seeds", "5", "--steps", "1500"],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        hashes.add(re.search(r"trace hash ([0-9a-f]{16})", ran.stdout)[1])  # type: ignore[index]
    assert len(hashes) == 1
    assert ShareSimulation(7, steps=1_500).run().trace_hash != ShareSimulation(8, steps=1_500).run().trace_hash


def test_run_in_which_nobody_answers_is_void() -> None:
    silent = replace(Swarm.draw(Random(1)), silence_rate=1.0, hostile_rate=0.0)
    assert ShareSimulation(1, steps=300, swarm=silent).run().is_void


@pytest.fixture(scope="module")
def hunts(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Hunt]]]:
    """The searches for all bugs that this run asks for, by name: each in a process of its own, one on each core."""
    pool = ThreadPoolExecutor(CORES)
    mutants: list[Mutant] = [mutant for _, mutant in chosen(request, "mutant")]
    yield {mutant.name: pool.submit(hunt, mutant, seed=SEEDS_OF_BUGS[mutant.bug], seeds=200) for mutant in mutants}
    drop(pool)


@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each.simulation == "share" and each.is_tested], ids=lambda each: each.name
)
def test_seeded_bug_is_found(mutant: Mutant, hunts: dict[str, Future[Hunt]]) -> None:
    found = hunts[mutant.name].result()
    assert found.is_found, f"{mutant.bug}: not found in {found.seeds_tried} seeds"
    assert found.law.startswith("LawBroken: S"), found.law
