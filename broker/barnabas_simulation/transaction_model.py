"""What a transaction promises, as laws by which a history is judged.

May touch:  its arguments.            Must not touch: clocks, randomness, the code under test.
Invariants: a history that breaks a law is one that no order of the steps of transaction.version 2 explains.
Read next:  transactions.py, whose histories are judged; tests/checker/transaction_steps.py, the promises in words and the model of the
            steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from barnabas_wire.lazy_dataclass import dataclass

NAMED_MAX = 6
"""Values that a violation names."""


class Outcome(Enum):
    """What a client knows of the end of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Also: refused, or never tried."""
    UNKNOWN = "unknown"


class Write(NamedTuple):
    """One value, which is never written twice."""

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
    """By input partition, the offset that its group continues from if it commits."""
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
    """By input partition, the group's committed offset."""


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
    """The offset of a group was set by some visible transaction, and none set it further. One that wrote nothing may
    have done so."""
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
