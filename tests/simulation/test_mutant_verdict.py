"""The verdict of `make sim-mutants`: the fixed seed first, hunts where it is stale, and a last line that says what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas_simulation.cluster import Cluster
from tests.simulation import node_mutants
from tests.simulation.mutant_seeds import WINDOW, load_seeds, save_seeds
from tests.simulation.mutants import CLEAN_CPU_S_MAX, CLEAN_TIMES, MUTANTS, OTHER_SEEDS, SEEDS_MAX, Hunt, clean_limit_s
from tests.simulation.mutants import __main__ as control_mutants

NAME = MUTANTS[0].bug


class Hunts:
    """Hunts that end as told: by start, whether something is found. Clean code is accused with the seeds of `accused`."""

    def __init__(self, found: dict[int, bool], *, accused: tuple[int, ...] = ()) -> None:
        self.found = found
        self.accused = accused
        self.clean_cpu_s = 0.0
        self.tried: list[tuple[int, int]] = []
        """(seed, how many) with a bug planted."""

    def __call__(self, planted: object, *, seed: int, cpu_limit_s: float, seeds: int = SEEDS_MAX, **_: object) -> Hunt:
        if planted is not None:
            self.tried.append((seed, seeds))
        elif seeds > 1:
            self.clean_cpu_s += cpu_limit_s
        is_found = seed in self.accused if planted is None else self.found[seed]
        return Hunt(is_found=is_found, seed=seed, seeds_tried=1, cpu_s=50.0, law="a law")


def judged(
    patch: pytest.MonkeyPatch, hunts: Hunts, *, is_node: bool, fixed: int | None = None, words: tuple[str, ...] = ()
) -> list[str]:
    module = node_mutants if is_node else control_mutants
    patch.setattr(module, "hunt", hunts)
    name = node_mutants.MUTANTS[0].bug if is_node else NAME
    patch.setattr(module, "load_seeds", lambda: {} if fixed is None else {name: fixed})
    return module.run(["--seed", "5", "--cpu", "7", "--only", name, "--jobs", "1", *words])


@pytest.mark.parametrize("is_node", [True, False])
def test_a_bug_is_looked_for_with_its_fixed_seed_and_not_hunted_then(
    is_node: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hunts = Hunts({77: True})
    assert judged(monkeypatch, hunts, is_node=is_node, fixed=77) == []
    assert hunts.tried == [(77, WINDOW)]
    assert "1 found, 0 by a hunt" in capsys.readouterr().out.replace("1 of 1", "1")


@pytest.mark.parametrize("is_node", [True, False])
def test_a_stale_seed_is_told_with_the_one_that_finds_the_bug_now(
    is_node: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hunts = Hunts({77: False, 5: True})
    saved: dict[str, int] = {}
    monkeypatch.setattr(node_mutants if is_node else control_mutants, "save_seeds", saved.update)
    assert judged(monkeypatch, hunts, is_node=is_node, fixed=77) == [], "it is found: nothing failed"
    assert hunts.tried == [(77, WINDOW), (5, SEEDS_MAX)]
    assert "its fixed seed 77 is stale; 5 finds it now" in capsys.readouterr().out and not saved
    judged(monkeypatch, hunts, is_node=is_node, fixed=77, words=("--refresh",))
    assert list(saved.values()) == [5]


@pytest.mark.parametrize("is_node", [True, False])
def test_a_seed_that_breaks_a_law_without_the_bug_finds_no_bug(is_node: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: dict[str, int] = {}
    monkeypatch.setattr(node_mutants if is_node else control_mutants, "save_seeds", saved.update)
    hunts = Hunts({77: False, 5: True}, accused=(5,))
    (line,) = judged(monkeypatch, hunts, is_node=is_node, fixed=77, words=("--refresh", "--no-clean"))
    assert "CLEAN CODE ACCUSED with this seed: a law" in line and not saved


def test_seeds_are_written_one_a_line_beside_those_that_stay(tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    file.write_text("9 a bug of words\n3 two keys\n")
    save_seeds({"two keys": 4, "one more": 5}, file)
    assert file.read_text() == "9 a bug of words\n5 one more\n4 two keys\n"
    assert load_seeds(file) == {"a bug of words": 9, "one more": 5, "two keys": 4}


def test_every_fixed_seed_is_of_a_bug_that_is_planted() -> None:
    bugs = {each.bug for each in MUTANTS} | {each.bug for each in node_mutants.MUTANTS}
    assert not load_seeds().keys() - bugs


@pytest.mark.parametrize("is_node", [True, False])
def test_what_the_first_try_misses_the_second_may_find(
    is_node: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hunts = Hunts({5: False, 5 + OTHER_SEEDS: True})
    assert judged(monkeypatch, hunts, is_node=is_node) == []
    assert "hunted, 2nd try" in capsys.readouterr().out
    assert hunts.clean_cpu_s == CLEAN_TIMES * 50.0 < CLEAN_CPU_S_MAX


def test_a_hunt_without_luck_makes_no_search_of_hours() -> None:
    assert clean_limit_s(434.0) == CLEAN_CPU_S_MAX
    assert clean_limit_s(0.1) > 1


@pytest.mark.parametrize("is_node", [True, False])
def test_a_bug_that_is_not_found_twice_is_told_with_seed_and_budget(
    is_node: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = judged(monkeypatch, Hunts({5: False, 5 + OTHER_SEEDS: False}), is_node=is_node)
    assert "--seed 5 --cpu 7" in line and "NOT FOUND" in line and str(5 + OTHER_SEEDS) in line


@pytest.mark.parametrize("is_node", [True, False])
def test_clean_code_is_accused_by_a_fixed_seed_and_a_random_alarm_becomes_a_scenario(
    is_node: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = judged(monkeypatch, Hunts({77: True}, accused=(77,)), is_node=is_node, fixed=77)
    assert "CLEAN CODE ACCUSED: a law" in line and "--seed 77" in line
    assert judged(monkeypatch, Hunts({77: True}, accused=(5,)), is_node=is_node, fixed=77) == []
    assert "BECOMES A SCENARIO" in capsys.readouterr().out


@pytest.mark.parametrize(("raised", "is_found"), [(TypeError("no such argument"), False), (ValueError("a law"), True)])
def test_a_bug_that_does_not_fit_the_code_is_not_found(raised: Exception, is_found: bool) -> None:
    """Its own error breaks every run, and must not count as a law that caught it."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        def run(self: Cluster) -> None:
            raise ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("of a node", [raised])])

        patch.setattr(Cluster, "run", run)

    ended = node_mutants.hunt(plant, seed=1, cpu_limit_s=1.0)
    assert ended.is_found is is_found
    assert str(raised) in ended.law and ("does not fit" in ended.law) is not is_found


def test_a_search_that_breaks_is_told_and_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(planted: object, **_: object) -> Hunt:
        if planted is not None:
            raise RuntimeError("the patch does not apply any more")
        return Hunt(is_found=False, seed=1, seeds_tried=1, cpu_s=1.0, law="")

    monkeypatch.setattr(control_mutants, "hunt", broken)
    monkeypatch.setattr(control_mutants, "load_seeds", dict)
    (line,) = control_mutants.run(["--seed", "5", "--only", NAME])
    assert "does not apply any more" in line and "--seed 5" in line
