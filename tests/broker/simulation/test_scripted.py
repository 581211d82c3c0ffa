"""Bundled scenarios: the story that each tells, one journal per seed, and a broken law in the last line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas_simulation.loop import VirtualLoop
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.scenarios import SCENARIOS, Deed
from barnabas_simulation.scripted import ScriptedRun
from barnabas_wire.run_journal import Journal, Step, read_journal
from tests.support.journals import text_of

IS_FULL = os.environ.get("BARNABAS_ECOSYSTEM_FULL") == "1"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def told(journal: Journal, kind: str) -> list[Step]:
    return [step for step in journal.steps if step.kind == kind]


def test_scripts_rise_in_time_and_mend_what_they_break() -> None:
    for name, scenario in SCENARIOS.items():
        assert name == scenario.name
        times = [act.at_s for act in scenario.acts]
        assert times == sorted(times) and times[-1] < scenario.ends_s
        deeds = [act.deed for act in scenario.acts]
        assert deeds.count(Deed.POWER_OFF) == deeds.count(Deed.POWER_ON)
        assert deeds.count(Deed.CUT_OFF) + deeds.count(Deed.LOSE_FETCHES) == deeds.count(Deed.MEND)


def test_one_seed_is_one_journal_in_any_process() -> None:
    """Under other hashes of texts too, which decide in which order a set of them is gone through."""
    command = [sys.executable, "-W", "ignore", "-m", "barnabas_broker.main", "sim", "--scenario", "power-cut"]
    running = subprocess.Popen(
        [*command, "--seed", "5", "-o", "json"], stdout=subprocess.PIPE, env=os.environ | {"PYTHONHASHSEED": "1"}
    )
    journal = ScriptedRun(SCENARIOS["power-cut"], 5).journal()
    said = running.communicate(timeout=120)[0]
    assert running.returncode == 0
    assert text_of(journal) == said
    assert read_journal(said) == journal
    assert journal.is_kept and journal.seed == 5 and journal.acknowledged > 5
    assert len(told(journal, "fault")) == 3


def test_two_voters_are_lost_and_the_cluster_grows_back() -> None:
    """Also what a step says: everybody's belief after it, and the numbers of its reason."""
    journal = ScriptedRun(SCENARIOS["two-voters-lost"], 1).journal()
    assert journal.is_kept, journal.verdict
    (lost, _) = told(journal, "fault")
    (begun,) = [step for step in told(journal, "operator") if "anew" in step.what]
    between = [step for step in journal.steps if lost.step < step.step < begun.step]
    assert not [step for step in between if step.kind in ("elected", "acknowledged", "committed")]
    (survivor,) = [each.node for each in begun.beliefs if each.node not in (told(journal, "fault")[1].node, lost.node)]
    alone = next(step for step in told(journal, "elected") if step.step > begun.step)
    assert alone.node == survivor and "only voter" in alone.why
    assert [step.beliefs[survivor - 1].voters for step in told(journal, "voters")][-1] == (1, 2, 3)
    last = journal.steps[-1].beliefs
    assert len({each.log_end for each in last}) == 1 and all(each.isr == (1, 2, 3) for each in last)
    for step in journal.steps:
        assert [each.node for each in step.beliefs] == [1, 2, 3]
        assert step.law and step.why.endswith(".")
    (first, *_) = told(journal, "acknowledged")
    assert "{1, 2, 3} have it on their disks" in first.why


def test_a_broken_law_ends_the_run_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    check = ScriptedRun._after_turn

    def broken(self: ScriptedRun) -> None:
        check(self)
        assert isinstance(self.loop, VirtualLoop)
        if self.loop.time() > 0.3:
            raise LawBroken("P9", "the high watermark fell")

    monkeypatch.setattr(ScriptedRun, "_after_turn", broken)
    journal = ScriptedRun(SCENARIOS["leader-dies"], 1).journal()
    assert not journal.is_kept
    assert journal.verdict == "LawBroken: P9: the high watermark fell"
    assert read_journal(text_of(journal)) == journal


@pytest.mark.skipif(not IS_FULL, reason="make ecosystem runs every scenario")
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_law_holds_in_every_scenario(name: str) -> None:
    for seed in range(1, 21):
        journal = ScriptedRun(SCENARIOS[name], seed).journal()
        assert journal.is_kept, f"{name}, seed {seed}: {journal.verdict}"
        assert len(journal.steps) < 600
