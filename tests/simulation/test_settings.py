"""A minimum that rises while its leader hears late of the metadata: the story of late_leader.py, with clean code and with the bug."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from barnabas_simulation.partition_model import LawBroken
from barnabas_wire.error_groups import leaves
from tests.simulation.late_leader import ROUNDS, LateLeader
from tests.simulation.node_mutants import MUTANTS


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nothing of it is worth a line."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_nothing_is_committed_by_a_minimum_that_has_risen_since() -> None:
    figures = LateLeader().run()
    assert figures.acknowledged > 20 and figures.crashes == ROUNDS


@pytest.mark.filterwarnings("ignore")
def test_the_law_of_who_may_be_elected_finds_an_isr_that_is_judged_by_the_settings_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bug = next(each for each in MUTANTS if each.bug == "an ISR is judged by the settings before it")
    bug.plant(monkeypatch)
    with pytest.raises((LawBroken, ExceptionGroup)) as broken:
        LateLeader().run()
    assert any("P1" in str(each) for each in leaves(broken.value))
