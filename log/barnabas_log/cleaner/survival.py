"""What of a compacted log survives: Kafka's rules, batch by batch.

May touch:  its arguments.            Must not touch: files, clocks, the log.
Invariants: the last value of every key survives; nothing above the map's latest offset changes; a tombstone and a marker stay
            for delete.retention.ms after the first run that saw them; a marker stays as long as data of its transaction; the
            batch with the last sequence of a live producer stays, if only its header.
Read next:  key_scan.py, the loops over records, and compiled_keys.py, the same in machine code; rewrite.py, which feeds both passes.

Two passes, as in Kafka's Cleaner. The first notes the last offset of each key in the dirty part, as far as the map has room; the
second judges every batch from the start of the log to there. A batch of which all stays is copied as it is; else its records are
put together again, in the codec that it has.

Not obvious:
  - The delete horizon (KIP-534) is written into the batch when a run first sees a tombstone in it, or the marker of a transaction
    of which nothing is left. It takes the place of the base timestamp, so the time deltas are made again.
  - Beyond Kafka's rules, the last batch of each rewritten segment stays as well, if only its header: so a segment always ends where
    the next one begins, and a lost tail cannot pass for a compacted one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_log.cleaner.key_scan import Kept, keep_last, move_times, note_keys
from barnabas_log.tail.aborted_transactions import AbortedTransaction
from barnabas_wire.kafka.ids import NO_OFFSET, Offset
from barnabas_wire.records.batch import BatchHeader, Buffer, iterate_records, records_section, with_fewer_records
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.control import ControlRecordType, decode_control_key

BYTES_PER_KEY: Final = 170
"""What a key takes in the map, whatever its length: its slot, the offset, and their share of the table (measured)."""
NO_TIMESTAMP: Final = -1


class LastBatch(NamedTuple):
    """What is known of a producer's last batch, so that it outlives compaction."""

    epoch: int
    last_data_offset: int
    """Last offset of its newest batch of data; NO_OFFSET when markers are all there is of it."""


class Rules(NamedTuple):
    """What holds for one run."""

    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, LastBatch]
    """Those that live, by producer id."""
    level: int | None = None
    """The compression level of a batch that is put together again; None for the codec's own."""


class KeyOffsets:
    """The last offset of each key in the dirty part, with a bound."""

    def __init__(self, *, bytes_max: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.entries_max = max(1, bytes_max // BYTES_PER_KEY)
        self.latest: Offset = NO_OFFSET
        """Last offset of what has been noted: records above it stay as they are."""

    def has_room(self, record_count: int) -> bool:
        """Whether a batch of so many records fits surely; the first one always does, so that each run gets on."""
        return self.latest == NO_OFFSET or self.key_count + record_count <= self.entries_max

    def note(self, batch: Buffer, header: BatchHeader, transactions: Transactions) -> None:
        """Take in a batch of the dirty part. Raises CorruptBatch, CorruptCompressedData."""
        if header.is_control:
            transactions.pass_marker(batch, header)
        elif not transactions.pass_data(header) and header.record_count:
            records = records_section(batch, header)
            self.note_records(records, count=header.record_count, base_offset=header.base_offset)
        self.latest = header.last_offset

    @property
    def key_count(self) -> int:
        """How many keys were noted."""
        return len(self.offsets)

    def note_records(self, records: bytes, *, count: int, base_offset: int) -> None:
        """See key_scan.note_keys."""
        note_keys(records, count=count, base_offset=base_offset, offsets=self.offsets)

    def keep(self, records: bytes, *, count: int, base_offset: int, drops_tombstones: bool) -> Kept:
        """See key_scan.keep_last."""
        return keep_last(
            records,
            count=count,
            base_offset=base_offset,
            offsets=self.offsets,
            latest=self.latest,
            drops_tombstones=drops_tombstones,
        )


class Transactions:
    """Which data was aborted, and of which transactions nothing is left, on a way through the log (Kafka's
    CleanedTransactionMetadata)."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self.kept: list[AbortedTransaction] = []
        """Aborted ones whose marker stays because data of theirs was seen: the index of what was rewritten."""
        self._coming: Sequence[AbortedTransaction] = sorted(aborted, key=lambda each: each.first_offset)
        self._next = 0
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer id: the one under way, and whether data of it was seen."""
        self._committed: set[int] = set()
        """Producers of whose transaction under way data was seen, which was not aborted."""

    def pass_data(self, header: BatchHeader) -> bool:
        """Pass a batch of data; returns whether it was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        aborted, _ = self._aborted.get(producer_id, (None, False))
        if aborted is not None and header.last_offset < aborted.last_offset:
            self._aborted[producer_id] = (aborted, True)
            return True
        self._committed.add(producer_id)
        return False

    def pass_marker(self, batch: Buffer, header: BatchHeader) -> bool:
        """Pass a control batch; returns whether nothing is left of the transaction that it ends. Raises CorruptBatch."""
        self._begin_up_to(header.last_offset)
        record = next(iterate_records(batch), None)
        if record is None:  # cleaned already
            return True
        kind = decode_control_key(record.key or b"")
        if kind == ControlRecordType.ABORT:
            aborted, has_data = self._aborted.pop(header.producer_id, (None, False))
            if aborted is not None and has_data:
                self.kept.append(aborted)
                return False
            return True
        if kind == ControlRecordType.COMMIT:
            had_data = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not had_data
        return False

    def _begin_up_to(self, offset: int) -> None:
        coming = self._coming
        while self._next < len(coming) and coming[self._next].first_offset <= offset:
            begun = coming[self._next]
            before, _ = self._aborted.get(begun.producer_id, (None, False))
            if before is None or before.last_offset < begun.first_offset:  # its marker may have gone
                self._aborted[begun.producer_id] = (begun, False)
            self._next += 1


def survivor(
    batch: Buffer, header: BatchHeader, keys: KeyOffsets, transactions: Transactions, rules: Rules, *, keeps_end: bool
) -> Buffer | None:
    """What stays of a batch: the very bytes, fewer records, a header alone, or None for nothing.

    keeps_end: it ends a segment or the run, so that its last offset stays. Raises CorruptBatch, CorruptCompressedData.
    """
    horizon_ms = header.delete_horizon_ms
    is_past_horizon = horizon_ms is not None and horizon_ms <= rules.now_ms
    is_spent_marker = False
    if header.is_control:
        is_spent_marker = transactions.pass_marker(batch, header)
        drops_all = is_spent_marker and is_past_horizon
    else:
        drops_all = transactions.pass_data(header)
    if header.base_offset > keys.latest:
        return batch
    if drops_all or not header.record_count:
        is_kept = keeps_end or _is_last_of_producer(header, rules)
        return _without_records(batch, header) if is_kept else None
    if header.is_control:
        if not is_spent_marker or horizon_ms is not None:
            return batch
        return _rebuild(
            batch, header, records_section(batch, header), rules, count=header.record_count, sets_horizon=True
        )
    records = records_section(batch, header)
    kept = keys.keep(
        records, count=header.record_count, base_offset=header.base_offset, drops_tombstones=is_past_horizon
    )
    if not kept.record_count:
        is_kept = keeps_end or _is_last_of_producer(header, rules)
        return _without_records(batch, header) if is_kept else None
    sets_horizon = kept.has_tombstones and horizon_ms is None
    if kept.record_count == header.record_count and not sets_horizon:
        return batch
    left = b"".join([records[start:stop] for start, stop in kept.ranges])
    newest_ms = header.base_timestamp_ms + kept.newest_ms
    return _rebuild(batch, header, left, rules, count=kept.record_count, sets_horizon=sets_horizon, newest_ms=newest_ms)


def forgets_deletions(batch: Buffer, header: BatchHeader, kept: Buffer | None, rules: Rules) -> bool:
    """Whether a tombstone, or the end of a transaction, may have gone with what `survivor` kept of the batch: their horizon has passed,
    and something went. What went for the sake of a newer record is counted too."""
    horizon_ms = header.delete_horizon_ms
    return kept is not batch and horizon_ms is not None and horizon_ms <= rules.now_ms


def _rebuild(
    batch: Buffer,
    header: BatchHeader,
    records: bytes,
    rules: Rules,
    *,
    count: int,
    sets_horizon: bool,
    newest_ms: int | None = None,
) -> bytes:
    base_ms = header.base_timestamp_ms
    if sets_horizon:
        base_ms = rules.now_ms + rules.delete_retention_ms
        records = move_times(records, by_ms=header.base_timestamp_ms - base_ms)
    if newest_ms is None or header.is_log_append_time:
        newest_ms = header.max_timestamp_ms
    return with_fewer_records(
        header,
        records,
        record_count=count,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=newest_ms,
        delete_horizon=sets_horizon or header.delete_horizon_ms is not None,
        level=None if header.compression == CompressionType.NONE else rules.level,
    )


def _without_records(batch: Buffer, header: BatchHeader) -> Buffer:
    """The header alone, as Kafka writes it: no horizon, no base timestamp, no codec."""
    if not header.record_count and header.delete_horizon_ms is None:
        return batch
    return with_fewer_records(
        header,
        b"",
        record_count=0,
        base_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=header.max_timestamp_ms,
        delete_horizon=False,
    )


def _is_last_of_producer(header: BatchHeader, rules: Rules) -> bool:
    """Whether the batch has the last sequence of a producer that lives, or the marker that has its epoch."""
    last = rules.producers.get(header.producer_id)
    if last is None:
        return False
    if last.last_data_offset == NO_OFFSET:
        return header.is_control and header.producer_epoch == last.epoch
    return header.last_offset == last.last_data_offset
