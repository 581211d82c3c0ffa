"""The end of one log goes: what lies from an offset on is cut off, or all of it.

May touch:  the log it is given, on the loop that owns it; its files, blocking.   Must not touch: asyncio, what decides where to cut.
Invariants: a log ends at a batch boundary; whatever knows of offsets (epochs, producers, aborted transactions, known damage, flush
            rounds) knows none past the new end when a cut is done; a log that starts over is the old or the new after a crash.
Read next:  unified_log.py; durability.py for what a round under way may claim; replication's truncation.py, which says where.
"""

from __future__ import annotations

import logging

from barnabas_log.directories.checkpoints import START_OVER_FILE, write_start_over
from barnabas_log.errors import CorruptCheckpoint, DiskFull
from barnabas_log.recovery.segment_proof import Gaps, rebuild_segment
from barnabas_log.tail.log_tail import STEP_DESCRIPTORS
from barnabas_log.tail.producer_replay import load_producers
from barnabas_log.tail.producer_snapshots import remove_snapshots_after
from barnabas_log.tail.segment import BatchPlace, LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import NO_OFFSET, Offset

logger = logging.getLogger(__name__)


def truncate_to(log: UnifiedLog, offset: Offset) -> None:
    """Drop every batch that holds `offset` or a later one; the log then ends at that batch's base offset, or where the one before it
    ends if compaction left a gap between.

    Nothing happens at or past the log end. Below the log start, the log becomes empty at `offset`; within the batch of the
    log start, empty there.
    Raises StorageFailed.
    """
    if offset >= log.log_end_offset:
        # An epoch that began here and wrote nothing must go all the same: it may contradict the new leader's.
        log.tail.forget_empty_epochs()
        return
    if offset < log.log_start_offset:
        truncate_fully_and_start_at(log, offset)
        return
    for damage in log.damage:
        if damage.first_offset < offset < damage.end_offset:
            offset = damage.first_offset  # where its batches begin is not known any more
    try:
        log.tail.write_pending(is_forced=True)
    except DiskFull:
        # Nothing was promised of what was never in the file: the log may as well end before it.
        log.tail.drop_unwritten()
        if offset >= log.written_end_offset:
            _cut_unwritten(log)
            return
    try:
        log.disk.ensure_descriptors(STEP_DESCRIPTORS, log.directory)
        log.end_swap()
        for segment in log.segments.take_from(offset):
            log.retire(segment)
        active = log.segments.active
        if active is not log.active:
            log.tail.grow(active)
            _load_indexes(log, active)
        place = active.find(offset)
        if log.may_have_gaps:  # where the batch before ends: a segment ends where the next one begins
            place = BatchPlace(place.position, active.end_before(place))
        if place.base_offset < log.log_start_offset:
            truncate_fully_and_start_at(log, log.log_start_offset)
            return
        active.truncate_to(place)
        log.durability.note_cut()
        lowered = place.base_offset < log.flushed_end_offset
        log.end_at(place.base_offset)
        remove_snapshots_after(log.disk, log.directory, place.base_offset)
        _cut_aborted(log, place.base_offset)
        _cut_producers(log, place.base_offset)
    except OSError as error:
        raise log.tail.failed_by(error) from error
    if lowered:
        log.tail.listener.on_recovery_point_lowered(log)


def _cut_unwritten(log: UnifiedLog) -> None:
    """End where the file ends: what was queued is dropped."""
    active, end = log.active, log.written_end_offset
    try:
        active.truncate_to(BatchPlace(active.file.size_bytes, end))
        _cut_aborted(log, end)
        _cut_producers(log, end)
    except OSError as error:
        raise log.tail.failed_by(error) from error
    log.durability.note_cut()
    log.end_at(end)


def _cut_producers(log: UnifiedLog, end: Offset) -> None:
    if not log.producers.truncate_to(end):
        producers = load_producers(
            log.disk,
            log.directory,
            list(log.segments),
            end_offset=end,
            high_watermark=min(log.high_watermark, end),
        )
        log.tail.take_producers(producers, log.high_watermark)


def _cut_aborted(log: UnifiedLog, offset: Offset) -> None:
    file = log.aborted.truncate_to(offset, log.active.base_offset)
    if file is not None:
        log.durability.add_file(file)


def truncate_fully_and_start_at(log: UnifiedLog, offset: Offset) -> None:
    """Drop everything; the log is then empty and starts at `offset`, durably, unless its directory was made since and not
    flushed: that it begins there counts only with the first flush then. Blocks for some six flushes. Raises StorageFailed."""
    if offset < 0:
        raise InvariantViolated(f"{log.directory}: no log starts at {offset}")
    log.tail.refuse_if_failed()
    try:
        log.disk.ensure_descriptors(STEP_DESCRIPTORS, log.directory)
        log.end_swap()
    except OSError as error:
        raise log.tail.failed_by(error) from error
    log.tail.drop_unwritten()
    try:
        # A crash may keep the old names' going and lose the new one, and a full disk may refuse the new one: the log would
        # begin at 0. From here on recovery does the rest, so the record goes before anything is appended, durably.
        start_over = f"{log.directory}/{START_OVER_FILE}"
        write_start_over(log.disk, start_over, offset)
        for segment in log.segments:
            log.retire(segment)
        remove_snapshots_after(log.disk, log.directory, NO_OFFSET)
        active = LogSegment.create(log.disk, log.directory, offset, log.config, now_ms=log.tail.now_ms)
        log.leader_epochs.clear()
        # Before anything is appended: beside a higher epoch in the file, opening takes a lower one for a torn end.
        log.leader_epochs.save()
        log.disk.sync_directory(log.directory)
        log.disk.remove(start_over)
        log.disk.sync_directory(log.directory)
    except OSError as error:
        raise log.tail.failed_for_good_by(error) from error
    log.start_over(active)
    log.tail.listener.on_recovery_point_lowered(log)


def _load_indexes(log: UnifiedLog, segment: LogSegment) -> None:
    try:
        segment.become_active()
    except (CorruptCheckpoint, FileNotFoundError) as error:
        logger.warning("%s; making the indexes of %s again", error, segment.file.path)
        gaps = Gaps.KNOWN if log.may_have_gaps else Gaps.UNTOLD
        rebuild_segment(segment, None, flushed_end=log.flushed_end_offset, gaps=gaps)
