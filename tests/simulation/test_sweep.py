"""The sweep over all simulations, faults that can be left out, and shrinking: what a failing seed is worth to a person."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from barnabas_simulation.fault_list import Fault, FaultList, Without
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.swarm import Slant
from tests.simulation import controllers, raft, sweep
from tests.simulation.mutant_seeds import load_seeds
from tests.simulation.mutants import MUTANTS, REPOSITORY, Mutant, applies, copy_code, hunt
from tests.simulation.shrinking import Broken, law_of, shrink


@pytest.fixture(autouse=True)
def loud_again() -> Iterator[None]:
    """A task of the sweep turns logging off, in a process of its own; here it would stay off for the tests behind these."""
    yield
    logging.disable(logging.NOTSET)


def test_faults_to_leave_out_are_read_and_written_as_ranges() -> None:
    without = Without.parse("3,7-9,40-")
    assert without == (frozenset({3, 7, 8, 9}), 40)
    assert str(without) == "3,7-9,40-"
    assert Without.parse("") == Without() and str(Without()) == ""
    for wrong in ("x", "3-2-1", "-4", "1,,2"):
        with pytest.raises(ValueError, match="range"):
            Without.parse(wrong)


def test_fault_that_is_left_out_keeps_its_number() -> None:
    faults = FaultList(Without.parse("1,3-"))
    assert [faults.strikes(time_us, "crash", 1) for time_us in range(5)] == [True, False, True, False, False]
    assert [fault.number for fault in faults.struck()] == [0, 2]
    assert str(faults.kept[1]) == "     1 at 0.000001 s: crash 1"


def test_shrinking_finds_the_few_faults_that_matter() -> None:
    """The run breaks when faults 3, 40 and 77 of 100 strike."""

    def run(without: Without) -> Broken | None:
        faults = FaultList(without)
        struck = {number for number in range(100) if faults.strikes(number, "crash", 1)}
        return Broken("R5", faults) if {3, 40, 77} <= struck else None

    first = run(Without())
    assert first is not None
    shrunken = shrink(run, first, cpu_limit_s=10.0)
    assert [fault.number for fault in shrunken.faults] == [3, 40, 77]
    assert str(shrunken.without) == "0-2,4-39,41-76,78-"


def test_shrinking_keeps_to_the_law_and_to_its_budget() -> None:
    def run(without: Without) -> Broken | None:
        faults = FaultList(without)
        struck = sum(faults.strikes(number, "crash", 1) for number in range(10))
        return Broken("R5" if struck == 10 else "R9", faults)

    first = run(Without())
    assert first is not None
    assert len(shrink(run, first, cpu_limit_s=5.0).faults) == 10, "another law is another bug"
    assert shrink(run, first, cpu_limit_s=0.0).runs == 0


def test_law_is_told_without_the_state_that_broke_it() -> None:
    assert law_of(LawBroken("C6: an acknowledged topic", "topic-0-1 is None")) == "LawBroken: C6"
    assert law_of(AssertionError("R5: replica 3 says")) == "AssertionError"
    assert Fault(1, 2, "lost", 3, 4, False).target == 4


def _mutant(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def _replay(mutant: Mutant, arguments: list[str], tmp_path: Path) -> str:
    """The command of a failing seed, run on the mutated code."""
    root = tmp_path
    if not (root / "metadata_quorum").exists():
        copy_code(root)
        assert applies(mutant, root) is None
    paths = [str(REPOSITORY), str(root / "metadata_quorum"), str(root / "broker")]
    program = f"import sys; sys.path[:0] = {paths!r}\nfrom tests.simulation.{mutant.simulation} import main\nsys.exit(main({arguments!r}))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


def test_failing_seed_prints_a_command_and_a_shorter_list_that_fails_too(tmp_path: Path) -> None:
    mutant = _mutant("two_votes")
    found = hunt(mutant, seed=9, seeds=400)
    assert found.is_found
    told = _replay(mutant, ["--seed", str(found.seed), "--steps", "5000", "--outcomes-only", "--shrink", "3"], tmp_path)
    shrunken = re.search(r"faults: (\d+) of (\d+) break it too", told)
    assert shrunken is not None, told
    assert int(shrunken[1]) < int(shrunken[2]) / 4
    assert len(re.findall(r"^ +\d+ at [\d.]+ s: ", told, re.MULTILINE)) == int(shrunken[1])
    command = re.search(r"again, with these alone: python -m tests\.simulation\.raft (.*)", told)
    assert command is not None
    law = re.search(r"FOUND seed \d+.*?: LawBroken: (R\d+)", told)
    again = re.search(r"FOUND seed \d+.*?: LawBroken: (R\d+)", _replay(mutant, command[1].split(), tmp_path))
    assert law is not None and again is not None and again[1] == law[1]


def test_every_patch_applies_to_the_code_as_it_stands(tmp_path: Path) -> None:
    for number, mutant in enumerate(MUTANTS):
        root = tmp_path / str(number)
        changed = re.findall(r"^\+\+\+ b/(\S+)", mutant.patch.read_text(), re.MULTILINE)
        for path in changed:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text((REPOSITORY / path).read_text())
        refusal = applies(mutant, root)
        assert refusal is None, f"{mutant.patch.name}: {refusal}"


def test_every_patch_is_a_bug_of_its_own() -> None:
    assert len({mutant.bug for mutant in MUTANTS}) == len(MUTANTS) >= 25


@pytest.mark.parametrize(
    "mutant",
    [each for each in MUTANTS if each.simulation == "controllers" and each.is_tested],
    ids=lambda each: each.name,
)
def test_seeded_bug_of_controllers_is_found(mutant: Mutant) -> None:
    found = hunt(mutant, seed=load_seeds()[mutant.bug], cpu_limit_s=60.0)
    assert found.is_found, f"{mutant.bug}: not found in {found.seeds_tried} seeds"


def test_clean_controllers_keep_every_law() -> None:
    figures = [controllers.Quorum(seed, steps=4000).run() for seed in range(1, 9)]
    assert sum(each.is_void for each in figures) <= 2
    assert sum(each.acknowledged for each in figures) > 100
    assert sum(each.crashes for each in figures) > 20
    assert sum(each.snapshots_loaded for each in figures) > 0


def test_quorums_that_lost_their_majority_are_recovered_and_keep_every_law() -> None:
    losing = [seed for seed in range(1, 60) if controllers.ControllerSwarm.draw(Random(seed)).loss is not None]
    figures = [controllers.Quorum(seed, steps=6_000).run() for seed in losing]
    assert len(losing) > 10
    assert sum(each.recoveries for each in figures) > len(losing) / 2


def test_bit_flips_in_a_log_behind_whose_flushed_end_there_is_rubbish() -> None:
    controllers.Quorum(922386984, steps=6_000).run()  # the search for a batch to damage broke, and an asker with it


def test_a_node_of_a_recovered_quorum_forgets_its_own_snapshot_of_the_same_end() -> None:
    """It crashed before the file of the older one was gone, and began with that one's epoch and the newer one's voters."""
    controllers.Quorum(900480777, steps=6_000).run()


def test_an_operator_takes_another_survivor_when_a_power_cut_left_nothing_of_the_first_recovery() -> None:
    """The second plan told what the other one lacks; the run went on expecting what the first one would have kept."""
    controllers.Quorum(2235430910, steps=6_000).run()


def test_a_removed_voter_that_may_run_for_election_does_not_go_over_to_a_recovered_quorum() -> None:
    """It went over, the recovered quorum's leader crashed, and former voters that had begun anew elected it by its former log."""
    controllers.Quorum(818343826, steps=6_000).run()


def test_a_majority_by_the_log_of_a_survivor_that_nobody_elects_is_none() -> None:
    """A power cut, then another survivor was taken; by its log two of three were there, but one of them knew of a removal."""
    controllers.Quorum(1142404774, steps=6_000).run()


def test_a_follower_that_lacks_an_epoch_of_its_leader_cuts_no_batch_in_two() -> None:
    """It cut where that epoch ended in the leader's log, within a batch of its own, and the node ended."""
    controllers.Quorum(742284926, steps=6_000).run()


@pytest.mark.parametrize("seed", [3, 14], ids=["whole", "recovered"])
def test_same_seed_gives_same_controllers_in_any_process(seed: int) -> None:
    hashes = set()
    for hash_seed in ("1", "4242"):
        ran = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "tests.simulation.controllers",
                "--seed",
                str(seed),
                "--steps",
                "6000",
            ],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        found = re.search(r"trace hash ([0-9a-f]{16})", ran.stdout)
        assert found is not None, ran.stdout + ran.stderr
        hashes.add(found[1])
    assert len(hashes) == 1


def test_sweep_runs_one_seed_in_a_hundred_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sweep.KINDS, "raft", sweep.Kind(1.0, 500, 2, "tests.simulation.raft"))
    asked: list[int] = []

    def other_process(name: str, seed: int) -> str:
        asked.append(seed)
        return "another"

    monkeypatch.setattr(sweep, "trace_in_another_process", other_process)
    outcome = sweep.run_task("raft", 99, 3)
    assert asked == [100]
    assert outcome.tally.ran_twice == 1 and outcome.tally.seeds == 3
    assert len(outcome.failures) == 1 and "two runs differ" in outcome.failures[0]


def test_other_process_gives_the_trace_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in sweep.KINDS.items():
        monkeypatch.setitem(sweep.KINDS, name, replace(kind, steps=kind.steps // 4))
    with ThreadPoolExecutor(1) as beside:
        others = {name: beside.submit(sweep.trace_in_another_process, name, 100) for name in sweep.KINDS}
        for name, kind in sweep.KINDS.items():
            assert sweep.RUNS[name](100, kind.steps)[-1] == others[name].result(), name


def test_search_of_whole_nodes_slants_its_seeds_and_says_so() -> None:
    told = {sweep.command_of("nodes", seed).partition(" --slant ")[2] for seed in range(100)}
    assert told == {"", *(each.value for each in Slant if each is not Slant.NONE)}
    assert "--slant" not in sweep.command_of("controllers", 100)


def test_budget_is_read() -> None:
    assert [sweep.parse_budget(text) for text in ("240", "90s", "10m", "1.5h")] == [240, 90, 600, 5400]
    with pytest.raises(ValueError, match="not a time"):
        sweep.parse_budget("soon")


def test_seed_that_keeps_all_laws_has_nothing_to_shrink() -> None:
    with pytest.raises(ValueError, match="keeps all laws"):
        raft.shrink_seed(1, steps=300, cpu_limit_s=1.0)
