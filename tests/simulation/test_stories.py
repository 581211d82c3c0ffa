"""Clean code keeps every law in every story, and the bug of a story is found in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation import node_mutants
from tests.simulation.node_mutants import MUTANTS, NodeMutant, hunt
from tests.simulation.stories import Story, StoryFailed

TOLD = [mutant for mutant in MUTANTS if mutant.story is not None]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nothing of it is worth a line."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("story", {mutant.story: None for mutant in TOLD}, ids=lambda each: each.__name__)
def test_clean_code_keeps_every_law_in_the_story(story: type[Story]) -> None:
    figures = story().run()
    assert figures.acknowledged and figures.crashes + figures.stops + figures.stalls


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", TOLD, ids=lambda each: each.bug)
def test_the_bug_of_a_story_breaks_a_law_in_it(mutant: NodeMutant) -> None:
    found = hunt(mutant.plant, seed=0, seeds=1, cpu_limit_s=node_mutants.CPU_LIMIT_S, story=mutant.story)
    assert found.is_found, found.law  # a judge that cannot read a replica's log has found it, too


def test_a_story_that_cannot_be_told_is_no_find() -> None:
    class Untold(Story):
        async def tell(self) -> None:
            raise ValueError("who was to stop is not there")

    found = hunt(lambda patch: None, seed=0, seeds=1, cpu_limit_s=1.0, story=Untold)
    assert not found.is_found and StoryFailed.__name__ in found.law
