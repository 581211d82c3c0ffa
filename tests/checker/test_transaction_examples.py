"""The examples of the specification: version 2 keeps every promise in them, version 1 breaks those that it does not make."""

from __future__ import annotations

import pytest

from tests.checker.transaction_examples import EXAMPLES, Example, page, run
from tests.checker.transaction_steps import PROMISES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_version_2_breaks_no_law(example: Example) -> None:
    assert run(example, 2).violations == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_version_1_breaks_at_most_what_it_does_not_promise(example: Example) -> None:
    unpromised = {law for promise in PROMISES if promise.since > 1 for law in promise.laws}
    assert {violation.law for violation in run(example, 1).violations} <= unpromised


def test_the_known_hole_is_shown() -> None:
    (late,) = (example for example in EXAMPLES if any(step.is_copy for step in example.steps))
    assert {violation.law for violation in run(late, 1).violations} == {"E4", "E8"}
    refused = [row.step.is_copy for row in run(late, 2).rows if row.answer != "done"]
    assert refused == [True]


def test_the_examples_read_what_they_say() -> None:
    together, fenced, _ = (run(example, 2).rows for example in EXAMPLES)
    assert [row.read for row in together] == [(), (), (), *[("p1", "q1")] * 4]
    assert [row.offset for row in together] == [0, 0, 0, 5, 5, 5, 5]
    assert fenced[-1].read == ("p3",)
    assert [row.answer == "done" for row in fenced] == [True, True, True, False, False, True, True]


def test_the_page_has_every_promise_and_both_variants() -> None:
    text = page()
    assert all(promise.words in text for promise in PROMISES)
    assert text.count("**Version 1**") == text.count("**Version 2**") == 1
    assert "is read without" in text, "the hole is shown, not only told"
