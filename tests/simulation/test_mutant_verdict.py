"""The verdict of `make sim-mutants`: a second try from other seeds, and a last line that says what failed and how to repeat it."""

from __future__ import annotations

import pytest

from barnabas_broker.simulation.cluster import Cluster
from tests.simulation import node_mutants
from tests.simulation.mutants import CLEAN_CPU_S_MAX, CLEAN_TIMES, MUTANTS, OTHER_SEEDS, Hunt, clean_limit_s
from tests.simulation.mutants import __main__ as control_mutants

NAME = MUTANTS[0].bug


class Hunts:
    """Hunts that end as told: by start, whether something is found."""

    def __init__(self, found: dict[int, bool], *, accused: bool = False) -> None:
        self.found = found
        self.accused = accused
        self.clean_cpu_s = 0.0

    def __call__(self, planted: object, *, seed: int, cpu_limit_s: float, **_: object) -> Hunt:
        is_found = self.accused if planted is None else self.found[seed]
        if planted is None:
            self.clean_cpu_s += cpu_limit_s
        return Hunt(is_found=is_found, seed=seed, seeds_tried=1, cpu_s=50.0, law="a law")


def judged(patch: pytest.MonkeyPatch, hunts: Hunts, *, is_node: bool) -> list[str]:
    module = node_mutants if is_node else control_mutants
    patch.setattr(module, "hunt", hunts)
    name = node_mutants.MUTANTS[0].bug if is_node else NAME
    return module.run(["--seed", "5", "--cpu", "7", "--only", name])


@pytest.mark.parametrize("is_node", [True, False])
def test_what_the_first_try_misses_the_second_may_find(
    is_node: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hunts = Hunts({5: False, 5 + OTHER_SEEDS: True})
    assert judged(monkeypatch, hunts, is_node=is_node) == []
    assert "1 needed a second try" in capsys.readouterr().out
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
def test_an_accusation_of_clean_code_is_told_with_its_seed(is_node: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = judged(monkeypatch, Hunts({5: True}, accused=True), is_node=is_node)
    assert "CLEAN CODE ACCUSED: a law" in line and "--seed 5" in line


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
    (line,) = control_mutants.run(["--seed", "5", "--only", NAME])
    assert "does not apply any more" in line and "--seed 5" in line
