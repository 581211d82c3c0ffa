"""The metadata of a cluster as clients saw it: topics with one config each, and what their histories must obey.

May touch:  its arguments.            Must not touch: clocks, files, processes.
Invariants: a topic is a register that is absent or holds the value of its config; every value is written at most once.
Read next:  linearizability.py, the search; tests/chaos/workload.py, which makes the histories.

Verbs and what they tell
    create(value)   OK: it was absent.             Refused "exists": it was present.
    delete          OK: it was present.            Refused "absent": it was absent.
    set(value)      OK: it was present.            Refused "absent": it was absent.
    probe           a create that is only validated, by the active controller. OK: it was absent. Refused "exists": present.
    read            OK with an answer: the value, or None when absent; asked of a node that had applied everything committed.
    Refused with anything else (no broker to place replicas on, …): no effect, and nothing said about the topic.
All of these go to the active controller, or are made when every node has caught up, and must be linearizable.

Reads from a node's own image ("local reads") may lag. They are weaker on purpose, and judged apart by `check_local_reads`:
one answer is one prefix of the committed metadata log, and the prefix never shrinks while that process lives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.checker.linearizability import HistoryVerdict, Operation, Outcome, State, check_history

EXISTS = "exists"
ABSENT = "absent"


def topic_step(state: State, operation: Operation) -> tuple[bool, State]:
    """The model of one topic; state is None (absent) or the value of its config."""
    is_present = state is not None
    if operation.verb == "read":
        return operation.outcome is not Outcome.OK or state == operation.answer, state
    if operation.outcome is Outcome.REFUSED:
        needed = {EXISTS: True, ABSENT: False}.get(operation.answer or "")
        return needed is None or needed == is_present, state
    if operation.verb == "probe":
        return operation.outcome is Outcome.UNKNOWN or not is_present, state
    wants_present = operation.verb != "create"
    if is_present != wants_present:
        # the answer would have been a refusal, which has no effect; nobody knows it of an unknown outcome
        return operation.outcome is Outcome.UNKNOWN, state
    return True, None if operation.verb == "delete" else operation.argument


def check_metadata(operations: Iterable[Operation]) -> HistoryVerdict:
    """Is the history of all topics linearizable?"""
    return check_history(operations, step=topic_step, initial=None)


class Change(NamedTuple):
    """One committed change of one topic, from the metadata log."""

    offset: int
    """Of the last record of its batch: the batch is one."""
    verb: str
    value: str | None
    """The topic's value afterwards; None = absent."""


ChangesByTopic = Mapping[str, Sequence[Change]]


class LogVerdict(NamedTuple):
    """What clients were told against what is committed."""

    lost: list[Operation]
    """Answered OK, but not in the committed log."""
    repeated: list[str]
    """Values that were committed more than once."""
    invented: list[str]
    """Committed values that no client wrote, or whose write was refused."""

    @property
    def is_clean(self) -> bool:
        """No law broken."""
        return not (self.lost or self.repeated or self.invented)

    def __str__(self) -> str:
        return f"lost {len(self.lost)}, repeated {len(self.repeated)}, invented {len(self.invented)}"


def check_against_log(operations: Iterable[Operation], changes: ChangesByTopic) -> LogVerdict:
    """Every acknowledged write is committed exactly once, and nothing is that was refused or never asked for."""
    wanted: dict[str, Operation] = {}
    acknowledged_deletes: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.argument is not None:
            wanted[operation.argument] = operation
        elif operation.verb == "delete" and operation.outcome is Outcome.OK:
            acknowledged_deletes.setdefault(operation.key, []).append(operation)
    committed: dict[str, int] = {}
    deletes: dict[str, int] = {}
    for topic, steps in changes.items():
        for change in steps:
            if change.value is not None:
                committed[change.value] = committed.get(change.value, 0) + 1
            else:
                deletes[topic] = deletes.get(topic, 0) + 1
    lost = [
        operation
        for value, operation in wanted.items()
        if operation.outcome is Outcome.OK and operation.verb != "probe" and value not in committed
    ]
    for topic, asked in acknowledged_deletes.items():
        lost += asked[deletes.get(topic, 0) :]
    return LogVerdict(
        lost=lost,
        repeated=sorted(value for value, count in committed.items() if count > 1),
        invented=sorted(
            value
            for value in committed
            if value not in wanted or wanted[value].outcome is Outcome.REFUSED or wanted[value].verb == "probe"
        ),
    )


class LocalRead(NamedTuple):
    """One answer from one node's own image."""

    incarnation: str
    """Node and process start: a process that starts again may begin with an older prefix."""
    answered: float
    values: Mapping[str, str | None]
    """Topic -> its value, None = absent; all from one image."""


class LocalReadVerdict(NamedTuple):
    """Local reads that no prefix explains."""

    reads: int
    torn: list[LocalRead]
    """No single prefix of the log holds all its values."""
    backwards: list[LocalRead]
    """Only a shorter prefix than an earlier answer of the same process explains it."""

    @property
    def is_clean(self) -> bool:
        """No law broken."""
        return not (self.torn or self.backwards)

    def __str__(self) -> str:
        return f"{self.reads} local reads: torn {len(self.torn)}, backwards {len(self.backwards)}"


def check_local_reads(reads: Iterable[LocalRead], changes: ChangesByTopic) -> LocalReadVerdict:
    """Give each read, in order, the shortest prefix that explains it and is no shorter than the one before."""
    torn: list[LocalRead] = []
    backwards: list[LocalRead] = []
    reached: dict[str, int] = {}
    count = 0
    for read in sorted(reads, key=lambda entry: entry.answered):
        count += 1
        if _shortest_prefix(read.values, changes, at_least=-1) is None:
            torn.append(read)
            continue
        prefix = _shortest_prefix(read.values, changes, at_least=reached.get(read.incarnation, -1))
        if prefix is None:
            backwards.append(read)
        else:
            reached[read.incarnation] = prefix
    return LocalReadVerdict(count, torn, backwards)


def _shortest_prefix(values: Mapping[str, str | None], changes: ChangesByTopic, *, at_least: int) -> int | None:
    """The smallest offset >= at_least at which every topic has the value that was read; None when there is none."""
    prefix = at_least
    is_settled = False
    while not is_settled:
        is_settled = True
        for topic, value in values.items():
            steps = changes.get(topic, ())
            position = bisect_right(steps, prefix, key=lambda change: change.offset)
            present = steps[position - 1].value if position else None
            if present == value:
                continue
            later = next((step.offset for step in steps[position:] if step.value == value), None)
            if later is None:
                return None
            prefix = later
            is_settled = False
    return prefix
