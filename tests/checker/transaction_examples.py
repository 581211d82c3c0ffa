"""The model at work: short courses of events in both variants, which the documentation shows and a test judges.

May touch:  the model.                Must not touch: the code under test.
Invariants: what is shown is what the model did, never what somebody wrote down; each example says which promises it is about.
Read next:  transaction_steps.py; docs/generate.py, which makes a page of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas_simulation.transaction_model import Outcome, Transaction, TransactionHistory, Violation, Write, judge
from tests.checker.transaction_steps import KNOWN_HOLE, PROMISES, Refused, Request, TransactionModel

ID = "orders"
INPUT = "in"


class Step(NamedTuple):
    """Something that reaches the brokers. number 0: a producer takes the transactional id."""

    words: str
    owner: int
    number: int = 0
    writes: tuple[Write, ...] = ()
    offset: int | None = None
    is_commit: bool | None = None
    is_copy: bool = False
    """Whether it comes late, for a second time: its client has had the answer."""


class Example(NamedTuple):
    """A course of events."""

    name: str
    words: str
    steps: Sequence[Step]


class Row(NamedTuple):
    """What a step did."""

    step: Step
    answer: str
    read: tuple[str, ...]
    """What a reader of committed data finds afterwards."""
    offset: int
    """Where the group stands."""


class Course(NamedTuple):
    """An example in one variant."""

    rows: list[Row]
    violations: list[Violation]


def _a(name: str) -> Write:
    return Write(name[0], name)


EXAMPLES = (
    Example(
        "Output and offsets become visible together",
        "Nothing is read before the commit, whatever was written; then all of it, with the offsets.",
        (
            Step("a producer takes the id", 1),
            Step("writes to p and q", 1, 1, (_a("p1"), _a("q1"))),
            Step("says that it has consumed up to 5", 1, 1, offset=5),
            Step("commits", 1, 1, is_commit=True),
            Step("writes to p, in its next transaction", 1, 2, (_a("p2"),)),
            Step("says that it has consumed up to 9", 1, 2, offset=9),
            Step("aborts", 1, 2, is_commit=False),
        ),
    ),
    Example(
        "A new owner fences the old one",
        "A producer that was taken for dead wakes up: what it had begun is gone, and nothing that it does counts.",
        (
            Step("a producer takes the id", 1),
            Step("writes to p", 1, 1, (_a("p1"),)),
            Step("another producer takes the id", 2),
            Step("the old one writes on", 1, 1, (_a("p2"),)),
            Step("the old one commits", 1, 1, is_commit=True),
            Step("the new one writes to p", 2, 1, (_a("p3"),)),
            Step("the new one commits", 2, 1, is_commit=True),
        ),
    ),
    Example(
        "An end that comes late by one transaction",
        "The network delivers a copy of the first commit in the middle of the second transaction. Its producer then aborts.",
        (
            Step("a producer takes the id", 1),
            Step("writes to p", 1, 1, (_a("p1"),)),
            Step("commits", 1, 1, is_commit=True),
            Step("writes to p, in its next transaction", 1, 2, (_a("p2"),)),
            Step("the first commit, once more", 1, 1, is_commit=True, is_copy=True),
            Step("writes to q", 1, 2, (_a("q2"),)),
            Step("aborts", 1, 2, is_commit=False),
        ),
    ),
)


def run(example: Example, version: int) -> Course:
    """What the model of this transaction.version does, and which laws the history breaks that its client could write of it."""
    model = TransactionModel(version)
    rows: list[Row] = []
    transactions: dict[tuple[int, int], Transaction] = {}
    taken_at: dict[tuple[str, int], float] = {}
    for clock, step in enumerate(example.steps):
        answer = "done"
        if not step.number:
            assert model.initialize(ID) == step.owner
            taken_at[ID, step.owner] = float(clock)
        else:
            offsets = () if step.offset is None else ((INPUT, step.offset),)
            try:
                model.handle(Request(ID, step.owner, step.number, step.writes, offsets, step.is_commit))
            except Refused as refused:
                answer = f"refused: {refused}"
            if not step.is_copy:
                _note(transactions, step, clock, is_done=answer == "done")
        visible = tuple(value for partition in sorted(model.read) for value in model.read[partition])
        rows.append(Row(step, answer, visible, model.offsets.get(INPUT, 0)))
    history = TransactionHistory(
        transactions=list(transactions.values()), taken_at=taken_at, read=model.read, offsets=model.offsets
    )
    return Course(rows, judge(history))


def _note(transactions: dict[tuple[int, int], Transaction], step: Step, clock: int, *, is_done: bool) -> None:
    """What its client knows of a transaction after a step."""
    before = transactions.get((step.owner, step.number))
    offsets = dict(before.offsets) if before else {}
    if step.offset is not None and is_done:
        offsets[INPUT] = step.offset
    is_committed = step.is_commit is True and is_done
    transactions[step.owner, step.number] = Transaction(
        transactional_id=ID,
        owner=step.owner,
        writes=(*(before.writes if before else ()), *(step.writes if is_done else ())),
        offsets=offsets,
        outcome=Outcome.COMMITTED if is_committed else Outcome.ABORTED,
        ended_at=float(clock),
    )


# ---- the page --------------------------------------------------------------------------------------------------------


def page() -> str:
    """The specification for readers, in Markdown."""
    promises = "\n".join(
        f"| {promise.name} | {promise.words} | {', '.join(promise.laws)} | {promise.since} |" for promise in PROMISES
    )
    parts = [
        "# What a transaction promises\n",
        "This page is made from an executable specification: `tests/checker/transaction_steps.py` has the promises in words and a "
        "small model of all brokers together that keeps them, `broker/barnabas_simulation/transaction_model.py` laws that judge a "
        "history by them. The same laws judge the whole-node simulation and the histories of real clients under faults "
        "(`make chaos-data`), and the "
        "coordinator's own rules run beside it, request by request, in the tests.\n",
        "| promise | in words | laws | since `transaction.version` |\n|---|---|---|---|\n" + promises + "\n",
        "Readers with `isolation.level=read_committed` have these promises; others see everything that was written.\n",
        f"## What version 1 does not promise\n\n{KNOWN_HOLE} A new cluster has version 2; one that was upgraded gets it with "
        "`barnabas cluster features upgrade -f transaction.version=2`, and Java clients of Kafka 4 use it. librdkafka and older clients "
        "speak version 1 to either.\n",
    ]
    for example in EXAMPLES:
        parts.append(f"## {example.name}\n\n{example.words}\n")
        courses = {version: run(example, version) for version in (2, 1)}
        if courses[1] == courses[2]:
            parts += _course("Both variants", courses[2])
        else:
            for version, course in courses.items():
                parts += _course(f"Version {version}", course)
    return "\n".join(parts)


def _course(title: str, course: Course) -> list[str]:
    rows = "\n".join(
        f"| {row.step.words} | {row.answer} | {' '.join(row.read) or '–'} | {row.offset or '–'} |"
        for row in course.rows
    )
    verdict = "; ".join(f"{law}: {what}" for law, what in course.violations) or "no law is broken"
    return [
        f"**{title}** ({verdict}):\n",
        f"| what reaches the brokers | answer | read as committed | group stands at |\n|---|---|---|---|\n{rows}\n",
    ]
