"""Opening a partition directory: after a clean stop quickly, after any other stop with proof.

May touch:  the Disk and the parts of a log.   Must not touch: clocks, peers, the loop (it runs in a disk thread).
Invariants: what comes out is a prefix of what was appended, at least up to the recovery point unless the disk itself lost
            bytes; every batch from the recovery point on is proved by its CRC; doing it twice gives the same.
Read next:  opening.py, the one caller.

After an unclean stop, from the segment that ends at or after the recovery point:
  1. every batch: length, magic, CRC, offset rising, epoch not falling; the first that fails ends the log there
  2. indexes, leader epochs and producer state are made again from the batches
  3. later segments go: a lost flush may have kept a later file and lost an earlier one. Not where the recovery point is not known
  4. all that was kept is flushed, so that the end found may count as durable
  5. where the newest segment has no snapshot of the producers left, one is written: retention may take what it was read from

Before all that, swaps of compacted segments that a stop cut short are finished or undone (cleaner/swap.py), and a log that was to
start over does (truncating.py).

Not obvious:
  - The leader epoch file is a copy of what the batches bear, without a checksum: a few headers for each of its entries are compared
    at each start, and where one says otherwise all epochs are read from the batches again (epoch_proof.py).
  - Offsets need not continue from one batch to the next: compaction, here or on the leader, leaves gaps, and no gap ends a log
    (segment_proof.py). A segment ends where the next begins all the same, or its tail or the next one's file is lost, or Kafka's
    cleaner wrote it (early_end.py). Which logs have gaps, cleaner-offset-checkpoint says, before they have the first; where that
    file is lost the gaps themselves do.
  - Without a recovery point (its file is gone or cannot be read) all may have been flushed, and acknowledged: each batch is read,
    nothing sound is cut, and what is not sound before a sound batch is damage, to be repaired from another replica. Only bytes
    behind the last sound batch are cut. Of what was committed above that the high watermark still tells, if its file is there.
  - An epoch that falls is how the old tail shows that was truncated, then overwritten in part before a power cut.
  - What is not sound below the recovery point is bit rot or a disk that lied, not a torn tail. It is not cut off, for it may be
    committed, and what lies behind it is sound: it stays as a damaged range, which is refetched from another replica or
    answered with CORRUPT_MESSAGE (Kafka cuts the log there). The log never ends before its recovery point for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from barnabas_log.cleaner.swap import finish_swaps
from barnabas_log.config import LogConfig
from barnabas_log.directories.checkpoints import LEADER_EPOCHS_FILE, START_OVER_FILE, read_start_over, write_epochs
from barnabas_log.disk import Disk
from barnabas_log.errors import CorruptCheckpoint
from barnabas_log.forgotten import FORGOTTEN_DELETIONS_FILE
from barnabas_log.read.early_end import Tail, is_early, named_end
from barnabas_log.recovery.aborted_proof import remake_aborted
from barnabas_log.recovery.epoch_proof import batch_from, first_epoch, load_epochs
from barnabas_log.recovery.scrub import DamagedRange
from barnabas_log.recovery.segment_proof import Gaps, note_damaged_tail, rebuild_segment
from barnabas_log.tail.aborted_transactions import TXN_INDEX_SUFFIX, AbortedTransactions
from barnabas_log.tail.leader_epochs import LeaderEpochs
from barnabas_log.tail.producer_replay import keep_producers, load_producers
from barnabas_log.tail.producer_snapshots import list_snapshots, snapshot_path
from barnabas_log.tail.producer_state import ProducerState
from barnabas_log.tail.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    NOTE_SUFFIXES,
    REPAIR_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    LogSegment,
    is_offset_name,
    segment_path,
)
from barnabas_log.tail.segments import Segments
from barnabas_wire.kafka.ids import NO_OFFSET, Offset
from barnabas_wire.records.batch import HEADER_BYTES, MAGIC, CorruptBatch

logger = logging.getLogger(__name__)

_UNKNOWN = Offset(1 << 62)
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, *NOTE_SUFFIXES)


class RecoveryReport(NamedTuple):
    """What recovery found."""

    scanned_bytes: int
    truncated_bytes: int
    """Cut off, whole later segments included."""
    is_flushed_data_lost: bool
    """Whether something below the recovery point is damaged or missing: the disk lost what it had confirmed."""
    missing_from: Offset = NO_OFFSET
    """Where the log ends, if that is below its recovery point and no bytes are left of what was there; NO_OFFSET when not so."""


class RecoveredLog(NamedTuple):
    """The parts of a log, consistent with each other and with the files."""

    segments: Segments
    leader_epochs: LeaderEpochs
    producers: ProducerState
    aborted: AbortedTransactions
    log_start_offset: Offset
    log_end_offset: Offset
    report: RecoveryReport
    damage: tuple[DamagedRange, ...] = ()
    """What is not sound below the recovery point."""
    has_gaps: bool = False
    """Whether offsets are known to be missing between batches, for compaction took them."""
    is_start_doubted: bool = False
    """Whether the leader epochs were once those of a log that started later."""


def recover_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    recovery_point: Offset | None,
    log_start_offset: Offset,
    high_watermark: Offset,
    is_clean_shutdown: bool,
    keeps_damage: bool = True,
    may_have_gaps: bool | None = False,
    is_log_start_proved: bool = True,
    is_recovery_point_proved: bool = False,
) -> RecoveredLog:
    """Open the partition directory, which exists; an empty one becomes an empty log at `log_start_offset`.

    recovery_point: None where it is lost.
    may_have_gaps: whether cleaner-offset-checkpoint names the log; None where that file is not there.
    is_log_start_proved: whether a checksum vouches for that number; else no log is emptied because it ends before it.
    is_recovery_point_proved: whether one vouches for that number, and the caller tells whoever must know where less is there: then a
    log whose bytes are gone ends where they do. Else what is gone stays as damage, too, so that its offsets are not given again.
    keeps_damage: what is not sound below the recovery point stays as damage, to be repaired from another replica; else the log
    ends before it, and its offsets have no gaps.

    Blocks; raises OSError when the disk fails.
    """
    finish_swaps(disk, directory)
    started_over = _finish_starting_over(disk, directory, config, now_ms=now_ms)
    if started_over is not None:
        recovery_point = log_start_offset = started_over
    if not keeps_damage:
        bounds, gaps = _Bounds(recovery_point or Offset(0), Offset(0), Offset(0)), Gaps.NEVER
    else:
        gaps = {True: Gaps.KNOWN, False: Gaps.UNTOLD, None: Gaps.UNKNOWN}[may_have_gaps]
        if recovery_point is None:
            bounds, recovery_point = _Bounds(Offset(0), high_watermark, _UNKNOWN), high_watermark
        else:
            bounds = _Bounds(recovery_point, recovery_point, recovery_point)
    recovery_point = recovery_point or Offset(0)
    bases, lost_bases = _sweep(disk, directory, begins_at=log_start_offset if keeps_damage else None)
    segments = [LogSegment.open(disk, directory, base, config, now_ms=now_ms) for base in bases]
    if not segments:
        is_missing = recovery_point > log_start_offset
        report = RecoveryReport(0, 0, is_missing, log_start_offset if is_missing else NO_OFFSET)
        epochs = LeaderEpochs(disk, f"{directory}/{LEADER_EPOCHS_FILE}")
        epochs.is_dirty = True
        return _start_empty(disk, directory, config, epochs, now_ms=now_ms, at=log_start_offset, report=report)
    indexed = len(segments) if is_clean_shutdown else _first_to_prove(segments, bounds.recovery_point)
    epochs, told_start = load_epochs(
        disk, f"{directory}/{LEADER_EPOCHS_FILE}", segments, indexed=indexed, log_start_offset=log_start_offset
    )
    saved = list(epochs.entries)
    if is_clean_shutdown:
        end_offset, report = _check_clean(segments, epochs, bounds, lost_bases, gaps)
    else:
        end_offset, report = _prove(disk, directory, segments, epochs, bounds, lost_bases, gaps)
    if end_offset < recovery_point:
        report = report._replace(is_flushed_data_lost=True)
    is_end_damaged = end_offset < recovery_point and recovery_point > log_start_offset
    is_cut_off = is_end_damaged and _is_cut_off(segments[-1])
    if is_cut_off:
        report = report._replace(missing_from=end_offset)
        if is_recovery_point_proved:
            report = report._replace(truncated_bytes=report.truncated_bytes + _cut_tail(segments[-1]))
            segments[-1].file.sync()
    if (
        keeps_damage
        and is_end_damaged
        and report.is_flushed_data_lost
        and not (is_cut_off and is_recovery_point_proved)
    ):
        # The end of what was flushed is damaged: it stays as such, and the log continues behind it.
        note_damaged_tail(segments[-1], end_offset, recovery_point)
        segments[-1].become_inactive()
        segments.append(LogSegment.create(disk, directory, recovery_point, config, now_ms=now_ms))
        disk.sync_directory(directory)
        end_offset = recovery_point
    if end_offset < log_start_offset and not is_log_start_proved:
        logger.error(
            "%s ends at %d, before the start %d that its checkpoint names and no checksum vouches for: it starts where its "
            "segments do",
            directory,
            end_offset,
            log_start_offset,
        )
        log_start_offset = segments[0].base_offset
    if end_offset < log_start_offset:
        logger.warning("%s ends at %d, before its start %d: starting empty", directory, end_offset, log_start_offset)
        for segment in segments:
            _remove(disk, segment)
        for offset in list_snapshots(disk, directory):
            disk.remove(snapshot_path(directory, offset))
        return _start_empty(disk, directory, config, epochs, now_ms=now_ms, at=log_start_offset)
    start_offset = max(log_start_offset, segments[0].base_offset)
    is_start_doubted = False
    if start_offset < told_start <= end_offset:
        with suppress(CorruptBatch, FileNotFoundError):
            first = batch_from(segments, start_offset)
            is_start_doubted = (
                first is not None and first.base_offset < told_start and first.partition_leader_epoch >= 0
            )
    damage = tuple(damage for segment in segments for damage in segment.damaged)
    for epoch, start in saved:
        # The batch that began it cannot be read, but its start was saved before it. Without it this replica would take committed
        # records for an older epoch's, cut them as a follower, and as a leader have others cut theirs.
        if any(each.first_offset <= start < each.end_offset for each in damage):
            if epoch > epochs.latest and all(known <= start for _, known in epochs.entries):
                epochs.assign(epoch, start)
            else:
                epochs.learn(epoch, start)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    _remove_spare_snapshots(disk, directory, {segment.base_offset for segment in segments}, end_offset)
    producers = load_producers(
        disk,
        directory,
        segments,
        end_offset=end_offset,
        high_watermark=min(high_watermark, end_offset),
        known_from=max((each.end_offset for each in damage if each.end_offset <= start_offset), default=NO_OFFSET),
    )
    producers.date_by_records()
    bases = [segment.base_offset for segment in segments]
    aborted = AbortedTransactions.load(disk, directory, bases, end_offset=end_offset)
    aborted.correct(producers.begin_offset, producers.aborted, bases)
    for base in aborted.unsound:
        remake_aborted(
            aborted, disk, directory, segments, base, end_offset=end_offset, known_from=producers.begin_offset
        )
    if not is_clean_shutdown and not damage and len(segments) > 1 and len(producers):
        keep_producers(disk, directory, producers, since=segments[-1].base_offset)
    if damage:
        logger.error(
            "%s: damaged below its recovery point %d: %s", directory, recovery_point, "; ".join(map(str, damage))
        )
    has_gaps = bool(may_have_gaps) or any(segment.has_gaps for segment in segments)
    return RecoveredLog(
        Segments(segments),
        epochs,
        producers,
        aborted,
        start_offset,
        end_offset,
        report,
        damage,
        has_gaps,
        is_start_doubted,
    )


def starts_over_at(disk: Disk, directory: str) -> Offset | None:
    """Where opening starts the log over, because a stop cut that short; None where it opens what it finds."""
    try:
        return read_start_over(disk, f"{directory}/{START_OVER_FILE}")
    except CorruptCheckpoint as error:
        logger.warning("%s; the log stays as it is found", error)
        return None


def _finish_starting_over(disk: Disk, directory: str, config: LogConfig, *, now_ms: int) -> Offset | None:
    """Where there is a record that the log was to start over: do so, whatever of it was done. Returns the offset, or None."""
    offset = starts_over_at(disk, directory)
    if offset is not None:
        logger.info("%s: starting over at %d", directory, offset)
        for name in disk.list_directory(directory):
            stem, dot, suffix = name.partition(".")
            if stem.isdecimal() and dot + suffix in SEGMENT_SUFFIXES:
                disk.remove(f"{directory}/{name}")
        LogSegment.create(disk, directory, offset, config, now_ms=now_ms).close()
        write_epochs(disk, f"{directory}/{LEADER_EPOCHS_FILE}", ())
        disk.sync_directory(directory)
    path = f"{directory}/{START_OVER_FILE}"
    if disk.exists(path):
        disk.remove(path)
        disk.sync_directory(directory)
    return offset


def _sweep(disk: Disk, directory: str, *, begins_at: Offset | None) -> tuple[list[Offset], list[Offset]]:
    """Remove what a deletion or a half-made file left. Returns the base offsets, rising; and those of segments whose log file is lost
    between others: their indexes stay, for they tell that loss from what Kafka's cleaner leaves out.

    begins_at: where the log starts, None where what lies before the first log file does not matter. No segment is retired before it is
    durable that the log starts behind it: one that reaches further and has indexes alone is lost, and gets an empty log file.
    """
    names = disk.list_directory(directory)
    bases = sorted(Offset(int(name[:-4])) for name in names if name.endswith(LOG_SUFFIX) and is_offset_name(name[:-4]))
    known = {f"{base:020d}" for base in bases}
    orphans: dict[Offset, list[str]] = {}
    for name in names:
        if name == FORGOTTEN_DELETIONS_FILE:
            continue
        stem, dot, suffix = name.partition(".")
        is_orphan_index = dot + suffix in _INDEX_SUFFIXES and stem not in known
        if is_orphan_index and is_offset_name(stem) and bases and int(stem) < bases[-1]:
            orphans.setdefault(Offset(int(stem)), []).append(name)
        elif name.endswith((DELETED_SUFFIX, REPAIR_SUFFIX, ".tmp")) or is_orphan_index:
            disk.remove(f"{directory}/{name}")
    for base in sorted(orphans, reverse=True):
        if base > bases[0]:
            continue
        if begins_at is None or bases[0] <= begins_at:
            for name in orphans.pop(base):
                disk.remove(f"{directory}/{name}")
        else:
            disk.open(segment_path(directory, base, LOG_SUFFIX), create=True).close()
            bases.insert(0, base)
    return bases, sorted(orphans)


def _remove_spare_snapshots(disk: Disk, directory: str, bases: set[Offset], end_offset: Offset) -> None:
    """Those past the end, and of the others all but the newest and those of segments, which go with them: every clean stop
    leaves one."""
    newest = NO_OFFSET
    for offset in reversed(list_snapshots(disk, directory)):
        if offset <= end_offset and newest < 0:
            newest = offset
        elif offset not in bases or offset > end_offset:
            disk.remove(snapshot_path(directory, offset))


def _first_to_prove(segments: list[LogSegment], recovery_point: Offset) -> int:
    """Strictly below: data that was flushed up to a base may have been flushed before the roll, so without the indexes."""
    return max(0, sum(segment.base_offset < recovery_point for segment in segments) - 1)


def _is_cut_off(segment: LogSegment) -> bool:
    """Whether what followed the sound part of the log's end is gone, and not only damaged: not even a header with as many bytes as it
    names is left."""
    left = segment.file.size_bytes - segment.size_bytes
    if left < HEADER_BYTES:
        return True
    try:
        header = segment.header_at(segment.size_bytes)
    except CorruptBatch:
        return True
    return header.magic != MAGIC or header.size_bytes > left


def _start_empty(
    disk: Disk,
    directory: str,
    config: LogConfig,
    epochs: LeaderEpochs,
    *,
    now_ms: int,
    at: Offset,
    report: RecoveryReport = RecoveryReport(0, 0, False),  # noqa: B008 - immutable
) -> RecoveredLog:
    epochs.clear()
    producers = ProducerState()
    producers.clear(at)
    segment = LogSegment.create(disk, directory, at, config, now_ms=now_ms)
    aborted = AbortedTransactions(disk, directory)
    return RecoveredLog(Segments([segment]), epochs, producers, aborted, at, at, report)


class _Bounds(NamedTuple):
    """What a stop may have left undone."""

    recovery_point: Offset
    """All below was flushed; 0 where that is not known."""
    promised_end: Offset
    """A log that ends below has lost something."""
    kept_end: Offset
    """The offset below which nothing is cut; _UNKNOWN where all may have been flushed."""


def _check_clean(
    segments: list[LogSegment], epochs: LeaderEpochs, bounds: _Bounds, lost_bases: Sequence[Offset], gaps: Gaps
) -> tuple[Offset, RecoveryReport]:
    """After a clean stop every file is whole; what a person removed or a copy lost is made again, and what rotted meanwhile is
    noted as damage where this look at the end of the log finds it."""
    scanned_bytes, recovery_point = 0, bounds.recovery_point
    for number, segment in enumerate(segments[:-1]):
        if _open_sealed(segment, segments[number + 1].base_offset, lost_bases, gaps):
            logger.warning("the indexes of %s were lost or not its own, they are made again", segment.file.path)
            scanned_bytes += segment.file.size_bytes
        _settle(segment)
    active = segments[-1]
    try:
        active.become_active()
        last = active.offset_index.last()
        end_offset, stop = active.base_offset, 0
        start = last[1] if last is not None else 0
        if (
            last is not None and gaps is Gaps.UNKNOWN
        ):  # whether one is before the last batch: later it could not be told from rot
            start = active.offset_index.position_at_or_before(active.base_offset + last[0] - 1)
        for position, header in active.headers(start):
            if header.base_offset < end_offset:
                raise CorruptBatch(
                    f"{active.file.path} has offset {header.base_offset} at byte {position}, below {end_offset}"
                )
            if header.base_offset != end_offset and (position > start or not start):
                active.has_gaps = True
            end_offset, stop = header.next_offset, position + header.size_bytes
        if stop != active.file.size_bytes:  # of a log that was being deleted, and whose deletion a power cut undid
            raise CorruptBatch(f"{active.file.path} goes on behind its last batch, which ends at byte {stop}")
        if last is not None and end_offset <= active.base_offset + last[0]:
            raise CorruptCheckpoint(f"{active.offset_index.path} names offsets after the end {end_offset}")
        if end_offset < recovery_point or 0 < recovery_point < end_offset:  # 0: there is no checkpoint
            raise CorruptCheckpoint(
                f"{active.file.path} ends at offset {end_offset}, it was stopped at {recovery_point}"
            )
        truncated_bytes = 0
    except (CorruptCheckpoint, CorruptBatch, FileNotFoundError) as error:
        logger.warning("%s after a clean stop: %s; making its indexes again", active.file.path, error)
        scanned_bytes += active.file.size_bytes
        epochs.truncate_from_end(active.base_offset)
        end_offset = rebuild_segment(active, epochs, flushed_end=max(recovery_point, bounds.kept_end), gaps=gaps)
        truncated_bytes = _cut_tail(active) if end_offset >= recovery_point else 0
    is_flushed_data_lost = bool(truncated_bytes or active.damaged or end_offset < recovery_point)
    return end_offset, RecoveryReport(scanned_bytes, truncated_bytes, is_flushed_data_lost)


def _prove(
    disk: Disk,
    directory: str,
    segments: list[LogSegment],
    epochs: LeaderEpochs,
    bounds: _Bounds,
    lost_bases: Sequence[Offset],
    gaps: Gaps,
) -> tuple[Offset, RecoveryReport]:
    """Check every batch from the segment of the recovery point on; `segments` keeps the sound ones, the last cut."""
    recovery_point, promised_end, kept_end = bounds
    first = _first_to_prove(segments, recovery_point)
    epochs.truncate_from_end(segments[first].base_offset)
    for offset in list_snapshots(disk, directory):
        if offset > segments[first].base_offset:  # may be of a tail that was truncated, its removal not yet durable
            disk.remove(snapshot_path(directory, offset))
    for number, segment in enumerate(segments[:first]):
        if _open_sealed(segment, segments[number + 1].base_offset, lost_bases, gaps):
            segment.offset_index.file.sync()
            segment.time_index.file.sync()
        _settle(segment)
    scanned_bytes = truncated_bytes = 0
    end_offset = segments[first].base_offset
    number = first
    early: list[tuple[LogSegment, Offset, Offset]] = []
    while number < len(segments):
        segment = segments[number]
        if segment.base_offset != end_offset:
            break
        scanned_bytes += segment.file.size_bytes
        named = _named_end(segment)
        number += 1
        following = segments[number].base_offset if number < len(segments) else NO_OFFSET
        # Above, a later segment may be the rest of one that was truncated.
        if following == NO_OFFSET or following > kept_end:
            end_offset = rebuild_segment(segment, epochs, flushed_end=kept_end, gaps=gaps)
        else:
            epoch_max = first_epoch(segments[number])
            end_offset = rebuild_segment(
                segment, epochs, flushed_end=following, following=following, epoch_max=epoch_max, gaps=gaps
            )
        if segment.has_gaps:
            gaps = Gaps.KNOWN
        if end_offset < following <= kept_end:
            tail = Tail(end_offset, segment.size_bytes)
            if _is_early(segment, tail, named, following, lost_bases):
                early.append((segment, end_offset, following))
            else:
                note_damaged_tail(segment, end_offset, following)
            end_offset = following
        elif end_offset < promised_end and end_offset != following:
            # Damaged to the end of what was flushed; its bytes stay, later segments cannot hold anything flushed.
            break
        cut_bytes = _cut_tail(segment)
        truncated_bytes += cut_bytes
        segment.file.sync()
        if number < len(segments) and segments[number].base_offset == end_offset:  # also behind garbage that was cut
            segment.become_inactive()
            segment.offset_index.file.sync()
            segment.time_index.file.sync()
            _settle(segment)
        elif cut_bytes:
            break
    for segment, end, following in early:
        if gaps is Gaps.KNOWN:
            segment.early_end = end
        else:  # it was not compacted: it has lost its tail
            note_damaged_tail(segment, end, following)
    for segment in segments[number:]:
        logger.warning("%s does not follow a sound segment: removing it", segment.file.path)
        truncated_bytes += segment.file.size_bytes
        _remove(disk, segment)
    del segments[number:]
    disk.sync_directory(directory)
    is_flushed_data_lost = end_offset < recovery_point or any(segment.damaged for segment in segments)
    if end_offset < recovery_point:
        logger.error("%s: flushed up to %d, but sound only up to %d", directory, recovery_point, end_offset)
    elif truncated_bytes and kept_end == _UNKNOWN:
        logger.warning(
            "%s: the recovery point is not known; cut %d bytes behind the last sound batch, at offset %d",
            directory,
            truncated_bytes,
            end_offset,
        )
    elif truncated_bytes:
        # no loss: these bytes were not acknowledged, and a kill leaves them in many logs at once
        logger.info("%s: cut %d unflushed bytes at offset %d", directory, truncated_bytes, end_offset)
    return end_offset, RecoveryReport(scanned_bytes, truncated_bytes, is_flushed_data_lost)


def _open_sealed(segment: LogSegment, following: Offset, lost_bases: Sequence[Offset], gaps: Gaps) -> bool:
    """Look at the end of a sealed segment and its indexes; returns whether those had to be made again."""
    named = _named_end(segment)
    tail = _tail_by_indexes(segment)
    is_rebuilt = tail is None
    if tail is None:
        end = rebuild_segment(segment, None, flushed_end=following, following=following, gaps=gaps)
        tail = Tail(end, segment.size_bytes)
        segment.size_bytes = segment.file.size_bytes
        segment.become_inactive()
    if _is_early(segment, tail, named, following, lost_bases):
        segment.early_end = tail.end_offset
    elif gaps is Gaps.NEVER:
        pass
    elif is_rebuilt and tail.end_offset < min(named, following) and not segment.damaged:
        note_damaged_tail(segment, tail.end_offset, following)  # once the indexes are made again nothing else shows it
    elif tail.stop == segment.file.size_bytes and any(tail.end_offset <= base < following for base in lost_bases):
        note_damaged_tail(segment, tail.end_offset, following)
    return is_rebuilt


def _is_early(segment: LogSegment, tail: Tail, named: Offset, following: Offset, lost_bases: Sequence[Offset]) -> bool:
    """Whether a segment ends before the next one because Kafka's cleaner left it so: see early_end.py. No segment is lost between."""
    is_between = any(tail.end_offset <= base < following for base in lost_bases)
    return not is_between and is_early(tail, named=named, following=following, size_bytes=segment.file.size_bytes)


def _tail_by_indexes(segment: LogSegment) -> Tail | None:
    """Where a sealed segment ends; None where its indexes are not both there, or do not end as its batches say. Reads their ends
    and what follows the last entry, some index.interval.bytes: a greatest timestamp that is wrong would let retention take the
    segment too early."""
    offsets, times = segment.offset_index, segment.time_index
    try:
        if not (offsets.is_whole and times.is_whole):
            return None
        last, greatest = offsets.last(), times.greatest()
        if last is not None and segment.header_at(last[1]).last_offset != segment.base_offset + last[0]:
            return None
        if greatest is not None:
            youngest = segment.header_at(segment.find(greatest[1]).position)
            if (youngest.max_timestamp_ms, youngest.last_offset) != greatest:
                return None
    except (FileNotFoundError, CorruptBatch):
        return None
    newest_ms = greatest[0] if greatest is not None else -1
    tail = Tail(segment.base_offset, 0)
    try:
        for position, header in segment.headers(last[1] if last else 0):
            if header.max_timestamp_ms > newest_ms:
                return None
            tail = Tail(header.next_offset, position + header.size_bytes)
    except CorruptBatch:  # rot in the log: its indexes are the better for having been made before it
        return Tail(segment.base_offset, -1)
    return tail


def _named_end(segment: LogSegment) -> Offset:
    """As early_end.named_end, of a segment whose indexes may be lost."""
    try:
        return named_end(segment)
    except FileNotFoundError:
        return segment.base_offset


def _settle(segment: LogSegment) -> None:
    """Take the greatest timestamp into memory, for retention, and keep none of its files open."""
    segment.load_max_timestamp()
    segment.close_indexes()
    segment.rest()


def _cut_tail(segment: LogSegment) -> int:
    """Cut the file to its sound part; returns the bytes cut."""
    excess = segment.file.size_bytes - segment.size_bytes
    if excess:
        segment.file.truncate(segment.size_bytes)
    return excess


def _remove(disk: Disk, segment: LogSegment) -> None:
    segment.close()
    for suffix in (LOG_SUFFIX, *_INDEX_SUFFIXES):
        disk.remove(segment_path(segment.directory, segment.base_offset, suffix))
