"""The search for a record by its time: over the few segments that may hold it, off the loop that owns the log.

May touch:  the held files and copied indexes it was given.   Must not touch: the log, which may grow meanwhile.
Invariants: it sees the log as it was when the search was made, and later appends perhaps; its files stay open until `close`.
Read next:  segment.py, which searches one segment; true_times.py for what headers are worth.

Opening a batch decompresses it, and what is old is read from the disk: on the loop one request blocked every connection for as long
as both take. What a search costs is bounded by batch_times.py, and ends when it is not waited for any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from barnabas_log.errors import DiskFull
from barnabas_log.read.batch_times import BatchTimes
from barnabas_log.read.true_times import is_doubtful, is_judged, judge, judge_from
from barnabas_log.recovery.segment_note import TrueTime
from barnabas_log.tail.segment import LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import CorruptBatch

COMPACTED_MAX = 8
"""Segments of a compacted log that one search looks into."""
UNJUDGED_BYTES_MAX = 1024 * 1024 * 1024
"""Among segments whose headers are not yet known to be true and say that the records are too old, one search
reads so much all the same, or one segment: the newest before those that are sure. It keeps what it learns, so that a later search
reads others. From a cold disk that is some seconds."""
T = TypeVar("T")


class TimeJudging:
    """Segments of one log that are read for the true times of their records. Made and closed on the log's loop; `run` blocks and runs
    in a disk thread."""

    def __init__(self, log: UnifiedLog, bases: Sequence[int], times: BatchTimes | None = None) -> None:
        """bases: of the segments. times: opens the batches. Raises OSError."""
        self.times = times or BatchTimes()
        self._log = log
        self._cuts = log.durability.cuts
        self._held: list[tuple[LogSegment, LogSegment]] = []
        """Pairs: a segment of the log, and the copy of it that is read."""
        self._sealed = {segment.base_offset for segment in log.segments if segment is not log.active}
        self.unread: list[int] = []
        """Base offsets of those that could not be read to their end."""
        wanted = set(bases)
        try:
            for segment in log.segments:
                if segment.base_offset in wanted:
                    self._held.append((segment, segment.freeze()))
        except OSError:
            self.close()
            raise

    @property
    def segments(self) -> list[LogSegment]:
        """The copies."""
        return [frozen for _, frozen in self._held]

    def run(self) -> None:
        """Judge all of them. Raises OSError, SearchStopped."""
        for segment in self.segments:
            try:
                self.judge(segment)
            except CorruptBatch:
                self.unread.append(segment.base_offset)

    def judge(self, segment: LogSegment) -> TrueTime:
        """Judge one. Raises CorruptBatch, OSError, SearchStopped."""
        return judge(self._log.disk, segment, is_sealed=segment.base_offset in self._sealed, times=self.times)

    def close(self) -> None:
        """Tell the log what was found, unless it was cut meanwhile, and let go of the files."""
        for segment, frozen in self._held:
            found = frozen.true_time
            if (
                found is not None
                and self._cuts == self._log.durability.cuts
                and found.judged_bytes <= segment.size_bytes
            ):
                segment.true_time = found
            frozen.close_indexes()
            frozen.file.release()
        self._held = []


class TimeSearch:
    """Made and closed on the log's loop; the rest blocks and runs in a disk thread."""

    def __init__(
        self,
        log: UnifiedLog,
        bases: Sequence[int],
        *,
        times: BatchTimes | None = None,
        known: Sequence[TrueTime] = (),
        is_open: bool = False,
    ) -> None:
        """bases: of the segments that may hold what is searched. times: opens the batches. known: of those that are not looked into,
        for `of_greatest`. is_open: see there. Raises OSError."""
        self._judging = TimeJudging(log, bases, times)
        self.times = self._judging.times
        self._log_start_offset = log.log_start_offset
        self._known = known
        self.is_open = is_open
        """Whether a search that finds nothing may find something when it is made again: headers promised it, it was not
        known whether they lie, and further segments were left out."""

    def first_at(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        """(offset, timestamp) of the first record at or after the time; None if there is none.

        Raises CorruptBatch, OSError, SearchStopped, SearchExhausted; FileNotFoundError where a segment was retired meanwhile.
        """
        for segment in self._judging.segments:
            true = self._judging.judge(segment)
            if true.greatest_ms >= timestamp_ms:
                record = segment.find_timestamp(
                    timestamp_ms,
                    start_offset=self._log_start_offset,
                    times=self.times,
                    is_doubtful=is_doubtful if true.doubtful else None,
                )
                if record is not None:
                    return Offset(record.offset), record.timestamp_ms
        return None

    def of_greatest(self) -> tuple[Offset, int] | None:
        """(offset, timestamp) of the first record with the greatest time (ListOffsets -3, KIP-734); None if undated.

        Raises what first_at raises.
        """
        found = list(self._known)
        for segment in self._judging.segments:
            true = self._judging.judge(segment)
            if true.offset < self._log_start_offset:
                true = judge_from(segment, self._log_start_offset, self.times)
            found.append(true)
        _, greatest_ms, offset, _ = min(found, key=lambda each: (-each.greatest_ms, each.offset), default=TrueTime())
        return (offset, greatest_ms) if greatest_ms >= 0 else None

    def close(self) -> None:
        """Let go of the files."""
        self._judging.close()


async def run_to_end(reading: TimeJudging | TimeSearch, running: Awaitable[T]) -> T:
    """Wait for what a disk thread reads, then close it. Cancelled, it is stopped, and closed once the thread has let go of the files.

    Raises what the thread raises.
    """
    work = asyncio.ensure_future(running)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        reading.times.stop()
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):  # it is soon over
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # its result is not wanted any more
        raise
    finally:
        reading.close()


def search_by_time(log: UnifiedLog, timestamp_ms: int | None, times: BatchTimes | None = None) -> TimeSearch:
    """A search for the first record at or after the time, None: for the greatest time. To be run off the loop, then closed.

    times: opens the batches; None: in the thread that searches, without a pause.
    Only the segment of the log start may turn out not to have what its greatest time promises; the next that promises it
    surely does, if it is known (true_times.py). Of a compacted log any may not, since the header of an emptied batch keeps its time:
    there, up to COMPACTED_MAX are searched. Raises StorageFailed or OutOfDescriptors.
    """
    with contextlib.suppress(DiskFull):
        log.tail.write_pending()
    start, segments = log.log_start_offset, log.segments
    first = segments.floor(start)
    candidates = [segment for segment in segments if segment.base_offset >= start or segment is first]
    if timestamp_ms is None:
        wanted_ms = max((_newest_ms(each) for each in candidates if each.base_offset >= start), default=0)
    else:
        wanted_ms = timestamp_ms
    # One whose headers promise it may not have it, where that is not known: then the next is looked into too.
    sure, sure_max = 0, 2 * (COMPACTED_MAX if log.may_have_gaps else 1)
    chosen: list[int] = []
    is_open = False
    unjudged: list[LogSegment] = []
    for segment in candidates:
        is_sure = segment.base_offset >= start
        if _newest_ms(segment) >= wanted_ms or (timestamp_ms is None and not is_sure):
            chosen.append(segment.base_offset)
            sure += (2 if is_judged(segment) else 1) if is_sure else 0
            if sure >= sure_max and timestamp_ms is not None:
                is_open = not is_judged(segment)
                break
        elif not is_judged(segment):
            unjudged.append(segment)
    if timestamp_ms is None:
        chosen = chosen[-2 * COMPACTED_MAX :]
    bases = set(chosen)
    left_bytes = UNJUDGED_BYTES_MAX
    for segment in reversed(unjudged):
        if left_bytes < UNJUDGED_BYTES_MAX and segment.size_bytes > left_bytes:
            break
        left_bytes -= segment.size_bytes
        bases.add(segment.base_offset)
    known = [
        segment.true_time
        for segment in candidates
        if segment.base_offset not in bases and segment.true_time is not None and is_judged(segment)
    ]
    try:
        return TimeSearch(log, sorted(bases), times=times, known=known, is_open=is_open)
    except OSError as error:
        raise log.tail.failed_by(error) from error


def _newest_ms(segment: LogSegment) -> int:
    """The greatest time of its records where that is known, else what its headers say."""
    if segment.true_time is not None and is_judged(segment):
        return segment.true_time.greatest_ms
    return segment.max_timestamp[0]
