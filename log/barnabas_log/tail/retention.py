"""Which of the oldest segments may go: by time, by size, by log start offset.

May touch:  its arguments.            Must not touch: files, clocks, the log.
Invariants: only a prefix of the segments goes, and none that reaches past the high watermark: what is not yet on every
            in-sync replica is never retired.
Read next:  retiring.py, which obeys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas_wire.kafka.ids import Offset

UNLIMITED = -1
"""retention.ms and retention.bytes: keep without limit."""


class SegmentFacts(NamedTuple):
    """What retention knows of a segment."""

    base_offset: Offset
    end_offset: Offset
    """First offset after it: the next segment's base, or the log end."""
    size_bytes: int
    largest_timestamp_ms: int
    """Greatest record timestamp; of an undated segment, when it was last seen to have grown."""


def deletable_count(
    segments: Sequence[SegmentFacts],
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    log_start_offset: Offset,
    high_watermark: Offset,
) -> int:
    """How many of the oldest segments may go, the active one (last) included if it holds something and has expired.

    Order of the reasons as in Kafka: a segment goes for the first that holds, and the first to stay ends the search.
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments:
        if segment.size_bytes == 0 or segment.end_offset > high_watermark:
            break
        is_expired = retention_ms != UNLIMITED and now_ms - segment.largest_timestamp_ms > retention_ms
        is_excess = retention_bytes != UNLIMITED and excess_bytes >= segment.size_bytes
        is_before_start = segment.end_offset <= log_start_offset
        if not (is_expired or is_excess or is_before_start):
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count
