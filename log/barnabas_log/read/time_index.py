"""Which offset has a timestamp: the sparse .timeindex file.

May touch:  sparse_index.py.          Must not touch: the log's bytes, clocks.
Invariants: an entry says that no record before its offset is younger than its timestamp; timestamps rise strictly.
Read next:  segment.py, which asks it where to start a search by time.

Layout: entries of 12 bytes, big-endian, no header: timestamp int64 (ms, the greatest of the segment so far), relative
offset int32 (last offset of the batch that has it - base offset). The last entry is added when the segment is closed or
rolled and so holds the greatest timestamp of the segment: retention reads it. What a crash leaves, recovery rebuilds.
"""

from __future__ import annotations

import struct

from barnabas_log.disk import Disk
from barnabas_log.read.sparse_index import SparseIndex
from barnabas_wire.kafka.ids import Offset

_ENTRY = struct.Struct(">qi")


class TimeIndex(SparseIndex):
    """The time index of one segment."""

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, bytes_max: int) -> None:
        # One entry fewer than fit, as Kafka: the one of the roll must always find room.
        super().__init__(disk, path, _ENTRY, entries_max=bytes_max // _ENTRY.size - 1)
        self.base_offset = base_offset

    def add(self, *, timestamp_ms: int, offset: int) -> None:
        """Say that `offset` ends the batch with the greatest timestamp so far; nothing happens if that is not new."""
        last = self.last()
        if last is not None:
            newest_ms, _ = last
            if timestamp_ms <= newest_ms:
                return
        self.append(timestamp_ms, offset - self.base_offset)

    def offset_at_or_before(self, timestamp_ms: int) -> int:
        """An offset from which a search finds the first record at or after the time: the base offset if none is nearer."""
        entry = self.floor(timestamp_ms, column=0)
        if entry is None:
            return self.base_offset
        _, relative_offset = entry
        return self.base_offset + relative_offset

    def greatest(self) -> tuple[int, int] | None:
        """(timestamp, last offset of its batch) of the newest entry."""
        last = self.last()
        if last is None:
            return None
        timestamp_ms, relative_offset = last
        return timestamp_ms, self.base_offset + relative_offset

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the entries of `offset` and later."""
        self.truncate_from(offset - self.base_offset, column=1)
