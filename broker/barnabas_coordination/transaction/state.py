"""One transactional id: what state it may be in, and which request may change it to which other. The rules of transactions.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a status follows only one that LEGAL names; an ending's producer epoch is that of its markers; once an ending is
            decided nothing but its completion follows; with transaction.version 2 no two transactions share a producer epoch.
Read next:  shard.py, which keeps these states and writes each change; records.py for their bytes.

    EMPTY ──add──► ONGOING ──end──► PREPARE_COMMIT ──all markers──► COMPLETE_COMMIT ──add──► ONGOING …
                      │  └───end──► PREPARE_ABORT  ──all markers──► COMPLETE_ABORT
                      ├─fence─► PREPARE_EPOCH_FENCE ─► PREPARE_ABORT      (time-out, or another producer took the id)
                      └─prepare─► PREPARED ──end──► PREPARE_COMMIT or PREPARE_ABORT, and nothing else

PREPARED is ours, not Kafka's (KIP-939 keeps no such state): the producer has written all and leaves the outcome to another, whatever
becomes of itself. A prepared transaction has no time-out, takes no more partitions and keeps its transactional id from every other
producer; it ends by an end with its own epoch alone.

PREPARE is the commit point: what it says happens, whoever coordinates. PREPARE_EPOCH_FENCE is never written: it is the half step in
which the epoch rises before an abort that no producer asked for.

Not obvious:
- transaction.version 2 (KIP-890): the epoch rises with every end, so a request or a batch of transaction n cannot land in n+1.
  A repeat of the last end therefore comes with the epoch before, and a second end with the same epoch is another request.
- An end is answered before its markers are written, so all that its producer asks next may come while it is ending, an abort of
  nothing too: each is CONCURRENT_TRANSACTIONS, for the producer that continues, be it under the next producer id. Kafka
  answers so to every producer; here one that was fenced hears it at once.
- Epochs end at EPOCH_MAX. One below it is the last that a producer gets, so that it can always be fenced; then another producer
  id follows: at once in the answer to an end (`next_producer_id`), else at the next initialization.
- `last_producer_epoch` is not in the log (Kafka's format): a repeated initialization across a fail-over is fenced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas_coordination.transaction.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
)
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.lazy_dataclass import dataclass

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
EPOCH_MAX: Final = 2**15 - 1
EPOCH_LAST: Final = EPOCH_MAX - 1
"""The highest epoch that a producer is given; the one above is for fencing it."""
CLASSIC: Final = 0
"""Version of a client that ends its transactions with the epoch it began them with (transaction.version 0 and 1)."""
EPOCH_PER_TRANSACTION: Final = 2
"""The first transaction.version in which every end raises the epoch, and writes add their partitions themselves."""
PARTITIONS_NAMED: Final = 8
"""Most partitions that a repr names."""


class TransactionStatus(IntEnum):
    """The state of a transactional id; the numbers are those of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    PREPARED = 8

    @property
    def title(self) -> str:
        """As Kafka's tools spell it."""
        return _TITLES[self]


_TITLES: Final = {status: status.name.title().replace("_", "") for status in TransactionStatus}
BY_TITLE: Final = {title: status for status, title in _TITLES.items()}

_S = TransactionStatus
AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open."""
ENDING: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The outcome is decided, and markers are on their way."""
OPEN: Final = frozenset({_S.ONGOING, _S.PREPARED})
"""Records are written, and it is not decided what becomes of them."""

LEGAL: Final[Mapping[TransactionStatus, frozenset[TransactionStatus]]] = MappingProxyType(
    {
        _S.EMPTY: AT_REST,
        _S.ONGOING: AT_REST | {_S.ONGOING},
        _S.PREPARE_COMMIT: OPEN,
        # from rest: an abort of transaction.version 2, which may come before anything was written
        _S.PREPARE_ABORT: AT_REST | OPEN | {_S.PREPARE_EPOCH_FENCE},
        _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
        _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
        _S.DEAD: AT_REST,
        _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
        _S.PREPARED: frozenset({_S.ONGOING}),
    }
)
"""Status -> those it may follow."""


class ProducerIdNeeded(Exception):
    """The rule needs a producer id that was never given out: ask again with one. Never leaves the coordinator."""


class Producer(NamedTuple):
    """A producer as a request names it, or as it is to continue."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """A transactional id at one moment."""

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change."""
    next_producer_id: int = NO_PRODUCER_ID
    """While ending: the id that the producer continues with, because the epochs of `producer_id` are used up."""
    producer_epoch: int
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before, where its owner itself went on from it: a repeat of that request is known by it."""
    timeout_ms: int
    status: TransactionStatus
    partitions: frozenset[TopicPartition] = frozenset()
    """Written to by the open transaction; while ending, those whose marker is due."""
    start_ms: int = NO_TIMESTAMP
    update_ms: int
    client_version: int = CLASSIC
    """transaction.version that the client spoke."""

    def __repr__(self) -> str:
        words = [f"{self.status.title} {self.producer_id}/{self.producer_epoch}"]
        words += [f"next={self.next_producer_id}"] if self.next_producer_id >= 0 else []
        words += map(str, sorted(self.partitions)[:PARTITIONS_NAMED])
        words += [f"and {more} more"] if (more := len(self.partitions) - PARTITIONS_NAMED) > 0 else []
        words += [f"since={self.start_ms}"] if self.start_ms != NO_TIMESTAMP and self.partitions else []
        return " ".join(words)

    @property
    def producer(self) -> Producer:
        """The producer that runs it; while ending, the one that the markers name."""
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def goes_on(self) -> Producer:
        """The producer that runs the next transaction. While ending its producer may know that already: it was told
        with the decision."""
        if self.client_version >= EPOCH_PER_TRANSACTION and self.next_producer_id != NO_PRODUCER_ID:
            return Producer(self.next_producer_id, 0)
        return self.producer

    @property
    def is_exhausted(self) -> bool:
        """Whether no further epoch of this producer id can be given out."""
        return self.producer_epoch >= EPOCH_LAST

    @property
    def is_commit(self) -> bool:
        """Whether the decided end is a commit."""
        return self.status is _S.PREPARE_COMMIT

    def is_timed_out(self, *, now_ms: int) -> bool:
        """Whether the transaction has been open longer than its producer asked for; a prepared one waits for its decision."""
        return self.status is _S.ONGOING and self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, *, now_ms: int, expiration_ms: int) -> bool:
        """Whether the transactional id may be forgotten."""
        return self.status in LEGAL[_S.DEAD] and self.update_ms + expiration_ms <= now_ms

    def with_partitions(self, partitions: frozenset[TopicPartition]) -> TransactionState:
        """The same with other partitions, for those who show it."""
        return replace(self, partitions=partitions)

    def _to(self, status: TransactionStatus, *, now_ms: int, **changes: object) -> TransactionState:
        if self.status not in LEGAL[status]:
            raise InvariantViolated(f"a transaction in {self.status.title} cannot become {status.title}")
        return replace(self, status=status, previous_producer_id=self.producer_id, update_ms=now_ms, **changes)  # type: ignore[arg-type]


# ---- InitProducerId --------------------------------------------------------------------------------------------------


def initialize(
    state: TransactionState | None,
    *,
    timeout_ms: int,
    expected: Producer | None,
    fresh_producer_id: int | None,
    server_version: int,
    now_ms: int,
) -> TransactionState:
    """The state after InitProducerId. Is it PREPARE_ABORT, then an open transaction is in the way and is aborted first.

    Args:
        state: None for a transactional id that is not known.
        expected: what the producer had, when it continues after an error (KIP-360).
        fresh_producer_id: one never given out, None at the first try.
        server_version: the cluster's transaction.version.

    Raises PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE (it is prepared), ProducerIdNeeded.
    """
    if state is None:
        if fresh_producer_id is None:
            raise ProducerIdNeeded
        return TransactionState(
            producer_id=fresh_producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            status=_S.EMPTY,
            update_ms=now_ms,
        )
    if expected is not None and not _may_go_on(state, expected):
        raise ProducerFenced(f"another producer has this transactional id; {expected} is not {state.producer}")
    if state.status in ENDING:
        raise _is_being_ended()
    if state.status is _S.PREPARED:
        raise _is_prepared(state)
    if state.status is _S.ONGOING:
        return fence(state, server_version=server_version, now_ms=now_ms)
    rest = {
        "timeout_ms": timeout_ms,
        "partitions": frozenset(),
        "start_ms": NO_TIMESTAMP,
        "next_producer_id": NO_PRODUCER_ID,
    }
    if expected is not None and expected.epoch != state.producer_epoch:
        if expected.epoch != state.last_producer_epoch:
            raise ProducerFenced(f"epoch {expected.epoch} is fenced, the current one is {state.producer_epoch}")
        # a repeat whose first answer was lost: its owner alone knows the former epoch
        return state._to(_S.EMPTY, now_ms=now_ms, **rest)
    last_epoch = state.producer_epoch if expected is not None else NO_PRODUCER_EPOCH
    if state.is_exhausted:
        if fresh_producer_id is None:
            raise ProducerIdNeeded
        fresh = {"producer_id": fresh_producer_id, "producer_epoch": 0}
        return state._to(_S.EMPTY, now_ms=now_ms, last_producer_epoch=last_epoch, **fresh, **rest)
    return state._to(
        _S.EMPTY, now_ms=now_ms, producer_epoch=state.producer_epoch + 1, last_producer_epoch=last_epoch, **rest
    )


def _is_prepared(state: TransactionState) -> InvalidTransactionState:
    return InvalidTransactionState(
        f"the transaction of producer {state.producer_id} epoch {state.producer_epoch} is prepared and waits for its decision; use another "
        "transactional id, or end it with `barnabas txn abort`"
    )


def _may_go_on(state: TransactionState, expected: Producer) -> bool:
    """By its producer id: its current one, the one that it has from the end of the last transaction on, or the former one if that
    was used up (the answer with the new one was lost)."""
    return (
        expected.producer_id == state.producer_id
        or expected == state.goes_on
        or (expected.producer_id == state.previous_producer_id and expected.epoch >= EPOCH_LAST)
    )


def fence(state: TransactionState, *, server_version: int, now_ms: int) -> TransactionState:
    """Abort an open transaction that its producer did not end: the epoch rises, so that the producer cannot continue.

    Raises InvariantViolated unless it is ongoing.
    """
    fenced = state._to(
        _S.PREPARE_EPOCH_FENCE,
        now_ms=now_ms,
        producer_epoch=min(state.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )
    return fenced._to(
        _S.PREPARE_ABORT, now_ms=now_ms, next_producer_id=NO_PRODUCER_ID, client_version=_client(server_version)
    )


def _client(version: int) -> int:
    return EPOCH_PER_TRANSACTION if version >= EPOCH_PER_TRANSACTION else CLASSIC


# ---- AddPartitionsToTxn ----------------------------------------------------------------------------------------------


def add_partitions(
    state: TransactionState | None,
    producer: Producer,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> TransactionState | None:
    """The state with the partitions in the transaction, which this may begin; None when all of them are in it already.

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE (it is prepared).
    """
    state = _at_rest_or_open(state, producer)
    if state.status is _S.PREPARED:
        raise _is_prepared(state)
    if state.status is _S.ONGOING and state.partitions.issuperset(partitions):
        return None
    start_ms = state.start_ms if state.status is _S.ONGOING else now_ms
    return state._to(
        _S.ONGOING,
        now_ms=now_ms,
        partitions=state.partitions.union(partitions),
        start_ms=start_ms,
        client_version=client_version,
    )


def verify_partitions(
    state: TransactionState | None, producer: Producer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether each partition is in the producer's open transaction: NONE or TRANSACTION_ABORTABLE (KIP-890).

    Raises as add_partitions.
    """
    state = _at_rest_or_open(state, producer)
    if state.status is _S.PREPARED:  # what its producer wrote is acknowledged: this batch is late, or a copy
        raise _is_prepared(state)
    return {
        partition: ErrorCode.NONE if partition in state.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def _at_rest_or_open(state: TransactionState | None, producer: Producer) -> TransactionState:
    """The state, if the producer runs it; one that continues while the last transaction is still being ended tries
    again (KAFKA-18464)."""
    if state is not None and state.status in ENDING and producer in (state.producer, state.goes_on):
        raise _is_being_ended()
    return _of(state, producer)


def _is_being_ended() -> ConcurrentTransactions:
    return ConcurrentTransactions("the last transaction of this transactional id is still being ended; try again")


def _of(state: TransactionState | None, producer: Producer) -> TransactionState:
    if state is None:
        raise InvalidProducerIdMapping("this transactional id is not known; initialize the producer")
    if state.producer_id != producer.producer_id:
        raise InvalidProducerIdMapping(
            f"the transactional id belongs to producer {state.producer_id}, not {producer.producer_id}"
        )
    if state.producer_epoch != producer.epoch:
        raise ProducerFenced(f"epoch {producer.epoch} is fenced, the current one is {state.producer_epoch}")
    return state


# ---- PrepareTxn ------------------------------------------------------------------------------------------------------


def prepare(state: TransactionState | None, producer: Producer, *, now_ms: int) -> TransactionState | None:
    """The state in which the transaction waits for its decision; None when it is in it already.

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE (nothing was written).
    """
    state = _at_rest_or_open(state, producer)
    if state.status is _S.PREPARED:
        return None
    if state.status is not _S.ONGOING:
        raise InvalidTransactionState(
            f"a transaction in {state.status.title} cannot be prepared: nothing was written in it"
        )
    return state._to(_S.PREPARED, now_ms=now_ms)


# ---- EndTxn ----------------------------------------------------------------------------------------------------------


class End(NamedTuple):
    """What EndTxn amounts to."""

    state: TransactionState | None
    """The state to be written, and then the markers; None for a repeat of an end that was written before."""
    producer: Producer
    """The id and epoch that the producer continues with."""


def end(
    state: TransactionState | None,
    producer: Producer,
    *,
    is_commit: bool,
    client_version: int,
    fresh_producer_id: int | None,
    now_ms: int,
) -> End:
    """Commit or abort.

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (the end is decided, its markers are not all
    written), INVALID_TXN_STATE (nothing to end, or it was ended the other way), ProducerIdNeeded.
    """
    if client_version < EPOCH_PER_TRANSACTION:
        return _end_classic(_of(state, producer), is_commit=is_commit, now_ms=now_ms)
    if state is None:
        raise InvalidProducerIdMapping("this transactional id is not known; initialize the producer")
    if _is_repeated_end(state, producer):
        if state.status in ENDING:
            return _refuse_ending(state, is_commit=is_commit)
        if state.status not in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT):
            raise ProducerFenced(f"epoch {producer.epoch} is fenced, the current one is {state.producer_epoch}")
        if (state.status is _S.COMPLETE_COMMIT) is not is_commit:
            raise _not_that_way(state, is_commit=is_commit)
        return End(None, state.producer)
    state = _at_rest_or_open(state, producer)
    if is_commit and state.status not in OPEN:
        raise _not_that_way(state, is_commit=is_commit)
    next_producer_id = NO_PRODUCER_ID
    if state.is_exhausted:
        if fresh_producer_id is None:
            raise ProducerIdNeeded
        next_producer_id = fresh_producer_id
    ending = state._to(
        _S.PREPARE_COMMIT if is_commit else _S.PREPARE_ABORT,
        now_ms=now_ms,
        producer_epoch=min(state.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=state.producer_epoch,
        next_producer_id=next_producer_id,
        start_ms=state.start_ms if state.status in OPEN else now_ms,
        client_version=client_version,
    )
    return End(ending, complete(ending, now_ms=now_ms).producer)


def _is_repeated_end(state: TransactionState, producer: Producer) -> bool:
    """Whether the request has the epoch before the last end, or the last epoch of a producer id that was used up by it."""
    if producer.producer_id == state.producer_id:
        return state.producer_epoch == producer.epoch + 1
    return (
        producer.producer_id == state.previous_producer_id
        and producer.epoch == EPOCH_LAST
        and state.producer_epoch == 0
    )


def _end_classic(state: TransactionState, *, is_commit: bool, now_ms: int) -> End:
    if state.status in OPEN:
        status = _S.PREPARE_COMMIT if is_commit else _S.PREPARE_ABORT
        ending = state._to(status, now_ms=now_ms, next_producer_id=NO_PRODUCER_ID, client_version=CLASSIC)
        return End(ending, ending.producer)
    if state.status in ENDING:
        return _refuse_ending(state, is_commit=is_commit)
    if state.status is (_S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT):
        return End(None, state.producer)
    raise _not_that_way(state, is_commit=is_commit)


def _refuse_ending(state: TransactionState, *, is_commit: bool) -> End:
    if state.is_commit is not is_commit:
        raise _not_that_way(state, is_commit=is_commit)
    raise ConcurrentTransactions("the transaction is being ended so; try again")


def _not_that_way(state: TransactionState, *, is_commit: bool) -> InvalidTransactionState:
    verb = "committed" if is_commit else "aborted"
    return InvalidTransactionState(f"a transaction in {state.status.title} cannot be {verb}")


# ---- after the end ---------------------------------------------------------------------------------------------------


def complete(state: TransactionState, *, now_ms: int) -> TransactionState:
    """Every marker is written: the producer may begin again. Raises InvariantViolated unless it is ending."""
    status = _S.COMPLETE_COMMIT if state.status is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT
    return state._to(
        status,
        now_ms=now_ms,
        producer_id=state.goes_on.producer_id,
        producer_epoch=state.goes_on.epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )
