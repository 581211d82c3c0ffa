"""The old segments of one log go: what retention.py allows, retired from the log.

May touch:  the log it is given, on the loop that owns it.      Must not touch: asyncio, the files (their removal comes later).
Invariants: no segment goes before it is durable that the log starts after it; the newest segment whose name is durable stays.
Read next:  retention.py (which may go), manager.py (when).
"""

from __future__ import annotations

import contextlib

from barnabas_log.read.true_times import is_judged, judge
from barnabas_log.tail.retention import UNLIMITED, SegmentFacts, deletable_count
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.records.batch import CorruptBatch


def apply_retention(log: UnifiedLog, now_ms: int, *, may_block: bool = True, judges_age: bool = True) -> int:
    """Retire what time, size and log start allow; returns the number of segments. Raises StorageFailed.

    What seems to go by its age is read first, for the headers of its batches may not prove that (true_times.py): here, or with
    may_block=False by the caller, in a disk thread, for the segments that are in `log.untimed` then; they do not go before.
    Likewise the log start: a power cut may bring retired segments back, and it has been told to others by then. Here their going
    is flushed in this turn; with may_block=False only what lies before the start goes, and `log.due_start` says where the log is
    to start once the caller has saved that.
    `judges_age`: whether the clock that `now_ms` is of may be believed; else nothing goes by time.

    The newest segment whose name is durable stays until that of a later one is, or a power cut could take both: then
    `is_retention_owed`, and a flush is asked for.
    """
    log.is_retention_owed = False
    log.untimed, log.due_start = (), log.log_start_offset
    if judges_age:
        log.tail.now_ms = max(log.tail.now_ms, now_ms)
    config = log.config
    segments = log.segments
    facts: list[SegmentFacts] = []
    for number, segment in enumerate(segments):
        end_offset = segments[number + 1].base_offset if number + 1 < len(segments) else log.log_end_offset
        try:
            newest_ms = segment.newest_ms(now_ms=now_ms)
        except OSError as error:
            raise log.tail.failed_by(error) from error
        facts.append(SegmentFacts(segment.base_offset, end_offset, segment.size_bytes, newest_ms))
    for number in range(len(facts) - 2, -1, -1):
        if segments[number].damaged:
            # What cannot be read of it may be younger than the rest, but hardly than what follows.
            newest_ms = max(facts[number].largest_timestamp_ms, facts[number + 1].largest_timestamp_ms)
            facts[number] = facts[number]._replace(largest_timestamp_ms=newest_ms)
    retention_ms = config.retention_ms if config.is_retention_on and judges_age else UNLIMITED
    _date_truly(log, facts, now_ms, retention_ms, may_block=may_block)
    count = deletable_count(
        facts,
        now_ms=now_ms,
        retention_ms=retention_ms,
        retention_bytes=config.retention_bytes if config.is_retention_on else -1,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
    )
    if not count:
        return 0
    if count == len(segments):
        log.tail.roll(now_ms, is_due=True)
    named = len(segments) - log.durability.unnamed
    if count >= named:
        log.is_retention_owed = True
        log.tail.listener.on_segment_rolled(log)
        count = max(named - 1, 0)
    log.due_start = max(log.log_start_offset, segments[count].base_offset)
    if not may_block:
        while count and segments[count].base_offset > log.log_start_offset:
            count -= 1
    if not count:
        return 0
    try:
        log.end_swap()
        for segment in segments.take_oldest(count):
            log.retire(segment, delay_ms=config.file_delete_delay_ms)
        if segments[0].base_offset > log.log_start_offset:
            log.durability.sync_names()
    except OSError as error:
        raise log.tail.failed_by(error) from error
    log.begin_with_oldest()
    return count


def _date_truly(log: UnifiedLog, facts: list[SegmentFacts], now_ms: int, retention_ms: int, *, may_block: bool) -> None:
    """Give the oldest segments, up to the first that is too young to go by age, the times of their records. Raises StorageFailed."""
    untimed: list[int] = []
    for number, segment in enumerate(log.segments):
        fact = facts[number]
        if retention_ms == UNLIMITED or now_ms - fact.largest_timestamp_ms <= retention_ms or not fact.size_bytes:
            break
        if not is_judged(segment) and may_block:
            try:
                with contextlib.suppress(CorruptBatch):  # what cannot be read proves nothing
                    judge(log.disk, segment, is_sealed=segment is not log.active)
            except OSError as error:
                raise log.tail.failed_by(error) from error
        if is_judged(segment):
            newest_ms = max(segment.newest_ms(now_ms=now_ms), fact.largest_timestamp_ms)
            facts[number] = fact._replace(largest_timestamp_ms=newest_ms)
            if now_ms - newest_ms <= retention_ms:
                break
        else:
            untimed.append(segment.base_offset)
            facts[number] = fact._replace(largest_timestamp_ms=now_ms)
    log.untimed = tuple(untimed)
