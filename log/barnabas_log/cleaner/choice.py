"""Which log is cleaned next, and how far: Kafka's rules of dirt and lag.

May touch:  its arguments.            Must not touch: files, clocks, the log.
Invariants: nothing at or above the last stable offset, the active segment, what is not flushed, or min.compaction.lag.ms is chosen.
Read next:  driver.py, which asks; survival.py for what then stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas_wire.kafka.ids import Offset


class SegmentAge(NamedTuple):
    """What the choice knows of a segment."""

    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int
    """Greatest time of its records; of an undated one when it was last seen to have grown."""


class CleanableLog(NamedTuple):
    """A compacted log, as the choice sees it."""

    name: str
    segments: Sequence[SegmentAge]
    """All, the active one last."""
    log_start_offset: int
    clean_offset: int
    """Everything below was cleaned by the last run; 0 before the first."""
    stable_offset: int
    """High watermark, or the last stable offset where transactions are open."""
    flushed_offset: int
    first_dirty_ms: int
    """Time of the first batch at or above the clean offset; -1 where it is not known."""
    dirty_ratio_min: float
    compaction_lag_min_ms: int
    compaction_lag_max_ms: int


class Range(NamedTuple):
    """What of a log may be cleaned."""

    first_dirty: Offset
    end_offset: Offset
    """Exclusive; the base of a segment, or first_dirty where nothing may be."""
    clean_bytes: int
    dirty_bytes: int

    @property
    def dirty_ratio(self) -> float:
        """Share of dirty bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable_range(log: CleanableLog, *, now_ms: int) -> Range:
    """Where the dirty part begins, and where it ends for now."""
    active = log.segments[-1]
    first_dirty = log.clean_offset
    if not log.log_start_offset <= first_dirty <= active.base_offset:
        first_dirty = log.log_start_offset  # retention or a truncation has passed it
    end_offset = log.segments[0].base_offset
    for segment in log.segments[:-1]:
        is_young = (
            log.compaction_lag_min_ms > 0
            and segment.end_offset > first_dirty
            and segment.newest_ms > now_ms - log.compaction_lag_min_ms
        )
        if segment.end_offset > min(log.stable_offset, log.flushed_offset) or is_young:
            break
        end_offset = segment.end_offset
    chosen = [segment for segment in log.segments[:-1] if segment.end_offset <= end_offset]
    dirty_bytes = sum(segment.size_bytes for segment in chosen if segment.end_offset > first_dirty)
    clean_bytes = sum(segment.size_bytes for segment in chosen if segment.end_offset <= first_dirty)
    return Range(Offset(first_dirty), Offset(max(first_dirty, end_offset)), clean_bytes, dirty_bytes)


def is_due(log: CleanableLog, found: Range, *, now_ms: int) -> bool:
    """Whether it is dirty enough, or its oldest dirty record has waited for max.compaction.lag.ms."""
    if not found.dirty_bytes:
        return False
    has_waited = log.first_dirty_ms >= 0 and now_ms - log.first_dirty_ms > log.compaction_lag_max_ms
    return has_waited or found.dirty_ratio > log.dirty_ratio_min


def dirtiest(logs: Iterable[CleanableLog], *, now_ms: int) -> tuple[CleanableLog, Range] | None:
    """The due log with the greatest share of dirt, the first by name where they are equal."""
    best: tuple[CleanableLog, Range] | None = None
    for log in logs:
        found = cleanable_range(log, now_ms=now_ms)
        if not is_due(log, found, now_ms=now_ms):
            continue
        if best is None or (-found.dirty_ratio, log.name) < (-best[1].dirty_ratio, best[0].name):
            best = (log, found)
    return best
