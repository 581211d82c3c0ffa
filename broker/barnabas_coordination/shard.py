"""The shape of every coordinator: decide, then replay.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a decision returns data (records, replies, timers) and the runtime performs them in that order: append the records,
            replay them, arm the timers, and let the replies go once everything appended before them is committed. A decision
            leaves what its records carry unchanged, so records that cannot be appended need no undoing.
Read next:  runtime.py, which performs results; group/shard.py, the first coordinator of this shape.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.lazy_dataclass import dataclass

Ticket = Hashable
"""Names one parked request; opaque to the state machine, which hands it back in a Reply."""


class Reply(NamedTuple):
    """The answer of one request: an outcome, or the KafkaError to raise where the request waits."""

    ticket: Ticket
    outcome: Any


class Pending(NamedTuple):
    """A record that a transaction wrote: it counts once the transaction commits (see TransactionEnd)."""

    producer_id: int
    record: Any


class Placed(NamedTuple):
    """A record with its place in the log, as a shard gets it whose every record counts (see CoordinatorRuntime)."""

    offset: Offset
    record: Any


class TransactionEnd(NamedTuple):
    """A transaction's marker in this partition: what its producer wrote since the last one counts, or never will."""

    producer_id: int
    is_commit: bool


class Writer(NamedTuple):
    """The producer whose transaction a batch is part of."""

    producer_id: int
    epoch: int


class Marker(NamedTuple):
    """How a transaction ended, as its coordinator says it (WriteTxnMarkers)."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


class ArmTimer(NamedTuple):
    """Call the shard's on_timer(key) after a delay; a timer of the same key is replaced."""

    key: Hashable
    delay_ms: int


class CancelTimer(NamedTuple):
    """Forget the timer of this key, if there is one."""

    key: Hashable


@dataclass(slots=True)
class CoordinatorResult:
    """What one decision wants done. Built up by the pure step, performed by the runtime."""

    records: list[Any] = field(default_factory=list)
    """Typed records, appended as one batch: all or nothing."""
    writer: Writer | None = None
    """Set: the batch is part of this producer's transaction, and each record is replayed as a Pending."""
    marker: Marker | None = None
    """Set, and no records: the marker is appended, and replayed as a TransactionEnd."""
    replies: list[Reply] = field(default_factory=list)
    timers: list[ArmTimer | CancelTimer] = field(default_factory=list)

    def reply(self, ticket: Ticket | None, outcome: Any) -> None:
        """Answer a ticket; None (no request waits) is no answer."""
        if ticket is not None:
            self.replies.append(Reply(ticket, outcome))

    def arm(self, key: Hashable, delay_ms: int) -> None:
        """Arm or re-arm a timer."""
        self.timers.append(ArmTimer(key, delay_ms))

    def cancel(self, key: Hashable) -> None:
        """Disarm a timer."""
        self.timers.append(CancelTimer(key))

    def refused(self, error: KafkaError) -> CoordinatorResult:
        """The same without its records: every reply carries the error, the timers are armed all the same."""
        return CoordinatorResult(replies=[Reply(reply.ticket, error) for reply in self.replies], timers=self.timers)


class CoordinatorShard(Protocol):
    """State of one partition of the coordinator's topic."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Typed record -> key and value; value None is a tombstone."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        """Key and value -> typed record; None for a record type this version does not know."""
        ...

    def replay(self, record: Any) -> None:
        """Change state by one record, Pending, Placed or TransactionEnd, at once after it was appended, or while loading."""
        ...

    def on_refused(self, result: CoordinatorResult, error: KafkaError) -> CoordinatorResult:
        """The records of a result could not be appended (too few in-sync replicas, not leader), so none was replayed.

        Called at once after the step. Returns what to perform instead, without records; `result.refused(error)` where the step
        left nothing else to settle.
        """
        ...

    def on_committed(self, record: Any) -> None:
        """The record, replayed before, is now below the high watermark. In the order of replay."""
        ...

    def on_loaded(self, *, now_ms: int) -> CoordinatorResult:
        """Everything in the log was replayed; returns the timers to arm."""
        ...

    def on_timer(self, key: Hashable, *, now_ms: int) -> CoordinatorResult:
        """A timer fired."""
        ...
