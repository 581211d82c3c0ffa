"""What a transaction promises: a model small enough to be read, and the laws by which a history is judged.

May touch:  its arguments.            Must not touch: clocks, randomness, the code under test.
Invariants: the model never breaks a law of version 2; a history that breaks one is one that no order of these steps explains.
Read next:  tests/checker/transaction_examples.py, the model at work; test_transaction_model.py, bad histories, and the real rules
            beside it.

This is the executable specification: the simulator, the checker of real histories and the page of the documentation
(docs/generated/transactions.md) are made from it. PROMISES says in words what the laws of `judge` demand of a history and the model
keeps. Version 1 is its second variant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

NAMED_MAX = 6
"""Values that a violation names."""


class Promise(NamedTuple):
    """One thing that a transaction promises."""

    name: str
    words: str
    laws: tuple[str, ...]
    """Those of `judge` that find a history in which it was broken."""
    since: int = 1
    """The first transaction.version that keeps it."""


PROMISES = (
    Promise(
        "all or nothing",
        "what was written under one transaction is read, all of it, by those who read committed data, or none of it",
        ("E8",),
    ),
    Promise(
        "decided once",
        "a commit that was acknowledged is read, an abort that was acknowledged is not; one without an answer is either",
        ("E1", "E4"),
    ),
    Promise(
        "once and in order",
        "a value is read once, and those of one producer in one partition in the order in which they were written",
        ("E2", "E7"),
    ),
    Promise(
        "offsets and output together",
        "what a transaction says it has consumed counts if and only if what it wrote is read",
        ("E9",),
    ),
    Promise(
        "one owner",
        "when a producer has taken a transactional id, nothing that an earlier one began or ended afterwards is read",
        ("E15",),
    ),
    Promise(
        "made from the past",
        "no transaction is made from what, in the end, was made from it",
        ("E11",),
    ),
    Promise(
        "no late message joins the next transaction",
        "each request means one transaction, however late a copy of it comes",
        ("E4", "E8"),
        since=2,
    ),
)
KNOWN_HOLE = (
    "A producer of version 1 has one epoch for all its transactions, so a copy of a request that was late by one transaction means the "
    "next one: a late commit commits it half-written, a late abort undoes it. That is Kafka's own hole before KIP-890, and no broker "
    "can close it for clients that do not speak version 2."
)


class Outcome(Enum):
    """What a client knows of the end of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Also: refused, or never tried."""
    UNKNOWN = "unknown"


class Write(NamedTuple):
    """One value, which nobody writes twice."""

    partition: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction as its client saw it."""

    transactional_id: str
    owner: int
    """Which initialization of the transactional id it belongs to; they rise."""
    writes: tuple[Write, ...]
    """Those that were acknowledged, in their order."""
    consumed: tuple[str, ...] = ()
    """Values that it was made from."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """By input partition, where its group goes on if it commits."""
    outcome: Outcome
    ended_at: float
    """When the client asked for its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionHistory:
    """Transactions, and what was read of them when everything was over, up to the end of each partition."""

    transactions: Sequence[Transaction]
    taken_at: Mapping[tuple[str, int], float]
    """By transactional id and owner: when its initialization was acknowledged."""
    read: Mapping[str, Sequence[str]]
    """By partition, the values that a reader of committed data found."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """By input partition, where the group stands."""


class Violation(NamedTuple):
    """A law, and what breaks it."""

    law: str
    what: str


def judge(history: TransactionHistory) -> list[Violation]:
    """Every violation; none: the model explains the history."""
    read = {value for values in history.read.values() for value in values}
    return [
        *_torn(history, read),
        *_undecided(history, read),
        *_repeated(history),
        *_out_of_order(history),
        *_offsets_apart(history, read),
        *_fenced(history, read),
        *_circular(history, read),
    ]


def _torn(history: TransactionHistory, read: set[str]) -> Iterator[Violation]:
    for transaction in history.transactions:
        missing = [write.value for write in transaction.writes if write.value not in read]
        if missing and len(missing) < len(transaction.writes):
            yield Violation("E8", f"{_name(transaction)} is read without {_some(missing)}")


def _undecided(history: TransactionHistory, read: set[str]) -> Iterator[Violation]:
    for transaction in history.transactions:
        seen = [write.value for write in transaction.writes if write.value in read]
        if transaction.outcome is Outcome.ABORTED and seen:
            yield Violation("E4", f"{_name(transaction)} was aborted, and {_some(seen)} are read")
        if transaction.outcome is Outcome.COMMITTED and transaction.writes and not seen:
            yield Violation("E1", f"{_name(transaction)} was committed, and nothing of it is read")


def _repeated(history: TransactionHistory) -> Iterator[Violation]:
    counts = Counter(value for values in history.read.values() for value in values)
    for value, count in sorted(counts.items()):
        if count > 1:
            yield Violation("E2", f"{value} is read {count} times")


def _out_of_order(history: TransactionHistory) -> Iterator[Violation]:
    places: dict[str, int] = {}
    for values in history.read.values():
        for place, value in enumerate(values):
            places.setdefault(value, place)
    last: dict[tuple[str, int, str], tuple[int, str]] = {}
    for transaction in history.transactions:
        for partition, value in transaction.writes:
            if value not in places:
                continue
            key = (transaction.transactional_id, transaction.owner, partition)
            before = last.get(key)
            if before is not None and places[value] < before[0]:
                yield Violation("E7", f"{value} is read before {before[1]}, which was written first")
            last[key] = places[value], value


def _offsets_apart(history: TransactionHistory, read: set[str]) -> Iterator[Violation]:
    """Where a group stands, some visible transaction put it, and none put it further. One that wrote nothing may have done so."""
    for partition in sorted({name for transaction in history.transactions for name in transaction.offsets}):
        stands = history.offsets.get(partition, 0)
        visible = [
            transaction.offsets[partition]
            for transaction in history.transactions
            if partition in transaction.offsets and _is_visible(transaction, read)
        ]
        silent = [
            transaction.offsets[partition]
            for transaction in history.transactions
            if partition in transaction.offsets and not transaction.writes and transaction.outcome is Outcome.UNKNOWN
        ]
        furthest = max(visible, default=0)
        if stands < furthest:
            yield Violation("E9", f"{partition}: output up to {furthest} is read, and the group stands at {stands}")
        elif stands > furthest and stands not in silent:
            yield Violation("E9", f"{partition}: the group stands at {stands}, and output is read up to {furthest}")


def _is_visible(transaction: Transaction, read: set[str]) -> bool:
    if not transaction.writes:
        return transaction.outcome is Outcome.COMMITTED
    return any(write.value in read for write in transaction.writes)


def _fenced(history: TransactionHistory, read: set[str]) -> Iterator[Violation]:
    for transaction in history.transactions:
        name, owner = transaction.transactional_id, transaction.owner
        later = [
            taken_at
            for (other, other_owner), taken_at in history.taken_at.items()
            if other == name and other_owner > owner
        ]
        if later and transaction.ended_at > min(later) and _is_visible(transaction, read):
            yield Violation(
                "E15", f"{_name(transaction)} was ended after a later producer had taken {name}, and is read"
            )


def _circular(history: TransactionHistory, read: set[str]) -> Iterator[Violation]:
    """G1c on what was consumed: no transaction is made from what, in the end, was made from it."""
    writer = {
        write.value: index
        for index, transaction in enumerate(history.transactions)
        for write in transaction.writes
        if write.value in read
    }
    follows = {
        index: {writer[value] for value in transaction.consumed if value in writer}
        for index, transaction in enumerate(history.transactions)
    }
    settled: set[int] = set()
    while True:
        free = {index for index, sources in follows.items() if index not in settled and sources <= settled}
        if not free:
            break
        settled |= free
    for index in sorted(follows.keys() - settled):
        yield Violation("E11", f"{_name(history.transactions[index])} was made from what was made from it")


def _name(transaction: Transaction) -> str:
    wrote = _some([write.value for write in transaction.writes])
    return f"the transaction of {transaction.transactional_id} (owner {transaction.owner}) that wrote {wrote}"


def _some(values: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(values) - NAMED_MAX} more" if len(values) > NAMED_MAX else ""
    return f"{values[:NAMED_MAX]}{more}"


# ---- the model -------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The request changes nothing."""


class Request(NamedTuple):
    """A request as its client means it; a copy of it may arrive at any time."""

    transactional_id: str
    owner: int
    number: int
    """Of the transaction, counted by its client."""
    writes: tuple[Write, ...] = ()
    offsets: tuple[tuple[str, int], ...] = ()
    is_commit: bool | None = None
    """Set: it is the end."""


@dataclass(slots=True)
class _Open:
    number: int
    writes: list[Write] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)


class TransactionModel:
    """What all brokers together are, to a client: one place where each request happens at once, or not at all."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.read: dict[str, list[str]] = {}
        self.offsets: dict[str, int] = {}
        self._owners: dict[str, int] = {}
        self._open: dict[str, _Open] = {}
        self._ended: dict[str, tuple[int, bool]] = {}
        """By transactional id: the last transaction that was ended, and how."""

    def initialize(self, transactional_id: str) -> int:
        """Take a transactional id; an open transaction is aborted. Returns the owner."""
        self._open.pop(transactional_id, None)
        self._ended.pop(transactional_id, None)
        self._owners[transactional_id] = self._owners.get(transactional_id, 0) + 1
        return self._owners[transactional_id]

    def handle(self, request: Request) -> None:
        """A request, or a copy of one, arrives. Raises Refused."""
        name = request.transactional_id
        if request.owner != self._owners.get(name):
            raise Refused("a later producer has the transactional id")
        ended = self._ended.get(name)
        if self.version >= 2 and ended is not None and request.number <= ended[0]:
            if request.number == ended[0] and request.is_commit == ended[1] and name not in self._open:
                return  # a repeat of the last end: answered, and nothing else
            raise Refused("that transaction is over")
        if request.is_commit is None:
            opened = self._open.setdefault(name, _Open(request.number))
            opened.writes += [write for write in request.writes if write not in opened.writes]
            opened.offsets |= dict(request.offsets)
            return
        if name not in self._open:
            if ended is not None and ended[1] == request.is_commit:
                return
            if self.version < 2 or request.is_commit:
                raise Refused("there is nothing to end")
            self._open[name] = _Open(request.number)
        over = self._open.pop(name)
        self._ended[name] = (request.number, request.is_commit)
        if request.is_commit:
            for partition, value in over.writes:
                self.read.setdefault(partition, []).append(value)
            self.offsets |= over.offsets
