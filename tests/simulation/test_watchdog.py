"""A seed that never ends is told by its name, wherever it stands; the search that fell into it is no proof of clean code."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from barnabas_simulation.cluster import Cluster
from tests.simulation import controllers, mutants, node_mutants, watchdog
from tests.simulation.mutants import Hunt
from tests.simulation.mutants import __main__ as control_mutants
from tests.simulation.watchdog import SeedNeverEnded, watched

LIMIT_S = 0.05


def spin(most_s: float = 1.0) -> None:
    until_s = time.process_time() + most_s
    while time.process_time() < until_s:
        pass


def test_a_seed_that_ends_in_time_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with watched(7, cpu_s=LIMIT_S):
        pass
    until_s = time.process_time() + 2 * LIMIT_S
    while time.process_time() < until_s:
        pass
    assert signal.getsignal(signal.SIGPROF) is before


def test_what_a_seed_raises_in_time_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="a law"), watched(7, cpu_s=LIMIT_S):
        raise ValueError("a law")


def test_a_loop_within_a_task_is_told_with_its_seed_and_its_place() -> None:
    rounds = 0

    async def run() -> None:
        nonlocal rounds
        while rounds < 2:
            rounds += 1
            await asyncio.gather(asyncio.ensure_future(take_everything()), return_exceptions=True)

    async def take_everything() -> None:
        try:
            spin()
        except Exception:
            spin()

    with (
        pytest.raises(SeedNeverEnded, match=r"seed 7 had not ended .* spin < .* take_everything"),
        watched(7, cpu_s=LIMIT_S),
    ):
        asyncio.run(run())
    assert rounds == 1, "the first time ends the run, and no task goes on"


def test_a_clean_up_that_never_ends_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "AGAIN_CPU_S", LIMIT_S)
    began_s = time.process_time()

    def run() -> None:
        try:
            spin()
        finally:
            spin(3.0)

    with pytest.raises(SeedNeverEnded, match="seed 7"), watched(7, cpu_s=LIMIT_S):
        run()
    assert time.process_time() - began_s < 2.0


def test_every_search_tells_the_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(watchdog, "HANG_CPU_S", LIMIT_S)
    monkeypatch.setattr(controllers.Quorum, "run", lambda quorum: spin())
    assert controllers.main(["--seed", "11", "--steps", "1"]) == 1
    assert "FOUND seed 11 " in capsys.readouterr().out
    monkeypatch.setattr(Cluster, "run", lambda cluster: spin())
    found = node_mutants.hunt(None, seed=12, cpu_limit_s=10.0)
    assert found.is_found and found.seed == 12 and found.law.startswith("SeedNeverEnded: seed 12 ")


def test_a_search_that_had_to_be_killed_tells_its_seed_and_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even the signal gets through, as in one long step of C: here the CPU time of the whole search is too little."""
    monkeypatch.setattr(mutants, "KILL_CPU_S", -998)
    found = mutants.hunt(None, seed=900, cpu_limit_s=1000.0, simulation="raft")
    assert found.is_found and found.seed is not None and found.seed > 900
    assert found.law == f"SeedNeverEnded: seed {found.seed} was running when the search was killed after 2 CPU s"


def test_clean_code_that_could_not_be_searched_is_not_called_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(planted: object, **_: object) -> Hunt:
        if planted is None:
            raise RuntimeError("the search failed with -9 in seed 31")
        return Hunt(is_found=True, seed=5, seeds_tried=1, cpu_s=1.0, law="a law")

    monkeypatch.setattr(control_mutants, "hunt", fails)
    (line,) = control_mutants.run(["--seed", "5", "--only", mutants.MUTANTS[0].bug])
    assert "CLEAN CODE ACCUSED: the search failed with -9 in seed 31" in line
