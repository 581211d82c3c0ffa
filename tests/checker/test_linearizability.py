"""The metadata checkers themselves: good histories pass, and each hand-made bad one is found."""

from __future__ import annotations

import random

import pytest

from tests.checker.linearizability import Operation, Outcome, State, check_history
from tests.checker.metadata_history import (
    ABSENT,
    EXISTS,
    Change,
    LocalRead,
    check_against_log,
    check_local_reads,
    check_metadata,
    topic_step,
)

OK, REFUSED, UNKNOWN = Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN


def op(
    times: tuple[float, float],
    verb: str,
    argument: str | None = None,
    *,
    outcome: Outcome = OK,
    answer: str | None = None,
    key: str = "t",
) -> Operation:
    """One operation."""
    return Operation(
        key=key, verb=verb, invoked=times[0], returned=times[1], outcome=outcome, argument=argument, answer=answer
    )


GOOD = {
    "one after the other": [op((0, 1), "create", "a"), op((2, 3), "set", "b"), op((4, 5), "read", answer="b")],
    "concurrent writes in either order": [
        op((0, 1), "create", "a"),
        op((2, 5), "set", "b"),
        op((2, 5), "set", "c"),
        op((6, 7), "read", answer="b"),
    ],
    "an unknown create that took effect": [op((0, 1), "create", "a", outcome=UNKNOWN), op((2, 3), "read", answer="a")],
    "an unknown create that did not": [op((0, 1), "create", "a", outcome=UNKNOWN), op((2, 3), "read", answer=None)],
    "an unknown delete that takes effect long after": [
        op((0, 1), "create", "a"),
        op((2, 3), "delete", outcome=UNKNOWN),
        op((4, 5), "read", answer="a"),
        op((6, 7), "read", answer=None),
    ],
    "a refusal while present": [op((0, 1), "create", "a"), op((2, 3), "create", "b", outcome=REFUSED, answer=EXISTS)],
    "a refusal that says nothing": [op((0, 1), "create", "a", outcome=REFUSED, answer="INVALID_REPLICATION_FACTOR")],
    "a probe during a create sees either": [
        op((0, 4), "create", "a"),
        op((1, 2), "probe"),
        op((3, 3.5), "probe", outcome=REFUSED, answer=EXISTS),
    ],
    "touching intervals are concurrent": [
        op((0, 1), "create", "a"),
        op((1, 2), "delete", outcome=REFUSED, answer=ABSENT),
    ],
    "keys do not see each other": [op((0, 1), "create", "a"), op((0, 1), "read", answer=None, key="u")],
}

BAD = {
    "a lost create": [op((0, 1), "create", "a"), op((2, 3), "read", answer=None)],
    "a lost set": [op((0, 1), "create", "a"), op((2, 3), "set", "b"), op((4, 5), "read", answer="a")],
    "a lost delete": [op((0, 1), "create", "a"), op((2, 3), "delete"), op((4, 5), "read", answer="a")],
    "two creates that both succeed": [op((0, 1), "create", "a"), op((2, 3), "create", "b")],
    "a stale refusal": [
        op((0, 1), "create", "a"),
        op((2, 3), "delete"),
        op((4, 5), "create", "b", outcome=REFUSED, answer=EXISTS),
    ],
    "a stale probe": [op((0, 1), "create", "a"), op((2, 3), "probe")],
    "a refused write that took effect": [
        op((0, 1), "create", "a", outcome=REFUSED, answer="BROKER_NOT_AVAILABLE"),
        op((2, 3), "read", answer="a"),
    ],
    "a refused create that was its own success": [
        op((0, 1), "create", "a", outcome=REFUSED, answer=EXISTS),
        op((2, 3), "read", answer="a"),
    ],
    "an unknown write that takes effect twice": [
        op((0, 1), "create", "a"),
        op((2, 3), "set", "b", outcome=UNKNOWN),
        op((4, 5), "read", answer="b"),
        op((6, 7), "set", "c"),
        op((8, 9), "read", answer="b"),
    ],
    "an unknown write before it was asked for": [
        op((0, 1), "create", "a"),
        op((2, 3), "read", answer="b"),
        op((4, 5), "set", "b", outcome=UNKNOWN),
    ],
    "reads that go back": [
        op((0, 1), "create", "a"),
        op((2, 9), "set", "b"),
        op((3, 4), "read", answer="b"),
        op((5, 6), "read", answer="a"),
    ],
    "two readers that see concurrent writes in two orders": [
        op((0, 1), "create", "a"),
        op((2, 9), "set", "b"),
        op((2, 9), "set", "c"),
        op((3, 4), "read", answer="b"),
        op((4.5, 5), "read", answer="c"),
        op((5.5, 6), "read", answer="b"),
    ],
    "a value from nowhere": [op((0, 1), "create", "a"), op((2, 3), "read", answer="z")],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_linearizable(name: str) -> None:
    assert check_metadata(GOOD[name]).is_linearizable


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found(name: str) -> None:
    verdict = check_metadata(BAD[name])
    assert verdict.broken
    assert not verdict.undecided
    assert verdict.broken[0].stuck, "it says where the search ended"


def test_a_search_that_outgrows_its_budget_is_no_pass() -> None:
    history = [op((0, 1), "create", "a")] + [op((2, 9), "set", f"v{index}") for index in range(12)]
    history.append(op((10, 11), "read", answer="nowhere"))
    verdict = check_history(history, step=topic_step, initial=None, budget=500)
    assert verdict.undecided
    assert not verdict.is_linearizable


def brute_force(history: list[Operation]) -> bool:
    """The definition itself: some order of all known and some unknown operations explains everything."""

    def search(left: list[Operation], state: State) -> bool:
        known = [entry for entry in left if entry.outcome is not UNKNOWN]
        if not known:
            return True
        first_return = min(entry.returned for entry in known)
        for entry in left:
            if entry.invoked <= first_return:
                is_possible, after = topic_step(state, entry)
                if is_possible and search([other for other in left if other is not entry], after):
                    return True
        return False

    return search(history, None)


def test_the_search_agrees_with_the_definition_on_random_histories() -> None:
    draw = random.Random(7)
    found = {True: 0, False: 0}
    for _ in range(600):
        history = []
        for index in range(draw.randrange(2, 7)):
            begin = draw.randrange(10)
            verb = draw.choice(["create", "delete", "set", "probe", "read"])
            outcome = draw.choice([OK, OK, REFUSED, UNKNOWN])
            answer = None
            if verb == "read":
                answer = draw.choice([None, "v0", "v1"])
            elif outcome is REFUSED:
                answer = draw.choice([EXISTS, ABSENT, "other"])
            value = f"v{index}" if verb in ("create", "set") else None
            times = (begin, begin + draw.randrange(1, 8))
            history.append(op(times, verb, value, outcome=outcome, answer=answer))
        expected = brute_force(history)
        found[expected] += 1
        assert check_metadata(history).is_linearizable is expected, "\n".join(map(str, history))
    assert min(found.values()) > 100, found


LOG = {
    "t": [Change(10, "create", "a"), Change(20, "set", "b"), Change(30, "delete", None)],
    "u": [Change(25, "create", "c")],
}


def test_what_was_acknowledged_is_committed_once_and_nothing_else_is() -> None:
    history = [op((0, 1), "create", "a"), op((2, 3), "set", "b", outcome=UNKNOWN), op((4, 5), "delete")]
    history.append(op((0, 1), "create", "c", key="u"))
    assert check_against_log(history, LOG).is_clean
    assert check_against_log([*history, op((6, 7), "delete")], LOG).lost == [op((6, 7), "delete")]
    lost = op((6, 7), "set", "gone")
    assert check_against_log([*history, lost], LOG).lost == [lost]
    assert check_against_log(history[1:], LOG).invented == ["a"]
    refused = [op((0, 1), "create", "a", outcome=REFUSED, answer=EXISTS), *history[1:]]
    assert check_against_log(refused, LOG).invented == ["a"]
    twice = LOG | {"t": [*LOG["t"], Change(40, "create", "a")]}
    assert check_against_log(history, twice).repeated == ["a"]


def test_a_local_read_is_a_prefix_that_never_shrinks() -> None:
    def read(at: float, t: str | None, u: str | None, who: str = "1") -> LocalRead:
        return LocalRead(who, at, {"t": t, "u": u})

    growing = [read(1, None, None), read(2, "a", None), read(3, "b", None), read(4, "b", "c"), read(5, None, "c")]
    assert check_local_reads(growing, LOG).is_clean
    assert check_local_reads([read(1, "a", "c")], LOG).torn, "t was b when u came"
    assert check_local_reads([read(1, "never", None)], LOG).torn, "read before it was committed"
    assert check_local_reads([read(1, "b", None), read(2, "a", None)], LOG).backwards
    assert check_local_reads([read(1, "b", None), read(2, "a", None, who="1, again")], LOG).is_clean
