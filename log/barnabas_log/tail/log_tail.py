"""The end of one partition's log: what is appended, queued, written and rolled.

May touch:  the parts of a log, disk.py.       Must not touch: asyncio, clocks, peers, other logs, what is read.
Invariants: flushed end <= written end <= log end; offsets have no gap but where compaction left one; what is appended is exactly
            what any replica has at these offsets, byte for byte, until it is compacted; nothing is appended after a failed write.
Read next:  validator.py (what a producer may send), producer_state.py (its sequences), durability.py; unified_log.py, the whole log.

Appending assigns offsets and queues bytes; `write_pending`, once per loop iteration, writes them with one system call; a flush
round makes them durable.

Hot path (append_as_leader, append_as_follower): flat on purpose. One copy per batch, bytes(view[21:]), which both the CRC (its C
function takes bytes only) and the write use; the 21 bytes before it are made new with offset and epoch.

Not obvious:
  - A write that finds no room leaves the log as it is: what it was to write stays queued, below the log end and above the
    written end, and goes with the next write that succeeds. Its part that reached the file is cut off again. Nothing was
    acknowledged of it; the listener sees to it that nothing more is appended meanwhile.
  - A process without descriptors is not a broken disk. What would write waits, as for a slow flush.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas_log.config import LogConfig, TimestampType
from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.directories.disk_space import is_disk_full
from barnabas_log.disk import Disk
from barnabas_log.errors import (
    BatchPassesSegment,
    DiskFull,
    InvalidBatch,
    OutOfDescriptors,
    OutOfOrderSequence,
    ProducersInDoubt,
    StorageFailed,
)
from barnabas_log.recovery.recovery import RecoveredLog
from barnabas_log.tail.aborted_transactions import AbortedTransactions
from barnabas_log.tail.batch_run import BatchRun, read_run
from barnabas_log.tail.durability import Durability
from barnabas_log.tail.log_listener import LogListener
from barnabas_log.tail.producer_replay import note_producer
from barnabas_log.tail.producer_snapshots import write_snapshot
from barnabas_log.tail.producer_state import ProducerState
from barnabas_log.tail.segment import LogSegment
from barnabas_log.tail.validator import check_internal_batches, check_is_one_batch, check_producer_batch
from barnabas_wire.kafka.errors import InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset
from barnabas_wire.records.batch import (
    BASE_OFFSET_FIELD,
    BATCH_LENGTH_FIELD,
    CRC_START,
    LAST_OFFSET_DELTA_FIELD,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    PREFIX,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    CorruptBatch,
    HeaderFields,
    read_header,
)
from barnabas_wire.records.crc32c import crc32c
from barnabas_wire.tuples import new_tuple

logger = logging.getLogger(__name__)

PENDING_BYTES_MAX = 4 * 1024 * 1024
"""Bytes queued in one log before an append writes by itself."""
HELD_BYTES_MAX = 32 * 1024 * 1024
"""Bytes queued in one log while a slow flush holds its writes back; past that it writes, and may wait for the disk."""
UNNAMED_SEGMENTS_MAX = 4
"""Segments at the end of a log whose names are not durable yet. A roll that would make one more waits for the disk: by then twice
segment.bytes came in several times over while one flush was under way, and the kernel blocks writes for the same reason."""
GAP_REFUSALS = 5
"""How often a follower refuses the same gap in the offsets of a log that is not compacted before it takes it."""
STEP_DESCRIPTORS = 8
"""Most files that one step (a roll, a truncation, a flush, the making of a log) opens and cannot do without halfway."""

_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
_pack_prefix = PREFIX.pack
_ATTRIBUTES_AT = 21 - CRC_START
_MAX_TIMESTAMP_AT = 35 - CRC_START


class AppendResult(NamedTuple):
    """What became of an append. For an empty one: last_offset = first_offset - 1."""

    first_offset: Offset
    last_offset: Offset
    max_timestamp_ms: int
    log_append_time_ms: int
    """What the log has, for a repeated batch too; -1 unless the topic dates by log append time."""
    record_count: int
    size_bytes: int
    is_duplicate: bool
    """Whether nothing was written, because the producer repeated a batch that is there at these offsets."""


class LogTail:
    """What grows a log. Its reader, and all else that a log can do, is UnifiedLog, which has one of these."""

    def __init__(
        self,
        *,
        disk: Disk,
        directory: str,
        config: LogConfig,
        recovered: RecoveredLog,
        now_ms: int,
        log: Any,  # the UnifiedLog
        listener: LogListener[Any],
        is_new: bool,
    ) -> None:
        """log: whose tail it is, as the listener knows it."""
        self._log = log
        self.disk = disk
        self.directory = directory
        self.config = config
        self.listener = listener
        self.leader_epochs = recovered.leader_epochs
        self.producers: ProducerState = recovered.producers
        self.aborted = recovered.aborted
        """Aborted transactions, for readers of committed records."""
        self.log_end_offset = recovered.log_end_offset
        """Offset that the next record gets."""
        self.durability = Durability(disk, directory, end_offset=recovered.log_end_offset, is_new=is_new)
        self.segments = recovered.segments
        self.active = recovered.segments.active
        self.now_ms = now_ms
        self.latest_epoch = self.leader_epochs.latest
        """Newest leader epoch with a start in this log, -1 if there is none."""
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self.failure: OSError | None = None
        """The failure of the disk after which nothing is taken any more."""
        self.has_settings = True
        """Whether `config` is its topic's; False after a start, until somebody says so."""
        self.takes_gaps = False
        """Whether a leader insists on a gap in a log that is not compacted."""
        self._refused_gap: tuple[tuple[int, int], int] = ((0, 0), 0)
        """(log end, base offset of the batch that came), and how often in a row."""
        self.has_gaps = False
        """Whether its files may have offsets missing between batches, by what is on disk: see LogListener.on_gap."""
        self.doubted_from = NO_OFFSET
        """Where the first damage began since the producer state was last read from an undamaged log; NO_OFFSET without one."""
        self.is_sole_copy = True
        """Whether the partition has one replica: then nothing repairs its damage, and what the damage hides of producers is lost."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether the state of producers and the aborted transactions were read while batches were damaged, and not again since."""
        return self.doubted_from != NO_OFFSET or bool(self.producers.unread)

    @property
    def may_snapshot_producers(self) -> bool:
        """Not in doubt, unless nothing will repair the damage. A snapshot would lack the damaged batches, and after retention has
        deleted their segment a start would trust it: it would refuse what their producers write next."""
        return self.is_sole_copy or not self.is_in_doubt

    def append_as_leader(
        self, batches: Buffer, *, leader_epoch: Epoch, now_ms: int, is_internal: bool = False
    ) -> AppendResult:
        """Check, stamp and queue a producer's batch (exactly one), or `is_internal` batches of the broker itself.

        now_ms: the broker's clock. The buffer is free for reuse afterwards.
        Raises the errors of validator.py, CorruptBatch, OutOfOrderSequence, InvalidProducerEpoch, BatchPassesSegment,
        StorageFailed; nothing is appended then.
        """
        if self.failure is not None:
            raise StorageFailed(f"{self.directory}: {self.failure}")
        if leader_epoch != self.latest_epoch:
            if leader_epoch < self.latest_epoch:
                raise InvariantViolated(f"{self.directory}: append in epoch {leader_epoch} after {self.latest_epoch}")
            self.assign_epoch_start(leader_epoch, self.log_end_offset)
        self.now_ms = now_ms
        if is_internal:
            return self._append_internal(batches, leader_epoch, now_ms)
        header = check_is_one_batch(batches)
        check_producer_batch(header, self.config, now_ms=now_ms)
        body = bytes(batches[CRC_START:])
        _, _, _, _, crc, attributes, _, _, _, producer_id, producer_epoch, base_sequence, record_count = header
        if crc32c(body) != crc:
            raise CorruptBatch(f"the batch's checksum is wrong ({record_count} records)")
        if producer_id >= 0:
            is_in_doubt = self.doubted_from != NO_OFFSET and not self.is_sole_copy
            try:
                repeated = self.producers.check(
                    producer_id=producer_id,
                    epoch=producer_epoch,
                    first_sequence=base_sequence,
                    record_count=record_count,
                )
            except OutOfOrderSequence:
                if not is_in_doubt:
                    raise
                repeated = None
            if repeated is None:
                if is_in_doubt:
                    # A damaged batch may be the one that this repeats, or the one that it follows.
                    raise ProducersInDoubt(
                        f"{self.directory}: damage from offset {self.doubted_from} on hides what producers wrote; it is repaired "
                        "once another replica is in sync"
                    )
                self.producers.check_transactional(
                    producer_id=producer_id,
                    epoch=producer_epoch,
                    is_transactional=bool(attributes & TRANSACTIONAL_FLAG),
                )
            else:
                return AppendResult(
                    repeated.first_offset,
                    repeated.last_offset,
                    repeated.timestamp_ms,
                    repeated.timestamp_ms if self.config.message_timestamp_type is _LOG_APPEND_TIME else -1,
                    record_count,
                    0,
                    True,
                )
        return self._assign(header, body, leader_epoch, now_ms)

    def append_as_follower(self, batches: Buffer, *, leader_epoch: Epoch) -> None:
        """Check and append whole batches as the leader of `leader_epoch` sent them; offsets and epochs are kept.

        They are written at once, from where they lie; where a slow flush holds writes back they are queued.
        Their offsets must be past the log's end, and rise. Raises CorruptBatch, InvalidBatch or StorageFailed; the sound batches
        before the bad one are then appended, so the next fetch starts at log_end_offset.
        """
        if self.failure is not None:
            raise StorageFailed(f"{self.directory}: {self.failure}")
        if self._pending_bytes >= HELD_BYTES_MAX:
            self.write_pending(is_forced=True)
        view = memoryview(batches)
        end, position = len(view), 0
        while position < end:
            try:
                run = read_run(view, position, next_offset=self.log_end_offset, may_have_gaps=self.may_have_gaps)
            except InvalidBatch:
                self._note_gap(view, position)
                raise
            if run.epoch != self.latest_epoch:
                self.forget_empty_epochs()
                if not self.latest_epoch <= run.epoch <= leader_epoch:
                    raise InvalidBatch(
                        f"{self.directory}: a batch of epoch {run.epoch} after {self.latest_epoch} from leader epoch "
                        f"{leader_epoch}"
                    )
                self.assign_epoch_start(run.epoch, Offset(run.headers[0][BASE_OFFSET_FIELD]))
            self._append_run(run, view, position)
            position = run.stop

    def _note_gap(self, view: memoryview, position: int) -> None:
        """A leader whose log is not compacted left offsets out: its log may be damaged, and is checked when we refuse. Where the same
        gap comes again and again it is one that compaction left when the topic still had it."""
        gap = (self.log_end_offset, read_header(view, position).base_offset)
        count = self._refused_gap[1] + 1 if self._refused_gap[0] == gap else 1
        self._refused_gap = (gap, count)
        if gap[1] > gap[0] and count >= GAP_REFUSALS:
            logger.warning("%s: the leader has nothing from %d to %d: taken for compacted", self.directory, *gap)
            self.takes_gaps = True

    def _append_run(self, run: BatchRun, view: memoryview, position: int) -> None:
        """Put a run at the end: segments, producers, log end, file. `position`: where in the buffer it begins."""
        headers, done = run.headers, 0
        if run.has_gaps and not self.has_gaps:
            self.listener.on_gap(self._log)
            self.has_gaps = True
        while True:
            active = self.active
            size_before = active.size_bytes
            try:
                taken = active.add_batches(headers, done, config=self.config, now_ms=self.now_ms)
            except OSError as error:  # as in _assign
                raise self.failed_by(error) from error
            if taken > done:
                if run.has_producers:
                    begin = position
                    for header in headers[done:taken]:
                        end = begin + header[BATCH_LENGTH_FIELD] + LOG_OVERHEAD_BYTES
                        self._note_producer(new_tuple(BatchHeader, header), view[begin:end])
                        begin = end
                last = headers[taken - 1]
                self.log_end_offset = Offset(last[BASE_OFFSET_FIELD] + last[LAST_OFFSET_DELTA_FIELD] + 1)
                stop = position + active.size_bytes - size_before
                self._write_or_keep(view[position:stop])
                position, done = stop, taken
            if done == len(headers):
                return
            self.roll(self.now_ms)

    def _write_or_keep(self, batches: memoryview) -> None:
        """Write what ends at the log end from where it lies; where a slow flush holds it back, keep a copy."""
        if not self._pending and not self.is_held_back:
            try:
                self._write((batches,))
            except OutOfDescriptors:
                logger.debug("%s: a write waits for a descriptor", self.directory)
            except DiskFull:
                self._pending.append(bytes(batches))
                self._pending_bytes += len(batches)
                raise
            else:
                return
        self._pending.append(bytes(batches))
        self._pending_bytes += len(batches)
        if self._pending_bytes >= PENDING_BYTES_MAX:
            self.write_pending()

    def write_pending(self, *, is_forced: bool = False) -> None:
        """Write what is queued, with one system call. It may be delayed, unless forced: by a slow flush, or
        for want of a descriptor.

        Raises StorageFailed, now and from then on; DiskFull on a full disk, where it may be called again; if forced,
        OutOfDescriptors.
        """
        pending = self._pending
        if not pending:
            return
        if not is_forced and self._pending_bytes < HELD_BYTES_MAX and self.is_held_back:
            return
        self.refuse_if_failed()
        try:
            self._write(pending)
        except OutOfDescriptors:
            if is_forced:
                raise
            return
        self._pending = []
        self._pending_bytes = 0

    @property
    def is_held_back(self) -> bool:
        """Whether a slow flush is in the way of a write: it might wait for that, and could not count sooner."""
        flush_round = self.durability.flush_round
        return flush_round is not None and flush_round.is_slow()

    def drop_unwritten(self) -> None:
        """Forget what is queued: the log is about to end before it."""
        self._pending, self._pending_bytes = [], 0

    def _write(self, parts: Sequence[Buffer]) -> None:
        """Write all that is not written yet. Raises StorageFailed; OutOfDescriptors before anything is written, DiskFull with
        nothing of it left in the file."""
        active = self.active
        size_bytes = active.file.size_bytes
        try:
            active.file.append(parts)
        except OSError as error:
            if is_disk_full(error):
                active.file.truncate(size_bytes)
            raise self._refuse(error) from error
        self.durability.written_end_offset = self.log_end_offset
        active.remember(self.log_end_offset, active.size_bytes)

    def _append_internal(self, batches: Buffer, leader_epoch: Epoch, now_ms: int) -> AppendResult:
        """Batches that the broker made: control records may be among them, sequences are not judged. Raises InvalidProducerEpoch and
        InvalidTransactionState for offsets that a producer commits behind the marker that ended their transaction."""
        record_count, size_bytes = 0, 0
        first_offset, greatest_ms, append_time_ms = self.log_end_offset, -1, -1
        for header, body in check_internal_batches(batches):
            if header.producer_id >= 0 and not header.is_control:
                self.producers.check_epoch(header.producer_id, header.producer_epoch)
                self.producers.check_transactional(
                    producer_id=header.producer_id,
                    epoch=header.producer_epoch,
                    is_transactional=header.is_transactional,
                )
            result = self._assign(header, body, leader_epoch, now_ms)
            record_count += result.record_count
            size_bytes += result.size_bytes
            greatest_ms = max(greatest_ms, result.max_timestamp_ms)
            append_time_ms = result.log_append_time_ms
        last_offset = Offset(self.log_end_offset - 1)
        return AppendResult(first_offset, last_offset, greatest_ms, append_time_ms, record_count, size_bytes, False)

    def _assign(self, header: HeaderFields, body: bytes, leader_epoch: Epoch, now_ms: int) -> AppendResult:
        """Put a sound batch at the end, with its offsets, epoch and perhaps its time: segment, producers, log end. Its bytes wait
        for write_pending.
        """
        _, length, _, _, crc, attributes, delta, base_time_ms, max_time_ms, producer_id, epoch, sequence, count = header
        size = length + LOG_OVERHEAD_BYTES
        config = self.config
        if size > config.segment_bytes:
            raise BatchPassesSegment(f"a batch of {size} bytes passes segment.bytes={config.segment_bytes}")
        if self._pending_bytes >= HELD_BYTES_MAX:
            self.write_pending(is_forced=True)
        base_offset = self.log_end_offset
        append_time_ms = -1
        if config.message_timestamp_type is _LOG_APPEND_TIME:
            append_time_ms = max_time_ms = now_ms
            changed = bytearray(body)
            attributes |= LOG_APPEND_TIME_FLAG
            changed[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big", signed=True)
            changed[_MAX_TIMESTAMP_AT : _MAX_TIMESTAMP_AT + 8] = now_ms.to_bytes(8, "big", signed=True)
            body = bytes(changed)
            crc = crc32c(body)
        last_offset: Offset = base_offset + delta  # type: ignore[assignment]  # a cast per batch would be a call
        active = self.active
        try:
            is_over = active.should_roll(
                config, size_bytes=size, last_offset=last_offset, max_timestamp_ms=max_time_ms, now_ms=now_ms
            )
        except OSError as error:  # when its records begin is read once, from its file
            raise self.failed_by(error) from error
        if is_over:
            active = self.roll(now_ms)
        active.add_batch(last_offset, max_time_ms, size)
        if producer_id >= 0:
            stamped = (base_offset, length, leader_epoch, MAGIC, crc, attributes, delta, base_time_ms, max_time_ms)
            whole = (*stamped, producer_id, epoch, sequence, count)
            batch: Sequence[Buffer] = (_pack_prefix(base_offset, length, leader_epoch, MAGIC, crc), body)
            self._note_producer(new_tuple(BatchHeader, whole), batch)
        pending = self._pending
        pending.append(_pack_prefix(base_offset, length, leader_epoch, MAGIC, crc))
        pending.append(body)
        self._pending_bytes += size
        self.log_end_offset = last_offset + 1  # type: ignore[assignment]
        if self._pending_bytes >= PENDING_BYTES_MAX:
            # without room it stays queued, as it does until the next write
            with contextlib.suppress(DiskFull):
                self.write_pending()
        return new_tuple(AppendResult, (base_offset, last_offset, max_time_ms, append_time_ms, count, size, False))

    def _note_producer(self, header: BatchHeader, parts: Sequence[Buffer] | memoryview) -> None:
        """A producer's batch is appended to the active segment."""
        batch: Buffer = b""
        if header.is_control:
            batch = parts if isinstance(parts, memoryview) else b"".join(parts)
        aborted = note_producer(self.producers, header, batch)
        if aborted is not None:
            self.aborted.add(aborted, self.active.base_offset)

    def roll(self, now_ms: int, *, is_due: bool = False) -> LogSegment:
        """Close the active segment and start one at the log end; the old one waits for the next flush round.

        While the name of the active one is not durable it takes more instead, up to twice its size, unless the roll is due
        now, so that names seldom pile up: to flush them here blocks the loop for as long as the disk takes. It is done where
        no flush runs, where too many names have piled up, and where a cut is not flushed yet: a crash that undid it could put a
        later segment behind what was cut. (Else a later segment whose predecessor's name is lost follows nothing: recovery
        removes it.) Returns the active segment.
        """
        old, durability = self.active, self.durability
        is_flushing = False
        if durability.unnamed:
            is_flushing = old.is_outgrowing or self.listener.begin_flush(self._log)
            if is_flushing and not is_due and not old.is_outgrowing:
                old.is_outgrowing = True
                return old
        self.write_pending(is_forced=True)
        unnamed = durability.unnamed
        try:
            self.disk.ensure_descriptors(STEP_DESCRIPTORS, self.directory)
            if unnamed and not (is_flushing and unnamed < UNNAMED_SEGMENTS_MAX and durability.is_cut_flushed):
                durability.sync_names()
            # In this order: each of the first three may find no room, and is then done again by the next try.
            old.finish()
            self.producers.end_offset = self.log_end_offset
            if self.may_snapshot_producers:
                durability.add_file(write_snapshot(self.disk, self.directory, self.producers))
            note = self.aborted.write_note(old.base_offset, self.log_end_offset)
            if note is not None:
                durability.add_file(note)
            active = LogSegment.create(self.disk, self.directory, self.log_end_offset, self.config, now_ms=now_ms)
            old.become_inactive()
        except OSError as error:
            raise self._refuse(error) from error
        old.is_outgrowing = False
        self.segments.add(active)
        self.active = active
        durability.add_segment(old)
        self.listener.on_segment_rolled(self._log)
        return active

    def _refuse(self, error: OSError) -> KafkaError:
        """The error for what can be tried again as it is: want of room is no failure there."""
        if is_disk_full(error) and self.listener.on_disk_full(self._log, error):
            return DiskFull(f"{self.directory}: {error}")
        return self.failed_by(error)

    def failed_by(self, error: OSError) -> KafkaError:
        """What to raise for an error of the disk: the log fails by it, unless only descriptors are wanting."""
        if is_out_of_descriptors(error):
            return OutOfDescriptors(f"{self.directory}: {error}")
        return self.failed_for_good_by(error)

    def failed_for_good_by(self, error: OSError) -> StorageFailed:
        """The same, during a step that cannot be tried again."""
        self.fail(error)
        self.listener.on_storage_failed(self._log, error)
        return StorageFailed(f"{self.directory}: {error}")

    # -- epochs and gaps ---------------------------------------------------------------------------------------------

    def assign_epoch_start(self, epoch: Epoch, offset: Offset) -> None:
        """Say that the records from `offset` on are of `epoch`; nothing happens if the epoch is not newer."""
        self.leader_epochs.assign(epoch, offset)
        self.latest_epoch = self.leader_epochs.latest

    def forget_empty_epochs(self) -> None:
        """Forget the epochs that began at the log end and wrote nothing."""
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self.latest_epoch = self.leader_epochs.latest

    @property
    def may_have_gaps(self) -> bool:
        """Whether batches may be missing between others: the log is compacted, was, or follows one that was; or it is
        not known yet what its topic asks for."""
        return self.config.is_compacted or self.has_gaps or self.takes_gaps or not self.has_settings

    # -- what truncation and repair do to it ---------------------------------------------------------------------------

    def grow(self, segment: LogSegment) -> None:
        """Append to that segment from now on: those behind it were cut off."""
        self.active = segment
        self.durability.forget_segment(segment)

    def end_at(self, offset: Offset) -> None:
        """End there: the files do. No end, epoch, doubt or flush under way may say more."""
        self.log_end_offset = offset
        self.durability.end_at(offset)
        if self.doubted_from >= offset:
            self.doubted_from = NO_OFFSET
        if self.active.damaged:
            self.active.damaged = tuple(damage for damage in self.active.damaged if damage.first_offset < offset)
        self.forget_empty_epochs()

    def start_over(self, segment: LogSegment) -> None:
        """That empty segment is all there is: nothing of before is known any more."""
        self.segments.replace_all(segment)
        self.active = segment
        self.doubted_from = NO_OFFSET
        self.producers.clear(segment.base_offset)
        self.aborted = AbortedTransactions(self.disk, self.directory)
        self.end_at(segment.base_offset)
        self.durability.start_over_at(segment.base_offset)

    def doubt_producers(self, offset: Offset) -> None:
        """Batches from `offset` on may have been damaged when the producer state was read from them."""
        self.doubted_from = offset if self.doubted_from == NO_OFFSET else min(self.doubted_from, offset)

    def take_producers(self, producers: ProducerState, high_watermark: Offset, *, is_sure: bool = False) -> None:
        """Go by a producer state that was read again; is_sure: from an undamaged log."""
        producers.note_high_watermark(high_watermark)
        self.producers = producers
        if is_sure:
            self.doubted_from = NO_OFFSET

    # -- failure -----------------------------------------------------------------------------------------------------

    def refuse_if_failed(self) -> None:
        """Raises StorageFailed once the disk under the log has failed."""
        if self.failure is not None:
            raise StorageFailed(f"{self.directory}: {self.failure}")

    def fail(self, error: OSError) -> None:
        """Take nothing more: the disk failed. What was not flushed must be taken for lost; a second flush that succeeds
        would lie, since the failed pages may be gone from memory."""
        if self.failure is None:
            self.failure = error
