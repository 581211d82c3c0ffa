"""Where in the segment an offset is: the sparse .index file.

May touch:  sparse_index.py.          Must not touch: the log's bytes.
Invariants: an entry names the last offset of a batch and the position where that batch starts, as Kafka's does; so the
            greatest entry at or below an offset is a batch boundary at or before it.
Read next:  segment.py, which appends an entry every index.interval.bytes.

Layout: entries of 8 bytes, big-endian, no header: relative offset int32 (last offset of the batch - base offset of the
segment), position int32. Both rise. Kafka preallocates the file while it is active; ours holds only what was written.
A crash may leave a cut entry or an old file: recovery rebuilds the index of every segment at or after the recovery point.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from barnabas_log.disk import Disk
from barnabas_log.read.sparse_index import SparseIndex
from barnabas_wire.kafka.ids import Offset

_ENTRY = struct.Struct(">ii")
RELATIVE_OFFSET_MAX = 2**31 - 1


class OffsetIndex(SparseIndex):
    """The offset index of one segment."""

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, bytes_max: int) -> None:
        super().__init__(disk, path, _ENTRY, entries_max=bytes_max // _ENTRY.size)
        self.base_offset = base_offset

    def add(self, *, last_offset: int, position: int) -> None:
        """Say that the batch ending with `last_offset` starts at `position`."""
        self.append(last_offset - self.base_offset, position)

    def entry_at_or_before(self, offset: int) -> tuple[int, int] | None:
        """(relative last offset, position) of the last batch it names that does not end after `offset`."""
        return self.floor(offset - self.base_offset, column=0)

    def position_at_or_before(self, offset: int) -> int:
        """A batch boundary from which a scan finds `offset`; 0 when the index knows none nearer."""
        entry = self.entry_at_or_before(offset)
        if entry is None:
            return 0
        _, position = entry
        return position

    def position_up_to(self, position: int) -> int:
        """The last known batch boundary at or before `position`; 0 when the index knows none."""
        if self._is_loaded:  # asked by every fetch that does not read to the end
            positions = self._second
            number = bisect_right(positions, position)
            return positions[number - 1] if number else 0
        entry = self.floor(position, column=1)
        if entry is None:
            return 0
        _, found = entry
        return found

    def truncate_to_position(self, position: int) -> None:
        """Drop the entries of batches that start at `position` or later."""
        self.truncate_from(position, column=1)
