"""Every hand-made bad history of a share group is accused by the rule it breaks, and the clean one by none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.checker.data_history import (
    FAIL,
    FINAL,
    INFO,
    OK,
    Event,
    History,
    HistoryWriter,
    Poll,
    Send,
    read_events,
)
from tests.checker.data_rules import errors, judge
from tests.checker.share_events import ACCEPTED, REJECTED, RELEASED, DeadLetter, Delivered, Settled, ShareGroup

K = "jobs-0"
LIMIT = 3


def delivered(at: float, *records: tuple[int, int], client: str = "a") -> Delivered:
    """A poll that ended at this time."""
    return Delivered(client=client, group="g", begun=at - 0.1, ended=at, records={K: list(records)})


def settled(at: float, *offsets: tuple[int, int, str], client: str = "a", outcome: str = OK) -> Settled:
    """An acknowledgement that was answered at this time."""
    return Settled(client=client, group="g", key=K, offsets=list(offsets), begun=at - 0.1, ended=at, outcome=outcome)


def letter(offset: int, deliveries: int) -> DeadLetter:
    """A dead letter of K."""
    return DeadLetter(group="g", key=K, offset=offset, deliveries=deliveries, cause="why")


def clean() -> list[Event]:
    """Four records: accepted; released, then accepted by another; rejected; released until it is dead."""
    sends = [
        Send(client="p", key=K, value=f"v{n}", sequence=n, begun=0.1, ended=0.2, outcome=OK, offset=n) for n in range(4)
    ]
    read = [(n, f"v{n}") for n in range(4)]
    return [
        ShareGroup(group="g", topic="jobs", limit=LIMIT, lock_s=2.0, at=0.0),
        *sends,
        delivered(1.0, (0, 1), (1, 1), (2, 1), (3, 1)),
        settled(1.5, (0, 1, ACCEPTED), (1, 1, RELEASED), (2, 1, REJECTED), (3, 1, RELEASED)),
        delivered(2.0, (1, 2), (3, 2), client="b"),
        settled(2.5, (1, 2, ACCEPTED), (3, 2, RELEASED), client="b"),
        delivered(3.0, (3, 3)),
        settled(3.5, (3, 3, RELEASED)),
        letter(2, 1),
        letter(3, 3),
        Poll(client="last", how=FINAL, begun=9.0, ended=9.1, records={K: read}),
    ]


def without(event: Event) -> list[Event]:
    """The clean history but for one event."""
    return [each for each in clean() if each != event]


BAD: dict[str, tuple[str, list[Event]]] = {
    "an accepted record comes again": ("S1", [*clean(), delivered(4.0, (0, 2), client="b")]),
    "a rejected record comes again": ("S1", [*clean(), delivered(4.0, (2, 2), client="b")]),
    "a record comes again with its count forgotten": ("S1", [*clean(), delivered(60.0, (0, 1), client="b")]),
    "two are told that a record is theirs": ("S2", [*clean(), settled(4.0, (0, 1, ACCEPTED), client="b")]),
    "a fourth delivery of three": ("S3", [*clean(), delivered(4.0, (3, 4))]),
    "a record that nobody had": (
        "S4",
        [each for each in clean() if not isinstance(each, Delivered | Settled) or each.ended > 2.6],
    ),
    "a rejected record has no dead letter": ("S5", without(letter(2, 1))),
    "an exhausted record has no dead letter": ("S5", without(letter(3, 3))),
    "an accepted record is dead": ("S7", [*clean(), letter(0, 1)]),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_accused_by_the_rule_it_breaks(name: str) -> None:
    rule, events = BAD[name]
    findings = errors(judge(History(events)))
    assert {finding.rule for finding in findings} == {rule}, findings


def test_the_clean_history_is_accused_of_nothing() -> None:
    assert judge(History(clean())) == []


def test_a_delivery_that_was_long_under_way_may_come_after_the_record_was_settled() -> None:
    """Its lock had ended before the other had the record: the count shows it."""
    late = [delivered(2.8, (1, 1), client="c"), delivered(29.0, (0, 1), client="c")]
    assert judge(History([*clean(), *late])) == []


def test_an_acknowledgement_without_an_answer_settles_nothing() -> None:
    for outcome in (INFO, FAIL):
        unanswered = [replace(each, outcome=outcome) if isinstance(each, Settled) else each for each in clean()]
        assert judge(History([*unanswered, delivered(4.0, (0, 2), client="b")])) == []


def test_a_second_dead_letter_is_reported_only() -> None:
    findings = judge(History([*clean(), letter(2, 1)]))
    assert [finding.rule for finding in findings] == ["S6"]
    assert errors(findings) == []


def test_its_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path)
    for event in clean():
        writer.write(event)
    writer.close()
    assert list(read_events([path])) == clean()
