"""The consensus core under seeds of faults, and the proof that the search would see a bug."""

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
from tests.simulation.raft_simulator import NEVER_US, Figures, Simulation, Swarm
from tests.simulation.side_by_side import CORES, chosen, drop, processes, telling

FIRST_SEED = 1
SEEDS = 50
STEPS = 5_000
SEEDS_OF_BUGS = load_seeds()


def run(seed: int) -> Figures:
    """One seed, to its end."""
    with telling(seed):
        return Simulation(seed, steps=STEPS).run()


def test_clean_code_keeps_every_law() -> None:
    voids = 0
    crashes = flips = regained = full_disks = 0
    with processes() as pool:
        ran = list(pool.map(run, range(FIRST_SEED, FIRST_SEED + SEEDS), chunksize=5))
    assert len(ran) == SEEDS
    for figures in ran:
        voids += figures.is_void
        crashes += figures.telling_crashes
        flips += figures.flips
        regained += figures.regained
        full_disks += figures.full_disks
    assert voids < SEEDS // 4, "too many runs said nothing"
    assert crashes > 10 * SEEDS, "crashes hardly ever met a telling moment"
    assert flips > SEEDS and regained > SEEDS // 2, "hardly a bit flipped in what was flushed"
    assert full_disks > 5 * SEEDS, "hardly a write found the disk full"


def test_replica_that_found_no_space_for_its_snapshot_is_not_judged_by_the_disk_it_left() -> None:
    Simulation(820170168, steps=5_000).run()  # a bit flipped as it stopped: R11 accused the dead core


def test_a_disk_is_lost_only_where_the_rest_can_elect() -> None:
    """R17: a majority of disks was left, but who voted by another's log alone had a newer epoch than all who could be elected."""
    Simulation(1142405150, steps=5_000).run()


def test_a_voter_that_got_back_its_log_up_to_where_it_was_alone_does_not_lead() -> None:
    """R9: its disk was emptied, and it stopped when it had fetched no further than its days as the only voter."""
    Simulation(176937329, steps=5_000).run()


def test_the_only_first_voter_is_not_formatted_anew_with_its_old_directory_id() -> None:
    """R7: that begins a second quorum beside that of the voters that were added, and nobody is there whom it could ask."""
    Simulation(582731441, steps=5_000).run()


def test_a_voter_whose_first_start_is_not_on_its_disk_yet_counts_for_no_majority_of_disks() -> None:
    """R17: it had been told and stopped before that was saved, another's disk was lost, and nobody was left to tell it again."""
    Simulation(618376985, steps=5_000).run()


def test_same_seed_gives_same_trace_in_any_process() -> None:
    hashes = set()
    for hash_seed in ("1", "4242"):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.simulation.raft", "--seed", "7", "--seeds", "5", "--steps", "3000"],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        hashes.add(re.search(r"trace hash ([0-9a-f]{16})", ran.stdout)[1])  # type: ignore[index]
    assert len(hashes) == 1
    assert Simulation(7, steps=3000).run().trace_hash != Simulation(8, steps=3000).run().trace_hash


def test_run_without_a_crash_is_void() -> None:
    peaceful = replace(
        Swarm.draw(Random(1)),
        crash_us=NEVER_US,
        crash_moments=0,
        replace_disk_us=NEVER_US,
        empty_disk_us=NEVER_US,
        flush_failure_rate=0.0,
    )
    figures = Simulation(1, steps=3000, swarm=peaceful).run()
    assert figures.committed > 0
    assert figures.is_void


@pytest.fixture(scope="module")
def hunts(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Hunt]]]:
    """The searches for all bugs that this run asks for, by name: each in a process of its own, one on each core."""
    pool = ThreadPoolExecutor(CORES)
    mutants: list[Mutant] = [mutant for _, mutant in chosen(request, "mutant")]
    yield {mutant.name: pool.submit(hunt, mutant, seed=SEEDS_OF_BUGS[mutant.bug], seeds=400) for mutant in mutants}
    drop(pool)


@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each.simulation == "raft" and each.is_tested], ids=lambda each: each.name
)
def test_seeded_bug_is_found(mutant: Mutant, hunts: dict[str, Future[Hunt]]) -> None:
    found = hunts[mutant.name].result()
    assert found.is_found, f"{mutant.bug}: not found in {found.seeds_tried} seeds"
    assert found.law.startswith("LawBroken: R"), found.law


def test_clean_copy_is_not_accused() -> None:
    found = hunt(None, seed=FIRST_SEED, seeds=30, outcomes_only=False)
    assert not found.is_found, found.law
