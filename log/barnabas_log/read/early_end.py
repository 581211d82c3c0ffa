"""Where a sealed segment ends before the next one begins: Apache Kafka's cleaner leaves such ends, ours none.

May touch:  a segment and its indexes, reading.   Must not touch: clocks, other segments, the log.
Invariants: an end is early only where the file ends with a whole batch and nothing in its indexes is past that.
Read next:  recovery.py, which asks at the start; cleaner/rewrite.py, which closes such ends.

A tail that a disk lost must not pass for a compacted one. Whatever appends or rewrites a segment names its end in the indexes: our
cleaner its last batch in the offset index, everybody the batch of the greatest time in the time index, which is mostly the last.
An index that was lost too proves nothing; the two at once cannot be distinguished.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import CorruptBatch


class Tail(NamedTuple):
    """The end of a segment's last whole batch."""

    end_offset: Offset
    stop: int
    """Where in the file; -1 where that is not known."""


def named_end(segment: LogSegment) -> Offset:
    """One past the greatest offset in its indexes; its base offset where they are empty. Raises FileNotFoundError."""
    last, greatest = segment.offset_index.last(), segment.time_index.greatest()
    end = segment.base_offset if last is None else segment.base_offset + last[0] + 1
    if greatest is not None and greatest[0] >= 0 and segment.size_bytes:
        end = max(end, greatest[1] + 1)
    return Offset(end)


def is_early(tail: Tail, *, named: int, following: int, size_bytes: int) -> bool:
    """Whether a tail ends before the base offset of the following segment and is no rest of a lost one. `named`: see named_end."""
    return tail.stop == size_bytes and named <= tail.end_offset < following


def early_end(segment: LogSegment, *, following: int) -> Offset | None:
    """Where a sealed segment ends, if that is early. Reads its last batches' headers. Raises FileNotFoundError for want of an
    index, OSError."""
    last = segment.offset_index.last()
    tail = Tail(segment.base_offset, 0)
    try:
        for position, header in segment.headers(0 if last is None else last[1]):
            tail = Tail(header.next_offset, position + header.size_bytes)
    except CorruptBatch:
        return None
    is_so = is_early(tail, named=named_end(segment), following=following, size_bytes=segment.file.size_bytes)
    return tail.end_offset if is_so else None
