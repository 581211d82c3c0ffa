"""The search for a record by its time: over the few segments that may hold it, off the loop that owns the log.

May touch:  the held files and copied indexes it was given.   Must not touch: the log, which goes on meanwhile.
Invariants: it sees the log as it was when the search was made, and later appends perhaps; its files stay open until `close`.
Read next:  segment.py, which searches one segment.

Opening a batch decompresses it (up to the bound of iterate_records), and what is old is read from the disk: on the loop one
request blocked every connection for as long as both take.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from barnabas_log.errors import NoRoom
from barnabas_log.segment import LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset

COMPACTED_MAX = 8
"""Segments of a compacted log that one search looks into."""


class TimeSearch:
    """Made and closed on the log's loop; the rest blocks and runs in a disk thread."""

    def __init__(self, segments: Sequence[LogSegment], *, log_start_offset: Offset) -> None:
        """segments: frozen ones, of which the last surely holds what is searched, if any does."""
        self._segments = segments
        self._log_start_offset = log_start_offset

    def first_at(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        """(offset, timestamp) of the first record at or after the time; None if there is none.

        Raises CorruptBatch, OSError; FileNotFoundError where a segment was retired meanwhile.
        """
        for segment in self._segments:
            if segment.max_timestamp[0] >= timestamp_ms:
                record = segment.find_timestamp(timestamp_ms, start_offset=self._log_start_offset)
                if record is not None:
                    return Offset(record.offset), record.timestamp_ms
        return None

    def of_greatest(self) -> tuple[Offset, int] | None:
        """(offset, timestamp) of the first record with the greatest time (ListOffsets -3, KIP-734); None if undated.

        Raises what first_at raises.
        """
        greatest_ms = max((segment.max_timestamp[0] for segment in self._segments), default=-1)
        found = self.first_at(greatest_ms) if greatest_ms >= 0 else None
        if found is None and greatest_ms >= 0 and (greatest_ms := self._greatest_left()) >= 0:
            found = self.first_at(greatest_ms)
        return found

    def _greatest_left(self) -> int:
        """From the log start on, where the greatest of a segment may have been deleted; -1 if undated."""
        start, left_ms = self._log_start_offset, [-1]
        for segment in self._segments:
            if segment.base_offset >= start:
                left_ms.append(segment.max_timestamp[0])
                continue
            for position, header in segment.headers(segment.offset_index.position_at_or_before(start)):
                if header.base_offset >= start:
                    left_ms.append(header.max_timestamp_ms)
                elif header.last_offset >= start:
                    left_ms += [each.timestamp_ms for each in segment.records_at(position) if each.offset >= start]
        return max(left_ms)

    def close(self) -> None:
        """Let go of the files."""
        for segment in self._segments:
            segment.close_indexes()
            segment.file.release()
        self._segments = ()


def search_by_time(log: UnifiedLog, timestamp_ms: int | None) -> TimeSearch:
    """A search for the first record at or after the time, None: for the greatest time. To be run off the loop, then closed.

    Only the segment of the log start may turn out not to have what its greatest time promises; the next that promises it
    surely does. Of a compacted log any may not, since the header of an emptied batch keeps its time: there, up to COMPACTED_MAX are
    searched. Raises StorageFailed or OutOfDescriptors.
    """
    with contextlib.suppress(NoRoom):
        log.write_pending()
    start, segments = log.log_start_offset, log.segments
    chosen: list[LogSegment] = []
    first = segments.floor(start)
    sure, sure_max = 0, COMPACTED_MAX if log.may_have_gaps else 1
    try:
        wanted_ms = timestamp_ms
        if wanted_ms is None:
            wanted_ms = max((each.max_timestamp[0] for each in segments if each.base_offset >= start), default=0)
        for segment in segments:
            if segment.base_offset < start and segment is not first:
                continue
            is_sure = segment.base_offset >= start
            if segment.max_timestamp[0] >= wanted_ms or (timestamp_ms is None and not is_sure):
                chosen.append(segment.freeze())
                sure += is_sure
                if sure == sure_max:
                    break
    except OSError as error:
        TimeSearch(chosen, log_start_offset=start).close()
        raise log.failed_by(error) from error
    return TimeSearch(chosen, log_start_offset=start)
