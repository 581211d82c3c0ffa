"""A log as the cleaner sees it: what of it may be cleaned, its sealed segments, and how another takes the place of some.

May touch:  the log it is given.      Must not touch: clocks, the loop, records.
Invariants: the active segment is never among the sealed ones; whoever swaps first asks whether they are the same ones still.
Read next:  choice.py, driver.py; unified_log.py.
"""

from __future__ import annotations

from barnabas_log.cleaner.choice import CleanableLog, SegmentAge
from barnabas_log.cleaner.rewrite import Output, Source
from barnabas_log.cleaner.swap import PendingSwap
from barnabas_log.config import INT64_MAX
from barnabas_log.tail.aborted_transactions import AbortedTransaction
from barnabas_log.tail.log_tail import STEP_DESCRIPTORS
from barnabas_log.tail.segment import LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SealedSegments:
    """The sealed segments from the log's first on, as a run of the cleaner finds them."""

    segments: tuple[LogSegment, ...]
    sources: tuple[Source, ...]
    cuts: int
    """Truncations of the log until then."""

    def replaced_by(self, output: Output) -> list[LogSegment]:
        """The segments whose place an output takes."""
        bases = {source.base_offset for source in output.sources}
        return [segment for segment in self.segments if segment.base_offset in bases]


def is_sound(log: UnifiedLog) -> bool:
    """Whether a run may trust the log: its bytes, and the producers and aborted transactions that were read from them. Beside a
    damaged marker, a later abort by the same producer is taken for the end of the transaction."""
    return not (log.is_failed or log.damage or log.tail.is_in_doubt)


def cleanable(log: UnifiedLog, *, now_ms: int) -> CleanableLog | None:
    """The log as the choice of what to clean sees it; None where nothing is sealed. Raises OSError, CorruptBatch."""
    segments, config = log.segments, log.config
    if len(segments) < 2:
        return None
    ages: list[SegmentAge] = []
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else log.log_end_offset
        newest_ms = segment.newest_ms(now_ms=now_ms) if config.min_compaction_lag_ms else -1
        ages.append(SegmentAge(segment.base_offset, end, segment.size_bytes, newest_ms))
    first_dirty_ms = -1
    if config.max_compaction_lag_ms < INT64_MAX:
        first_dirty = segments.floor(max(log.clean_offset, log.log_start_offset))
        if first_dirty is not segments.active and first_dirty.size_bytes:
            first_dirty_ms = first_dirty.header_at(0).max_timestamp_ms
    return CleanableLog(
        name=str(log.topic_partition),
        segments=ages,
        log_start_offset=log.log_start_offset,
        clean_offset=log.clean_offset,
        stable_offset=log.last_stable_offset,
        flushed_offset=log.flushed_end_offset,
        first_dirty_ms=first_dirty_ms,
        dirty_ratio_min=config.min_cleanable_dirty_ratio,
        compaction_lag_min_ms=config.min_compaction_lag_ms,
        compaction_lag_max_ms=config.max_compaction_lag_ms,
    )


def sealed_segments(log: UnifiedLog, end_offset: Offset) -> SealedSegments:
    """The sealed segments from the first to `end_offset`, for a run of the cleaner."""
    chosen: list[LogSegment] = []
    sources: list[Source] = []
    for number in range(len(log.segments) - 1):
        segment, end = log.segments[number], log.segments[number + 1].base_offset
        if end > end_offset:
            break
        chosen.append(segment)
        sources.append(Source(segment.base_offset, end, segment.size_bytes))
    return SealedSegments(tuple(chosen), tuple(sources), log.durability.cuts)


def is_unchanged(log: UnifiedLog, sealed: SealedSegments, output: Output | None = None) -> bool:
    """Whether the log is sound and still has them, none of it cut off: those of one output, or all."""
    if log.is_closed or not is_sound(log) or log.durability.cuts != sealed.cuts:
        return False
    wanted = sealed.segments if output is None else sealed.replaced_by(output)
    return all(log.segments.floor(segment.base_offset) is segment for segment in wanted)


def last_batches(log: UnifiedLog) -> tuple[tuple[int, int, int], ...]:
    """(producer id, epoch, last data offset) of each producer that is remembered."""
    return tuple((entry.producer_id, entry.epoch, int(entry.last.last_offset)) for entry in log.producers)


def aborted_up_to(log: UnifiedLog, end_offset: Offset) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions that began below `end_offset`."""
    return tuple(each for each in log.aborted if each.first_offset < end_offset)


def replace_segments(log: UnifiedLog, old: list[LogSegment], swap: PendingSwap) -> None:
    """Put what the cleaner wrote, durable and prepared, in the place of its sources. Raises StorageFailed, OutOfDescriptors."""
    base_offset = Offset(swap.output.base_offset)
    try:
        log.disk.ensure_descriptors(STEP_DESCRIPTORS, log.directory)
        for segment in old:
            log.retire(
                segment,
                delay_ms=log.config.file_delete_delay_ms,
                keeps_snapshot=segment.base_offset == base_offset,
            )
        swap.put_in_place()
        new = LogSegment.open(log.disk, log.directory, base_offset, log.config, now_ms=log.tail.now_ms)
        new.load_max_timestamp()
        new.close_indexes()
        new.rest()
    except OSError as error:
        raise log.tail.failed_by(error) from error
    log.segments.replace(old, new)
    log.aborted.replace(base_offset, Offset(swap.output.end_offset), swap.output.aborted)
