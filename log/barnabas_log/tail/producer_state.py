"""What producers have written: epoch and the last five batches of each, so that a retry is not a second write, and their transactions.

May touch:  its arguments.   Must not touch: clocks, segments, the disk (producer_snapshots.py).
Invariants: per (producer id, epoch) sequences have no gap and no repeat; the state is what replaying the log gives; a transaction is
            open from its first record to its marker, and unstable until the marker is committed.
Read next:  log_tail.py, which asks before an append and reports after it; producer_snapshots.py, recovery.py, which replays.

Five is a constant of the protocol: a client has at most five requests in flight (KIP-98).

Transactions (KIP-98, KIP-890). The first transactional record of a producer opens one, its marker ends it. The last stable offset is
where the first one begins that is open, or whose marker is not below the high watermark: whether that one was committed may yet
change. A record that would open one is first verified with its coordinator, or a late one could join the next transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas_log.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from barnabas_log.tail.aborted_transactions import AbortedTransaction
from barnabas_wire.kafka.ids import NO_OFFSET, Offset

BATCHES_PER_PRODUCER_MAX = 5
SEQUENCE_MAX = 2**31 - 1
PRODUCER_ID_EXPIRATION_MS = 86_400_000
"""Default of producer.id.expiration.ms."""


class ProducerBatch(NamedTuple):
    """One of the last batches of a producer."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record (wraps below 0 to 2^31-1)."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> Offset:
        """Offset of its first record."""
        return Offset(self.last_offset - self.offset_delta)


class ProducerEntry:
    """One producer's state in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "marker_ms",
        "producer_id",
        "seen_end",
        "seen_ms",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[ProducerBatch] = deque(maxlen=BATCHES_PER_PRODUCER_MAX)
        self.coordinator_epoch = -1
        """The epoch of the coordinator that wrote its last marker."""
        self.transaction_start = NO_OFFSET
        """Offset of the first record of its open transaction; NO_OFFSET without one."""
        self.marker_ms = -1
        """Time of its last marker."""
        self.seen_end = NO_OFFSET
        """Last offset of its newest batch when `expire` last looked, and"""
        self.seen_ms = -1
        """when that was first so; of what was loaded, the time of its records."""

    @property
    def last(self) -> ProducerBatch:
        """Its newest batch; one of sequence -1 where only a marker is known of it."""
        return self.batches[-1] if self.batches else ProducerBatch(-1, NO_OFFSET, 0, self.marker_ms)


class EndedTransaction(NamedTuple):
    """A transaction whose marker is in the log, and perhaps not below the high watermark."""

    first_offset: Offset
    marker_offset: Offset


class VerificationGuard:
    """A note that a producer's transaction is being verified, or was; a marker in between makes it worthless
    (KIP-890)."""

    __slots__ = ("epoch", "is_confirmed")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.is_confirmed = False


class ProducerState:
    """All producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self.open_transactions: dict[int, Offset] = {}
        """First offset of each open transaction, by producer id, rising."""
        self.ended: deque[EndedTransaction] = deque()
        """Those whose marker is not known to be below the high watermark."""
        self.aborted: list[AbortedTransaction] = []
        """Those that a replay has met, since `begin_offset`."""
        self.begin_offset = Offset(0)
        """Where the replay began that made the state."""
        self._last_transactional = NO_OFFSET
        """The newest batch or marker of a transaction; a cut at or below it makes the state worthless."""
        self._guards: dict[int, VerificationGuard] = {}
        self.end_offset = Offset(0)
        """The state covers every batch below this offset."""
        self.unread: tuple[Offset, ...] = ()
        """Base offsets of the segments that a replay could not read to their end: what producers wrote there is not known."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """State of one producer."""
        return self._producers.get(producer_id)

    @property
    def has_transactions(self) -> bool:
        """Whether any producer here is known to have written transactions."""
        return self._last_transactional != NO_OFFSET

    def has_transaction_silent_since(self, timestamp_ms: int) -> bool:
        """Whether a transaction is open whose producer's last record here is older."""
        return any(self._producers[each].last.timestamp_ms < timestamp_ms for each in self.open_transactions)

    @property
    def first_unstable_offset(self) -> Offset | None:
        """Where the first transaction begins whose outcome may still change; None where there is none."""
        first = next(iter(self.open_transactions.values()), None)
        for ended in self.ended:
            if first is None or ended.first_offset < first:
                first = ended.first_offset
        return first

    def note_high_watermark(self, offset: Offset) -> None:
        """Markers below `offset` are committed."""
        ended = self.ended
        while ended and ended[0].marker_offset < offset:
            ended.popleft()

    # -- verification (KIP-890) --------------------------------------------------------------------------------------

    def needs_verification(self, producer_id: int, epoch: int) -> bool:
        """Whether a transactional batch of that producer would open a transaction that is not verified.

        A batch of another epoch than that of the open transaction is not of it: its marker may still be on its way.
        """
        if producer_id in self.open_transactions and self._producers[producer_id].epoch == epoch:
            return False
        guard = self._guards.get(producer_id)
        return guard is None or not guard.is_confirmed or guard.epoch != epoch

    def begin_verification(self, producer_id: int, epoch: int) -> VerificationGuard:
        """The guard of a verification that begins; one for all that are under way for the producer's epoch. A later epoch's is not for
        an earlier one, to which nothing is confirmed any more."""
        guard = self._guards.get(producer_id)
        if guard is None or guard.epoch < epoch:
            guard = self._guards[producer_id] = VerificationGuard(epoch)
        return guard if guard.epoch == epoch else VerificationGuard(epoch)

    def confirm(self, producer_id: int, guard: VerificationGuard) -> bool:
        """The coordinator says that the partition is in the transaction; returns whether that still counts: no marker came since."""
        guard.is_confirmed = self._guards.get(producer_id) is guard
        return guard.is_confirmed

    # -- batches -----------------------------------------------------------------------------------------------------

    def check_transactional(self, *, producer_id: int, epoch: int, is_transactional: bool) -> None:
        """Judge a producer's batch, beside `check`. Raises InvalidTransactionState."""
        if not is_transactional:
            if producer_id in self.open_transactions:
                raise InvalidTransactionState(
                    f"producer {producer_id} has an open transaction here, and the batch is not of it"
                )
        elif self.needs_verification(producer_id, epoch):
            raise InvalidTransactionState(
                f"this partition is not known to be in the transaction of producer {producer_id}, epoch {epoch}"
            )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Judge the epoch of a batch without sequences. Raises InvalidProducerEpoch for one older than a marker or batch here."""
        entry = self._producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch {epoch}")

    def check_marker(self, *, producer_id: int, epoch: int, coordinator_epoch: int, bumps_epoch: bool) -> None:
        """Judge a marker before its append. bumps_epoch: its transaction ends with a higher epoch (transaction.version 2).

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch or (bumps_epoch and epoch == entry.epoch and entry.transaction_start != NO_OFFSET):
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the marker {epoch}")
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"the marker is from coordinator epoch {coordinator_epoch}, epoch {entry.coordinator_epoch} was here already"
            )

    def end_transaction(
        self,
        *,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        offset: Offset,
        timestamp_ms: int,
        is_commit: bool,
    ) -> AbortedTransaction | None:
        """A marker was appended at `offset`; returns the transaction where it aborted one."""
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.coordinator_epoch, entry.marker_ms = coordinator_epoch, timestamp_ms
        self._last_transactional = offset
        self._guards.pop(producer_id, None)
        first = self.open_transactions.pop(producer_id, None)
        entry.transaction_start = NO_OFFSET
        if first is None:
            return None
        open_since = next(iter(self.open_transactions.values()), None)
        self.ended.append(EndedTransaction(first, offset))
        if is_commit:
            return None
        return AbortedTransaction(producer_id, first, offset, offset + 1 if open_since is None else open_since)

    def begin_transaction(self, *, producer_id: int, epoch: int, first_offset: Offset, last_offset: Offset) -> None:
        """A transactional batch of data was appended."""
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        self._last_transactional = last_offset
        if entry.transaction_start == NO_OFFSET:
            entry.transaction_start = self.open_transactions[producer_id] = first_offset
            self._guards.pop(producer_id, None)

    def check(self, *, producer_id: int, epoch: int, first_sequence: int, record_count: int) -> ProducerBatch | None:
        """Judge a batch before its append: None to append it, or the batch that it repeats.

        Raises InvalidProducerEpoch for an older epoch, OutOfOrderSequence for a gap or a repeat beyond memory. A producer
        that is unknown here may start anywhere: retention may have taken its earlier batches.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            return None
        if epoch != entry.epoch:
            if epoch < entry.epoch:
                raise InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch {epoch}")
            if first_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} starts epoch {epoch} with sequence {first_sequence} instead of 0"
                )
            return None
        expected = (entry.batches[-1].last_sequence + 1) & SEQUENCE_MAX if entry.batches else 0
        if first_sequence == expected:
            return None
        last_sequence = (first_sequence + record_count - 1) & SEQUENCE_MAX
        for batch in entry.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        raise OutOfOrderSequence(
            f"producer {producer_id} epoch {epoch}: sequence {first_sequence} arrived, {expected} is next"
        )

    def misses_before(self, producer_id: int, epoch: int, first_sequence: int) -> bool:
        """Whether batches of the producer that come before that sequence are not here. One that is unknown may have written them long
        ago."""
        entry = self._producers.get(producer_id)
        if entry is None or epoch > entry.epoch or not entry.batches:
            return first_sequence != 0
        ahead = (first_sequence - entry.batches[-1].last_sequence - 1) & SEQUENCE_MAX
        return epoch == entry.epoch and 0 < ahead <= SEQUENCE_MAX // 2

    def update(
        self,
        *,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_offset: Offset,
        offset_delta: int,
        timestamp_ms: int,
    ) -> None:
        """Remember an appended batch. On followers and in recovery nothing is judged: the leader has."""
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.batches.append(
            ProducerBatch((first_sequence + offset_delta) & SEQUENCE_MAX, last_offset, offset_delta, timestamp_ms)
        )

    def truncate_to(self, offset: Offset) -> bool:
        """Forget the batches at `offset` and later; False if what is left cannot be known without replaying the log."""
        if offset <= self._last_transactional:
            return False
        if not any(entry.last.last_offset >= offset for entry in self._producers.values()):
            self.end_offset = min(self.end_offset, offset)
            return True
        if any(entry.batches and entry.batches[0].last_offset >= offset for entry in self._producers.values()):
            return False  # nothing of this epoch is left in memory: there may be older batches, or an older epoch
        for entry in self._producers.values():
            while entry.last.last_offset >= offset:
                entry.batches.pop()
        self.end_offset = min(self.end_offset, offset)
        return True

    def expire(self, *, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers silent for longer; returns how many (producer.id.expiration.ms).

        Not by the time of their records, as Kafka does: a producer that sends old records would be forgotten while it
        writes.
        """
        expired = []
        for entry in self._producers.values():
            end = entry.last.last_offset
            if entry.transaction_start != NO_OFFSET:
                continue
            if entry.seen_end != end or entry.seen_ms < 0:
                entry.seen_end, entry.seen_ms = end, now_ms
            elif now_ms - entry.seen_ms >= expiration_ms:
                expired.append(entry.producer_id)
        for producer_id in expired:
            del self._producers[producer_id]
            self._guards.pop(producer_id, None)
        return len(expired)

    def date_by_records(self) -> None:
        """Take the time of its newest records for when each was last seen: a start knows no better."""
        for entry in self._producers.values():
            _, entry.seen_end, _, entry.seen_ms = entry.last

    def clear(self, end_offset: Offset) -> None:
        """Forget all."""
        self._producers.clear()
        self.open_transactions.clear()
        self.ended.clear()
        self.aborted.clear()
        self._guards.clear()
        self._last_transactional = NO_OFFSET
        self.begin_offset = self.end_offset = end_offset

    @classmethod
    def of(cls, entries: Iterable[ProducerEntry], end_offset: Offset) -> ProducerState:
        """The state just before `end_offset`, as a snapshot has it: one entry for each producer."""
        state = cls()
        state.begin_offset = state.end_offset = end_offset
        state._producers = {entry.producer_id: entry for entry in entries}
        if any(entry.coordinator_epoch >= 0 or entry.transaction_start >= 0 for entry in state):
            state._last_transactional = Offset(end_offset - 1)
        started = sorted(
            (entry.transaction_start, entry.producer_id) for entry in state if entry.transaction_start >= 0
        )
        state.open_transactions = {producer_id: start for start, producer_id in started}
        return state
