"""Batches that were read for a share group: their headers, and the pieces of the file that have what a member acquired.

May touch:  headers in the file.      Must not touch: the records in a batch, asyncio, clock.
Invariants: one header is read for each batch that is looked at, and no more of them than asked for; a piece begins and ends with a batch.
Read next:  acquiring.py (what is acquired of them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from barnabas_coordination.share.acquiring import Acquired, BatchSpan
from barnabas_log.disk import FileRange
from barnabas_wire.records.batch import (
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_FLAG,
    CorruptBatch,
)

SCAN_BYTES: Final = 8_192
"""Read at a time: headers of small batches come together."""
SKIPPED_BYTES_MIN: Final = 64 * 1024
"""Batches of others between two that a member gets are left out from this size on; fewer bytes are not worth another sendfile."""


class BatchReader:
    """Goes over the batches of one read, and remembers which it has seen."""

    def __init__(self, part: FileRange, aborted: Sequence[tuple[int, int]], *, headers_max: int) -> None:
        """aborted: (producer id, first offset) of the aborted transactions in it, for a reader of committed records.
        headers_max: most batches to look at."""
        self._part = part
        self._aborted = sorted(aborted, key=lambda each: each[1])
        self._headers_max = headers_max
        self.seen: list[BatchSpan] = []
        self.error: Exception | None = None
        """Why it ended early: OSError, CorruptBatch."""

    def spans(self) -> Iterator[BatchSpan]:
        """Each batch, in turn; ends where one cannot be read, see `error`."""
        file, position, size = self._part
        end = position + size
        chunk, chunk_start = b"", position
        aborted, doomed = self._aborted, set()
        while end - position >= HEADER_BYTES and len(self.seen) < self._headers_max:
            if position + HEADER_BYTES > chunk_start + len(chunk):
                try:
                    chunk, chunk_start = file.read(position, min(SCAN_BYTES, end - position)), position
                except OSError as error:
                    self.error = error
                    return
                if len(chunk) < HEADER_BYTES:
                    self.error = CorruptBatch(f"the log ends within the batch at byte {position}")
                    return
            base, length, _, _, _, attributes, delta, _, _, producer_id, _, _, _ = HEADER.unpack_from(
                chunk, position - chunk_start
            )
            last = base + delta
            if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or delta < 0 or position + LOG_OVERHEAD_BYTES + length > end:
                self.error = CorruptBatch(f"no batch is at byte {position}")
                return
            while aborted and aborted[0][1] <= last:
                doomed.add(aborted.pop(0)[0])
            is_aborted = False
            if attributes & CONTROL_FLAG:
                doomed.discard(producer_id)
            elif attributes & TRANSACTIONAL_FLAG:
                is_aborted = producer_id in doomed
            span = BatchSpan(base, last, position, LOG_OVERHEAD_BYTES + length, is_aborted)
            self.seen.append(span)
            yield span
            position += span.size_bytes

    def pieces(self, acquired: Sequence[Acquired]) -> tuple[tuple[FileRange, ...], int]:
        """The batches that hold acquired offsets, and their size. Takes the hold of the range that was read: of each piece there is one
        to release."""
        file = self._part.file
        bounds: list[list[int]] = []
        place = 0
        for span in self.seen:
            while place < len(acquired) and acquired[place].last < span.base_offset:
                place += 1
            if place == len(acquired):
                break
            if acquired[place].first > span.last_offset:
                continue
            stop = span.position + span.size_bytes
            if bounds and span.position - bounds[-1][1] < SKIPPED_BYTES_MIN:
                bounds[-1][1] = stop
            else:
                bounds.append([span.position, stop])
        for _ in bounds[1:]:
            file.acquire()
        if not bounds:
            file.release()
        ranges = tuple(FileRange(file, start, stop - start) for start, stop in bounds)
        return ranges, sum(each.size for each in ranges)
