"""The ordered set of a log's segments.

May touch:  its segments.             Must not touch: files, clocks.
Invariants: base offsets rise; there is at least one segment; the last is the active one, the only one appended to.
Read next:  unified_log.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import Offset


class Segments:
    """Segments by base offset."""

    def __init__(self, segments: Sequence[LogSegment]) -> None:
        assert segments, "a log has at least one segment"
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        assert self._bases == sorted(set(self._bases)), f"base offsets do not rise: {self._bases}"
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(tuple(self._segments))

    def __getitem__(self, number: int) -> LogSegment:
        return self._segments[number]

    def floor(self, offset: int) -> LogSegment:
        """The segment that holds `offset`, or would: greatest base offset not above it, else the first."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1)]

    def end_offset(self, segment: LogSegment, *, log_end_offset: Offset) -> Offset:
        """First offset after a segment."""
        number = bisect_right(self._bases, segment.base_offset)
        return self._bases[number] if number < len(self._bases) else log_end_offset

    def add(self, segment: LogSegment) -> None:
        """Append a new active segment."""
        assert segment.base_offset > self._bases[-1], f"{segment.base_offset} is not after {self._bases[-1]}"
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def take_oldest(self, count: int) -> list[LogSegment]:
        """Remove and return the oldest; one at least stays."""
        assert count < len(self._segments), "the active segment cannot go"
        taken = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        return taken

    def take_from(self, offset: int) -> list[LogSegment]:
        """Remove and return those whose base offset is `offset` or greater; the first one stays in any case."""
        keep = max(1, bisect_right(self._bases, offset - 1))
        taken = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        self.active = self._segments[-1]
        return taken

    def replace(self, old: Sequence[LogSegment], segment: LogSegment) -> None:
        """Put one segment in the place of neighbours, of which none is active and the first has its base offset."""
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == list(old), "they are not neighbours"
        assert segment.base_offset == old[0].base_offset and self.active not in old
        self._segments[first : first + len(old)] = [segment]
        self._bases[first : first + len(old)] = [segment.base_offset]

    def replace_all(self, segment: LogSegment) -> list[LogSegment]:
        """Make `segment` the only one; returns the others."""
        taken = self._segments
        self._segments, self._bases, self.active = [segment], [segment.base_offset], segment
        return taken

    @property
    def size_bytes(self) -> int:
        """Bytes of all .log files."""
        if len(self._segments) == 1:  # most logs: a broker sums thousands
            return self.active.size_bytes
        return sum(segment.size_bytes for segment in self._segments)
