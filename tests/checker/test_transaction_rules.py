"""Every hand-made bad history of transactions is accused by the rule it breaks, and the clean one by none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.checker.data_history import (
    ASSIGNED,
    FAIL,
    FINAL,
    INFO,
    OK,
    Committed,
    Event,
    History,
    HistoryWriter,
    Poll,
    Send,
    decode,
    encode,
    read_events,
)
from tests.checker.data_rules import errors, judge
from tests.checker.transaction_events import Held, Taken, Transaction, Written

SOURCE, TARGET, OTHER = "in-0", "out-0", "out-1"
INPUTS = [(offset, f"in{offset}") for offset in range(4)]


def transaction(
    number: int, *offsets: int, outcome: str = OK, attempt: int = 1, owner: int = 1, **more: object
) -> Transaction:
    """Copies the inputs at these offsets, with a note of each in another partition. Its end is asked for at 10 times its number."""
    writes = [
        Written(key, f"in{offset}~{key}.{attempt}", 10 * number + offset, at)
        for offset in offsets
        for key, at in ((TARGET, offset + number), (OTHER, offset + number))
    ]
    made = Transaction(
        transactional_id="copier",
        owner=owner,
        number=number,
        writes=writes,
        begun=10.0 * number - 5,
        asked=10.0 * number,
        ended=10.0 * number + 1,
        outcome=outcome,
        consumed=[f"in{offset}" for offset in offsets for _ in (0, 1)],
        source=[SOURCE, ""] * len(offsets),
        offsets={SOURCE: max(offsets) + 1},
        group="copiers",
    )
    return replace(made, **more)  # type: ignore[arg-type]


FIRST, ABORTED = transaction(1, 0, 1), transaction(2, 2, outcome=FAIL)
SECOND = transaction(3, 2, 3, attempt=2, opened=26.0)
LATE = Held(transactional_id="copier", is_commit=False, came=20.0, went=27.0, answer=0)
SEEN = {
    key: [(w.offset, w.value) for t in (FIRST, SECOND) for w in t.writes if w.key == key] for key in (TARGET, OTHER)
}


def poll(at: float, *, how: str = FINAL, client: str = "last", **records: list[tuple[int, str]]) -> Poll:
    """One call; partitions as in_0, out_0 and out_1."""
    shown = {key.replace("_", "-"): found for key, found in records.items()}
    return Poll(client=client, how=how, begun=at, ended=at + 0.1, records=shown)


def history(
    *transactions: Transaction,
    out_0: list[tuple[int, str]] = SEEN[TARGET],
    out_1: list[tuple[int, str]] = SEEN[OTHER],
    stands: int = 4,
    more: tuple[Event, ...] = (),
) -> list[Event]:
    """What was sent, written, and read in the end."""
    sends = [
        Send(client="p", key=SOURCE, value=value, sequence=offset, begun=0.0, ended=1.0, outcome=OK, offset=offset)
        for offset, value in INPUTS
    ]
    return [
        *sends,
        Taken(transactional_id="copier", owner=1, at=2.0),
        *(transactions or (FIRST, ABORTED, SECOND)),
        poll(90.0, in_0=INPUTS, out_0=out_0, out_1=out_1),
        Committed(client="last", group="copiers", key=SOURCE, offset=stands, begun=91.0, ended=91.1),
        *more,
    ]


UNKNOWN = replace(SECOND, outcome=INFO, ended=float("inf"))
BACKWARDS = [SEEN[TARGET][1], SEEN[TARGET][0], *SEEN[TARGET][2:]]
BAD: dict[str, tuple[str, list[Event]]] = {
    "what was aborted is read": ("E4", history(FIRST, replace(SECOND, outcome=FAIL))),
    "a copy of what was aborted": (
        "E4c",
        history(
            more=(transaction(5, 2, consumed=[ABORTED.writes[0].value], source=[TARGET], group="next", offsets={}),)
        ),
    ),
    "read before its commit was asked for": (
        "E5",
        history(more=(poll(9.0, how=ASSIGNED, client="r", out_0=SEEN[TARGET][:1]),)),
    ),
    "nothing ever asked for the commit of what is read": (
        "E5",
        history(FIRST, replace(SECOND, outcome=INFO, asked=float("inf"))),
    ),
    "a record of a transaction is missing": ("E8", history(out_1=SEEN[OTHER][:-1])),
    "a partition of a transaction is missing": ("E8", history(FIRST, UNKNOWN, out_1=SEEN[OTHER][:2])),
    "output without its offsets": ("E9", history(stands=2)),
    "output, and no offsets at all": ("E9", [e for e in history() if not isinstance(e, Committed)]),
    "offsets without their output": (
        "E9",
        history(FIRST, replace(SECOND, outcome=FAIL), out_0=SEEN[TARGET][:2], out_1=SEEN[OTHER][:2]),
    ),
    "an input is copied twice": (
        "E9c",
        history(FIRST, ABORTED, SECOND, transaction(4, 3, attempt=3), out_0=[*SEEN[TARGET], (7, "in3~out-0.3")]),
    ),
    "an input is never copied": (
        "E9c",
        history(FIRST, transaction(3, 3, attempt=2), out_0=[*SEEN[TARGET][:2], SEEN[TARGET][3]]),
    ),
    "copies are in another order": ("E9c", history(out_0=BACKWARDS)),
    "two transactions are made from each other": (
        "E11",
        history(
            replace(FIRST, consumed=[SECOND.writes[0].value]),
            ABORTED,
            replace(SECOND, consumed=[FIRST.writes[0].value]),
        ),
    ),
    "an end that is late by a transaction is accepted": ("E15l", history(more=(LATE,))),
    "what a fenced producer ended is read": (
        "E15",
        history(more=(Taken(transactional_id="copier", owner=2, at=29.0),)),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_accused_by_the_rule_it_breaks(name: str) -> None:
    rule, events = BAD[name]
    findings = errors(judge(History(events)))
    assert rule in {finding.rule for finding in findings}, findings


@pytest.mark.parametrize(
    "events",
    [
        history(),
        history(FIRST, ABORTED, UNKNOWN),
        history(replace(FIRST, outcome=FAIL, asked=float("inf")), FIRST, ABORTED, SECOND),
        history(more=(Taken(transactional_id="copier", owner=2, at=31.5),)),
        history(more=(replace(LATE, answer=90),)),
        history(more=(replace(LATE, went=25.5), replace(LATE, went=30.5), replace(LATE, came=25.5))),
        history(more=(poll(10.5, how=ASSIGNED, client="r", out_0=SEEN[TARGET][:1]),)),
    ],
    ids=[
        "all answered",
        "one commit without an answer",
        "the last word counts",
        "taken afterwards",
        "a late end is refused",
        "ends that were not late by a transaction",
        "read while it commits",
    ],
)
def test_a_history_that_the_model_explains_is_accused_of_nothing(events: list[Event]) -> None:
    assert judge(History(events)) == []


def test_what_is_asked_for_and_not_read_is_no_loss() -> None:
    read = {"out_0": SEEN[TARGET][:2], "out_1": SEEN[OTHER][:2]}
    found = {finding.rule for finding in judge(History(history(FIRST, UNKNOWN, stands=2, **read)))}  # type: ignore[arg-type]
    assert found == {"E9c"}, "the copy has not ended; nothing else is wrong"


def test_transactions_are_not_judged_before_the_last_reader() -> None:
    before = [event for event in history() if not isinstance(event, Poll | Committed)]
    assert {finding.rule for finding in judge(History(before))} <= {"E1", "E10", "E9c"}


@pytest.mark.parametrize(
    "event",
    [
        FIRST,
        ABORTED,
        Taken(transactional_id="copier", owner=1, at=2.0),
        Held(transactional_id="c", is_commit=True, came=1.0, went=2.0, answer=90),
    ],
    ids=lambda event: event.kind,
)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    assert decode(encode(event)) == event


def test_a_line_that_a_process_was_killed_in_is_none(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "history")
    writer.write(FIRST)
    writer.flush()
    with (tmp_path / "history").open("a") as stream:
        stream.write(encode(SECOND)[:40])
    assert list(read_events([tmp_path / "history"])) == [FIRST]
    writer.close()
