"""The checker itself: each law is broken once, and only that law is reported."""

from __future__ import annotations

from barnabas_simulation.history import Place, Verdict, judge

CLEAN = {("t", 0): [(0, 1), (1, 2)], ("t", 1): [(0, 3)]}
ACKED = {1: Place("t", 0, 0), 2: Place("t", 0, 1), 3: Place("t", 1, 0)}


def broken_laws(verdict: Verdict) -> set[str]:
    """Names of the laws that the verdict says are broken."""
    laws = ("lost", "duplicated", "misplaced", "reordered", "invented")
    return {law for law in laws if getattr(verdict, law)}


def test_a_clean_history_breaks_no_law() -> None:
    verdict = judge(sent=[1, 2, 3], acknowledged=ACKED, log=CLEAN)
    assert verdict.is_clean
    assert str(verdict).startswith("3 acknowledged, 3 in the log: lost 0")


def test_an_acknowledged_record_that_is_nowhere_is_lost() -> None:
    verdict = judge(sent=[1, 2, 3], acknowledged=ACKED, log=CLEAN | {("t", 1): []})
    assert verdict.lost == [3]
    assert broken_laws(verdict) == {"lost", "misplaced"}


def test_an_unacknowledged_record_may_be_there_or_not() -> None:
    assert judge(sent=[1, 2, 3, 4], acknowledged=ACKED, log=CLEAN).is_clean
    assert judge(sent=[1, 2, 3, 4], acknowledged=ACKED, log=CLEAN | {("t", 1): [(0, 3), (1, 4)]}).is_clean


def test_a_second_copy_is_a_duplicate_unless_the_producer_is_not_idempotent() -> None:
    twice = CLEAN | {("t", 1): [(0, 3), (1, 3)]}
    assert broken_laws(judge(sent=[1, 2, 3], acknowledged=ACKED, log=twice)) == {"duplicated"}
    assert judge(sent=[1, 2, 3], acknowledged=ACKED, log=twice, is_idempotent=False).is_clean


def test_a_record_elsewhere_than_acknowledged_is_misplaced() -> None:
    moved = CLEAN | {("t", 1): [(5, 3)]}
    assert broken_laws(judge(sent=[1, 2, 3], acknowledged=ACKED, log=moved)) == {"misplaced"}


def test_an_earlier_record_after_a_later_one_is_reordered() -> None:
    swapped = {("t", 0): [(0, 2), (1, 1)]}
    acked = {1: Place("t", 0, 1), 2: Place("t", 0, 0)}
    assert broken_laws(judge(sent=[1, 2], acknowledged=acked, log=swapped)) == {"reordered"}


def test_a_record_that_nobody_sent_is_invented() -> None:
    assert broken_laws(judge(sent=[1, 2], acknowledged={}, log=CLEAN)) == {"invented"}


def test_an_acknowledgement_that_names_no_offset_is_held_to_the_record_being_there() -> None:
    unplaced = ACKED | {3: Place("t", 1, -1)}
    assert judge(sent=[1, 2, 3], acknowledged=unplaced, log=CLEAN).is_clean
    assert broken_laws(judge(sent=[1, 2, 3], acknowledged=unplaced, log=CLEAN | {("t", 1): []})) == {"lost"}
