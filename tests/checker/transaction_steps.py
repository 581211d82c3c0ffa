"""What a transaction promises, in words, and a model of its steps that is small enough to be read.

May touch:  its arguments.            Must not touch: clocks, randomness, the code under test.
Invariants: the model never breaks a law of version 2.
Read next:  barnabas_simulation/transaction_model.py, the laws; transaction_examples.py, the model at work; test_transaction_model.py, bad
            histories, and the real rules beside it.

This is the executable specification: the page of the documentation (docs/generated/transactions.md) is made from it. PROMISES says in
words what the laws of `judge` demand of a history and the model keeps. Version 1 is its second variant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas_simulation.transaction_model import Write


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
