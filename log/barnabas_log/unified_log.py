"""One partition's log on this disk: what its tail appends, read, bounded, flushed, closed.

May touch:  the parts of a log, disk.py.       Must not touch: asyncio, clocks, peers, other logs.
Invariants: log start <= high watermark <= log end; a segment's batches end where the next one begins; a read gives whole batches,
            and never what is known to be damaged.
Read next:  log_tail.py; segment.py; durability.py and flush.py for when bytes become durable; opening.py, truncating.py and
            retiring.py for how it begins and what goes.

One loop owns a log: every method is called there, except `close`, which may run in a disk thread while it has no
other user. `read` is the hot path of fetches, and flat on purpose.

Not obvious:
  - The epoch file and the indexes of the active segment lag behind on purpose: recovery makes them again from the
    recovery point on, so they are written before that point moves, not at every append.
  - Every step of several files asks for their descriptors first, and is refused whole (OutOfDescriptors).
  - A read never waits for bytes that a slow flush holds back: it ends at the written end.
  - Damage (a flipped bit) that is known stays in its file until it is repaired or cut off: reads end before it and answer
    CORRUPT_MESSAGE within it, and everything else of the log is served.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from barnabas_log.cleaner.swap import PendingSwap
from barnabas_log.config import LogConfig
from barnabas_log.directories.topic_witness import Identity, read_witnesses, witness_files, write_missing_witness
from barnabas_log.disk import Disk, File, FileRange
from barnabas_log.errors import (
    DiskFull,
    OffsetOutOfRange,
)
from barnabas_log.forgotten import ForgottenDeletions
from barnabas_log.recovery.recovery import (
    RecoveredLog,
    RecoveryReport,
)
from barnabas_log.recovery.scrub import DamagedRange, end_before_damage
from barnabas_log.tail.aborted_transactions import AbortedTransactions, write_files
from barnabas_log.tail.log_listener import LogListener
from barnabas_log.tail.log_tail import STEP_DESCRIPTORS, LogTail
from barnabas_log.tail.producer_snapshots import encode_snapshot, snapshot_path
from barnabas_log.tail.producer_state import ProducerState
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.tuples import new_tuple

_OFFSET_ZERO = Offset(0)
_unpack_offset = struct.Struct(">q").unpack


class LogRead(NamedTuple):
    """Whole batches. Every file of `parts` is acquired: whoever takes the read owes each a release."""

    parts: tuple[FileRange, ...]
    size_bytes: int
    base_offset: Offset
    """The base offset of the first batch, which holds the asked offset; the asked offset when there is nothing."""
    next_offset: Offset
    """Where to read on: the offset after the last batch, or the asked offset when there is nothing."""


class UnifiedLog:
    """The log of one partition. Get one with opening.py."""

    def __init__(
        self,
        *,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        identity: Identity,
        config: LogConfig,
        recovered: RecoveredLog,
        high_watermark: Offset,
        now_ms: int,
        listener: LogListener[UnifiedLog],
        is_new: bool,
    ) -> None:
        self.tail = LogTail(
            disk=disk,
            directory=directory,
            config=config,
            recovered=recovered,
            now_ms=now_ms,
            log=self,
            listener=listener,
            is_new=is_new,
        )
        """What appends. It alone changes what the properties below show."""
        self.disk = disk
        self.directory = directory
        self.leader_epochs = self.tail.leader_epochs
        self.durability = self.tail.durability
        self.segments = self.tail.segments
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        """ZERO_UUID while it is not known, or not surely."""
        self.identity = identity
        """How sure that is."""
        self.was_flushed = True
        """After a start: whether a checkpoint, or a clean stop, says that records of it were once durable."""
        self.recovery_report: RecoveryReport = recovered.report
        self.log_start_offset = recovered.log_start_offset
        """First offset that may be read."""
        self.is_start_doubted = recovered.is_start_doubted
        """Whether it may start later than this broker knows: its leader asks the other replicas."""
        self.high_watermark = min(max(high_watermark, recovered.log_start_offset), recovered.log_end_offset)
        self.is_closed = False
        self._removals: list[tuple[int, str]] = []
        self.clean_offset = _OFFSET_ZERO
        """Everything below was compacted by the last run of the cleaner."""
        self.forgotten = ForgottenDeletions(disk, directory)
        """Which deletions may be gone from it."""
        self.pending_swap: PendingSwap | None = None
        """The cleaner's swap under way, while its record may be on disk."""
        self.untimed: tuple[int, ...] = ()
        """Base offsets of segments that seem old enough to go, once their records are known to be: see retiring.py."""
        self.due_start = _OFFSET_ZERO
        """Where the last retention wants the log to start, once that is saved: see retiring.py."""
        self.is_retention_owed = False
        """Whether the next flush lets go of more than the last retention could."""
        self.damage: tuple[DamagedRange, ...] = ()
        """What is known to be damaged, rising; see repair.py."""
        self.producers.note_high_watermark(self.high_watermark)

    @property
    def config(self) -> LogConfig:
        """Its topic's settings."""
        return self.tail.config

    @property
    def log_end_offset(self) -> Offset:
        """Offset that the next record gets."""
        return self.tail.log_end_offset

    @property
    def active(self) -> LogSegment:
        """The segment that grows."""
        return self.tail.active

    @property
    def producers(self) -> ProducerState:
        """What is known of idempotent and transactional producers."""
        return self.tail.producers

    @property
    def aborted(self) -> AbortedTransactions:
        """Aborted transactions, for readers of committed records."""
        return self.tail.aborted

    @property
    def doubted_from(self) -> Offset:
        """See LogTail."""
        return self.tail.doubted_from

    @property
    def may_have_gaps(self) -> bool:
        """See LogTail."""
        return self.tail.may_have_gaps

    # -- read ------------------------------------------------------------------------------------------------------

    def read(self, offset: Offset, *, bytes_max: int, end: Offset, at_least_one_batch: bool) -> LogRead:
        """Whole batches from the one that holds `offset`, below `end`, from one segment.

        end: exclusive bound, at a batch boundary: high watermark or LSO for consumers, log end for followers.
        at_least_one_batch: give one even if it passes bytes_max, so that a reader never starves.
        Raises OffsetOutOfRange, CorruptBatch or StorageFailed.
        """
        tail = self.tail
        if not self.log_start_offset <= offset <= tail.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is outside {self.log_start_offset}..{tail.log_end_offset}"
            )
        durability = self.durability
        if end > durability.written_end_offset:
            with contextlib.suppress(DiskFull):  # what is written can be read
                tail.write_pending()
            if end > durability.written_end_offset:
                end = durability.written_end_offset
        if offset >= end:
            return LogRead((), 0, offset, offset)
        if self.damage:
            end = end_before_damage(self.damage, offset, end, of=self.topic_partition)
        try:
            segment = tail.active
            if offset < segment.base_offset:
                segment = self.segments.floor(offset)
                segment_end = self.segments.end_offset(segment, log_end_offset=tail.log_end_offset)
            else:
                segment_end = durability.written_end_offset
            file = segment.file
            # As find begins: most readers continue where they stopped, and are spared the call.
            position = segment.boundaries.get(offset, -1)
            base_offset = offset
            if position < 0:
                position, base_offset = segment.find(offset)
                if segment.is_index_doubted:
                    tail.listener.on_index_doubted(self, segment.base_offset)
            if end >= segment_end:
                end_position, next_offset = file.size_bytes, segment_end
            else:
                end_position, next_offset = segment.find(end)
            size = end_position - position
            if size > bytes_max:
                cut = segment.cut(position, limit=position + bytes_max)
                if cut == position and at_least_one_batch:
                    cut = position + segment.header_at(position).size_bytes
                size = cut - position
                if cut < end_position and size > 0:
                    (next_offset,) = _unpack_offset(file.read(cut, 8))
                    if not base_offset < next_offset <= segment_end and not segment.is_index_doubted:
                        segment.doubt_index()
                        return self.read(offset, bytes_max=bytes_max, end=end, at_least_one_batch=at_least_one_batch)
            if size <= 0:
                if segment.early_end is not None and offset >= segment.early_end and segment_end < end:
                    return self.read(segment_end, bytes_max=bytes_max, end=end, at_least_one_batch=at_least_one_batch)
                return LogRead((), 0, base_offset, offset)
            segment.remember(next_offset, position + size)
            file.acquire()
            return new_tuple(LogRead, ((new_tuple(FileRange, (file, position, size)),), size, base_offset, next_offset))
        except OSError as error:
            raise tail.failed_by(error) from error

    # -- epochs ----------------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> Epoch:
        """Newest leader epoch with a start in this log, -1 if there is none."""
        return self.tail.latest_epoch

    def end_offset_for_epoch(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """(largest epoch not above the asked, its end offset), or (-1, -1) if unknown (KIP-279)."""
        return self.leader_epochs.end_offset_for(epoch, log_end_offset=self.log_end_offset)

    # -- high watermark, truncation, retention -----------------------------------------------------------------------

    def update_high_watermark(self, offset: Offset) -> None:
        """Set the bound below which consumers read and retention retires; kept within log start and end."""
        tail = self.tail
        self.high_watermark = min(max(offset, self.log_start_offset), tail.log_end_offset)
        if tail.producers.ended:
            tail.producers.note_high_watermark(self.high_watermark)

    @property
    def last_stable_offset(self) -> Offset:
        """Where readers of committed records end: the high watermark, or the first transaction below it whose end may change."""
        producers = self.tail.producers
        if not producers.open_transactions and not producers.ended:
            return self.high_watermark
        first = producers.first_unstable_offset
        return self.high_watermark if first is None else min(self.high_watermark, max(first, self.log_start_offset))

    def delete_records_before(self, offset: Offset) -> None:
        """Move the log start up to `offset`; the segments before it go at the next retention.

        Nothing happens if it is there already. Raises OffsetOutOfRange past the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{offset} is past the high watermark {self.high_watermark}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            self.tail.listener.on_log_start_moved(self)

    def take_removals(self) -> list[tuple[int, str]]:
        """(after how many ms, path) of the files retired since the last call; the caller removes them, in a disk thread."""
        removals, self._removals = self._removals, []
        return removals

    def update_config(self, config: LogConfig) -> None:
        """Obey new settings from the next append or retention on."""
        self.tail.config = config
        self.tail.has_settings = True
        if config.is_compacted and not self.tail.has_gaps and any(each.early_end is not None for each in self.segments):
            self.tail.listener.on_gap(self)  # another cleaner was here, and an unclean start has to know
            self.tail.has_gaps = True
        self.active.index_interval_bytes = config.index_interval_bytes

    def take_topic_id(self, topic_id: Uuid) -> None:
        """Serve that topic from now on; the caller decides whether it may (topic_witness.fate_of). Raises OSError.

        A new or blank log gets both witnesses, durable with its next flush; of another the one that is missing is
        written again.
        """
        if self.identity is Identity.TOLD:
            said = read_witnesses(self.disk, self.directory, self.topic_partition)
            write_missing_witness(self.disk, self.directory, self.topic_partition, said)
        elif self.identity is Identity.BLANK:
            for name, content in witness_files(topic_id, self.topic_partition):
                file = self.disk.open(f"{self.directory}/{name}", create=True)
                if file.size_bytes:
                    file.truncate(0)
                file.append([content])
                self.durability.add_file(file)
            self.durability.note_names()
            self.durability.is_directory_durable = False  # nothing counts that a power cut leaves without its topic id
        self.topic_id, self.identity = topic_id, Identity.PROVED

    def expire_producers(self, *, now_ms: int, expiration_ms: int) -> int:
        """Forget idempotent producers silent for longer; returns how many."""
        return self.producers.expire(now_ms=now_ms, expiration_ms=expiration_ms)

    def retire(self, segment: LogSegment, *, delay_ms: int = 0, keeps_snapshot: bool = False) -> None:
        """Let a segment go: its files are renamed now and removed later, see take_removals."""
        self._removals.extend((delay_ms, path) for path in segment.mark_deleted(keeps_snapshot=keeps_snapshot))
        self.durability.forget_segment(segment)
        self.durability.note_names()

    # -- truncation, retirement, repair --------------------------------------------------------------------------------

    def end_at(self, offset: Offset) -> None:
        """The end was cut off the files, or all of it: nothing that knows of offsets knows any past `offset`."""
        self.tail.end_at(offset)
        self.clean_offset = min(self.clean_offset, offset)
        self.forgotten.end_at(offset)
        self.high_watermark = min(self.high_watermark, offset)
        if self.damage:
            self.damage = tuple(damage for damage in self.damage if damage.first_offset < offset)

    def start_over(self, segment: LogSegment) -> None:
        """That empty segment took the place of all others: the log is empty, and begins where it does."""
        self.tail.start_over(segment)
        offset = self.log_start_offset = self.high_watermark = segment.base_offset
        self.clean_offset = min(self.clean_offset, offset)
        self.is_start_doubted = False
        self.damage = ()
        self.forgotten.start_over()
        self.forgotten.end_at(offset)

    def begin_with_oldest(self) -> None:
        """The oldest segments were retired: nothing that knows of offsets knows any before those that are left."""
        base_offset = self.segments[0].base_offset
        self.log_start_offset = max(self.log_start_offset, base_offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        self.aborted.forget_before(base_offset)
        self.damage = tuple(damage for damage in self.damage if damage.end_offset > self.log_start_offset)
        self.tail.listener.on_log_start_moved(self)

    def know_damage(self, damage: Iterable[DamagedRange]) -> bool:
        """All that is known to be damaged, after a check or a repair; returns whether that is news."""
        before, self.damage = self.damage, tuple(sorted(damage))
        return self.damage != before

    # -- compaction ------------------------------------------------------------------------------------------------

    def end_swap(self) -> None:
        """Settle a swap before segments are cut off or retired: what is recorded of a swap must not reach beyond that.
        Blocks. Raises OSError."""
        swap = self.pending_swap
        if swap is not None:
            swap.abandon()
            swap.settle_now()
            self.pending_swap = None

    # -- durability ------------------------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would make anything durable that is not."""
        return self.durability.is_dirty(self.log_end_offset)

    @property
    def written_end_offset(self) -> Offset:
        """Everything below is in the file."""
        return self.durability.written_end_offset

    @property
    def flushed_end_offset(self) -> Offset:
        """Everything below is durable; also the recovery point."""
        return self.durability.flushed_end_offset

    def dirty_files(self) -> list[File]:
        """Write what is queued and say what must be flushed for `written_end_offset` to be durable.

        To be followed by one mark_flushed once all of them are flushed, with the written end as it is now; one flush of
        a log at a time. Raises StorageFailed, or OutOfDescriptors: then as if it had not been called.
        """
        with contextlib.suppress(DiskFull):  # what is written can be flushed
            self.tail.write_pending(is_forced=True)
        try:
            self.disk.ensure_descriptors(STEP_DESCRIPTORS, self.directory)
            if self.aborted.has_unwritten:
                self._write_aborted()
            return self.durability.begin_round(self.active)
        except OSError as error:
            raise self.tail.failed_by(error) from error

    def _write_aborted(self) -> None:
        for file in self.aborted.write():
            self.durability.add_file(file)
        self.durability.note_names()

    def mark_flushed(self, offset: Offset) -> None:
        """Say that the files of the last dirty_files are durable, and so all below `offset`, their written end then."""
        self.active.is_outgrowing = False
        self.durability.end_round(offset)

    @property
    def is_failed(self) -> bool:
        """Whether the disk under it has failed."""
        return self.tail.failure is not None

    def close(self) -> None:
        """Write and flush everything, blocking, and let go of the files; a failed log only lets go."""
        if self.is_closed:
            return
        try:
            if self.tail.failure is None:
                self.tail.write_pending(is_forced=True)
                self.active.finish()
                for file in (*self.dirty_files(), self.active.offset_index.file, self.active.time_index.file):
                    file.sync()
                self.producers.end_offset = self.log_end_offset
                if self.aborted:
                    write_files(self.disk, self.aborted.files_of(self.active.base_offset, self.log_end_offset))
                if self.tail.may_snapshot_producers:
                    path = snapshot_path(self.directory, self.log_end_offset)
                    self.disk.write_file_atomically(path, encode_snapshot(self.producers))
                self.leader_epochs.save()
                self.mark_flushed(self.written_end_offset)
        finally:
            self.release_files()

    def release_files(self) -> None:
        """Let go of the files and write nothing: of a log that is being deleted, or has failed."""
        self.is_closed = True
        self.durability.release()
        for segment in self.segments:
            segment.close()

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, what is queued included."""
        return self.segments.size_bytes

    @property
    def segment_count(self) -> int:
        """Segments, the active one included."""
        return len(self.segments)

    @property
    def producer_count(self) -> int:
        """Idempotent producers that are remembered."""
        return len(self.producers)

    @property
    def base_offsets(self) -> list[Offset]:
        """Base offsets of the segments, rising."""
        return [segment.base_offset for segment in self.segments]
