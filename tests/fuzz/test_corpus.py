"""The short form of `make fuzz`: every seed, every input that once broke a rule, and two seconds of mutations of them."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import check_memory, fuzz_by_ourselves
from tests.fuzz.targets import CORPUS, TARGETS, seeds

BUDGET_S = 2.0


def test_every_target_has_seeds_of_real_frames() -> None:
    counts = [sum(1 for _ in target.seeds()) for target in TARGETS]
    assert counts[0] > 150 and min(counts) >= 2


def test_the_seeds_and_the_corpus_break_no_rule() -> None:
    for data in seeds():
        check_memory(data)


@pytest.mark.parametrize("seed", [1, 2])
def test_mutations_break_no_rule(seed: int) -> None:
    kept = set(CORPUS.glob("*.bin"))
    assert fuzz_by_ourselves(BUDGET_S, seed) > 100
    assert set(CORPUS.glob("*.bin")) == kept
