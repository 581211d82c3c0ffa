"""What checks and repairs do to a log beside its appends: hand out segments, note damage, replace it, reload producers.

May touch:  the log it is given, on the loop that owns it.      Must not touch: asyncio, peers, what judges the bytes.
Invariants: a segment that changed since it was handed out is not judged; only a known damage of a sealed segment is replaced,
            by as many bytes; a producer state is taken only where the log is undamaged and was not cut since it was read.
Read next:  scrub.py, which judges; scrubber.py and manager.py, which call this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas_log.disk import File
from barnabas_log.errors import DiskFull
from barnabas_log.recovery.scrub import CheckFacts, DamagedRange
from barnabas_log.tail.producer_replay import replay_producers
from barnabas_log.tail.producer_snapshots import remove_snapshots_after
from barnabas_log.tail.producer_state import ProducerState
from barnabas_log.tail.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, LogSegment, segment_path
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import Buffer, read_header


class CheckableSegment(NamedTuple):
    """A segment as it is at one moment, for a check of its bytes elsewhere."""

    facts: CheckFacts
    path: str
    index_path: str
    time_index_path: str
    segment: LogSegment
    cuts: int
    """Truncations of the log until then."""


def checkable(log: UnifiedLog, base_offset: int) -> CheckableSegment | None:
    """The segment with that base offset as a check must find it; None when it is gone or holds nothing."""
    segment = log.segments.floor(Offset(base_offset))
    if segment.base_offset != base_offset or log.is_failed or log.is_closed:
        return None
    is_active = segment is log.active
    end_offset = (
        log.written_end_offset if is_active else log.segments.end_offset(segment, log_end_offset=log.log_end_offset)
    )
    if segment.early_end is not None and log.may_have_gaps:
        end_offset = segment.early_end
    if end_offset <= segment.base_offset:
        return None
    size_bytes, epochs = segment.file.size_bytes, log.leader_epochs.entries
    facts = CheckFacts(segment.base_offset, end_offset, size_bytes, epochs, not is_active, log.may_have_gaps)
    path, index_path, time_index_path = (
        segment_path(log.directory, base_offset, suffix) for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    )
    return CheckableSegment(facts, path, index_path, time_index_path, segment, log.durability.cuts)


def is_unchanged(log: UnifiedLog, checked: CheckableSegment) -> bool:
    """Whether the segment still holds what it held then: nothing was cut off the log, and it is there."""
    if log.is_failed or log.is_closed or log.durability.cuts != checked.cuts:
        return False
    return log.segments.floor(checked.facts.base_offset) is checked.segment


def set_damage(log: UnifiedLog, base_offset: int, damages: Sequence[DamagedRange]) -> bool:
    """Say what is damaged in one segment, and nothing else in it; returns whether that is news."""
    segment = log.segments.floor(Offset(base_offset))
    if segment.base_offset != base_offset:
        return False
    others = [damage for damage in log.damage if damage.segment != base_offset]
    found = [damage for damage in damages if damage.end_offset > log.log_start_offset]
    if found:
        log.tail.doubt_producers(found[0].first_offset)
    is_news = log.know_damage([*others, *found])
    # Below the log start, too: whoever looks for a batch passes over it, and believes no header there.
    segment.damaged = tuple(damages)
    segment.boundaries.clear()
    if found and segment.early_end is not None and found[-1].end_offset > segment.early_end:
        segment.early_end = None  # the damage is known from before the indexes were made again
    return is_news


def seal(log: UnifiedLog, base_offset: int) -> None:
    """Roll if that segment is the active one: what is sealed takes no appends while it is repaired. Raises StorageFailed."""
    if log.active.base_offset == base_offset:
        log.tail.roll(log.tail.now_ms)


def segment_size(log: UnifiedLog, base_offset: int) -> int:
    """Bytes of the file that the segment at `base_offset` has."""
    return log.segments.floor(Offset(base_offset)).file.size_bytes


def replace_damaged(log: UnifiedLog, damage: DamagedRange, batches: Buffer) -> File:
    """Put sound batches in the place of a damaged range of a sealed segment; returns the file, to be flushed by the caller.

    batches: proved by the caller; as many bytes as were damaged, or any number where the segment ends with the range. What
    a crash leaves half replaced is damaged still. Raises StorageFailed, InvariantViolated.
    """
    segment = log.segments.floor(damage.segment)
    file = segment.file
    is_tail = damage.stop >= file.size_bytes
    if damage not in log.damage or segment is log.active or segment.base_offset != damage.segment:
        raise InvariantViolated(f"{log.directory}: {damage} is not there to be replaced")
    if not is_tail and len(batches) != damage.stop - damage.position:
        raise InvariantViolated(
            f"{log.directory}: {len(batches)} bytes for the {damage.stop - damage.position} of {damage}"
        )
    try:
        file.overwrite(damage.position, batches)
        if is_tail and file.size_bytes > damage.position + len(batches):
            file.truncate(damage.position + len(batches))
    except OSError as error:
        raise log.tail.failed_by(error) from error
    segment.size_bytes = file.size_bytes
    position = 0
    while position < len(batches):
        header = read_header(batches, position)
        log.leader_epochs.learn(header.partition_leader_epoch, header.base_offset)
        segment.date_repaired(header)
        position += header.size_bytes
    return file


def adopt_producers(log: UnifiedLog, state: ProducerState, *, cuts: int) -> bool:
    """Take a producer state that was read again from the undamaged log, and add the batches since `state.end_offset`.

    cuts: `durability.cuts` when the reading began. Returns False, and changes nothing, where the log was cut since, is damaged
    or cannot be read to its end. Raises StorageFailed.
    """
    if log.is_failed or log.is_closed or log.damage or cuts != log.durability.cuts:
        return False
    try:
        log.tail.write_pending(is_forced=True)
    except DiskFull:
        return False
    try:
        replay_producers(state, list(log.segments), end_offset=log.log_end_offset)
        if state.unread:
            return False
        log.aborted.correct(state.begin_offset, state.aborted, log.base_offsets)
        remove_snapshots_after(log.disk, log.directory, log.doubted_from)
        # One that a power cut brought back would lack what was damaged, and nothing would raise the doubt again.
        log.disk.sync_directory(log.directory)
    except OSError as error:
        raise log.tail.failed_by(error) from error
    state.date_by_records()
    log.tail.take_producers(state, log.high_watermark, is_sure=True)
    return True


def reload_indexes(log: UnifiedLog, base_offset: int) -> None:
    """The index files of a sealed segment were replaced: look them up again."""
    segment = log.segments.floor(Offset(base_offset))
    if segment.base_offset == base_offset and segment is not log.active:
        segment.offset_index.reload()
        segment.time_index.reload()
        segment.is_index_doubted = False
        segment.boundaries.clear()
