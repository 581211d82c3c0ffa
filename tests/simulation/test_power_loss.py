"""The short form of the simulated power cuts, and that they find flushes that do nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from barnabas_simulation.partition_model import LawBroken
from tests.simulation.power_loss import Form, run

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nodes that lose power have much to say."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("form", ["all", "one"])
def test_a_power_cut_loses_nothing_that_was_acknowledged(form: Form) -> None:
    done = run(form, seed=2, cycles=5)
    assert done.broken is None, f"seed {done.seed}: {done.broken!r}"
    assert done.cuts == 5 and done.acknowledged > 20


def test_flushes_that_do_nothing_lose_what_was_acknowledged() -> None:
    assert isinstance(run("lying", seed=1, cycles=40).broken, LawBroken)
