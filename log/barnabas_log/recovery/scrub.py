"""Whether the bytes of a segment are still what was appended: header chain, checksums, epochs, indexes.

May touch:  bytes, through the read function it is given.   Must not touch: clocks, files, the loop.
Invariants: what is not reported as damaged is exactly a chain of sound batches; a damaged range begins and ends at batch
            boundaries of the undamaged log; memory and work of one step are bounded, whatever the bytes say.
Read next:  scrubber.py, which drives it; unified_log.py for what a known damage changes.

A batch's base offset, length and leader epoch are not under its checksum. So the check also asks that offsets rise, that one
which does not continue is below the next batch's (compaction left a gap; rot would contradict it), that the last batch ends where the
segment does, and that each epoch is the one the log's epoch cache has there. Where the chain breaks, the range
ends at the next bytes that are a whole sound batch of a later offset: found by the damaged batch's own length, else byte by byte.

Kafka has nothing like it: there a flipped bit is found by whichever client or follower reads it first.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from barnabas_wire.kafka.ids import NO_EPOCH, Epoch, Offset, TopicPartition
from barnabas_wire.records.batch import (
    BASE_OFFSET_FIELD,
    BATCH_LENGTH_FIELD,
    CRC_FIELD,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_FIELD,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_FIELD,
    MAX_TIMESTAMP_FIELD,
    CorruptBatch,
    HeaderFields,
)
from barnabas_wire.records.crc32c import crc32c, extend_crc32c

CHUNK_BYTES: Final = 256 * 1024
"""Read at a time. A chunk of small batches takes some 3 ms of Python, which the loop may have to wait for."""
DAMAGES_MAX: Final = 64
"""Damaged ranges that one segment can have; more are taken for one that covers them."""
BATCH_COST_BYTES: Final = 1_000
SEGMENT_COST_BYTES: Final = 400_000
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
_MAGIC_AT: Final = 16
_TIME_ENTRY: Final = struct.Struct(">qi")
_unpack_header = HEADER.unpack_from

SegmentName = tuple[str, int, int]
"""(topic, partition, base offset)."""

ReadAt = Callable[[int, int], bytes]
"""(position, size) -> bytes there, fewer only at the end of the file."""


class DamagedRange(NamedTuple):
    """Offsets whose bytes are not what was appended, and where those bytes are."""

    first_offset: Offset
    end_offset: Offset
    """Exclusive."""
    segment: Offset
    """Base offset of the segment."""
    position: int
    """First damaged byte of the segment's file."""
    stop: int
    """Where the next sound batch begins, or the file ends."""
    reason: str

    def __str__(self) -> str:
        return f"offsets {self.first_offset} to {self.end_offset - 1} ({self.reason})"


def end_before_damage(damages: Sequence[DamagedRange], offset: Offset, end: Offset, *, of: TopicPartition) -> Offset:
    """Where a read from `offset` ends at the latest, `end` without damage before it. Raises CorruptBatch within damage.

    damages: rising.
    """
    for damage in damages:
        if offset < damage.first_offset:
            return min(end, damage.first_offset)
        if offset < damage.end_offset:
            raise CorruptBatch(f"{of}: {damage} cannot be read here")
    return end


class CheckFacts(NamedTuple):
    """What a segment must be, taken on the loop at one moment."""

    base_offset: Offset
    end_offset: Offset
    """The end of its last batch, exclusive: the next segment's base, or of the active segment what was written then."""
    size_bytes: int
    epochs: tuple[tuple[Epoch, Offset], ...]
    """The log's (leader epoch, start offset), rising."""
    is_sealed: bool = True
    """Whether it takes no more appends: then its indexes are checked too."""
    may_have_gaps: bool = False
    """Whether compaction is known to have taken batches out of it: else a gap counts where the batch behind it proves it."""


class SegmentCheck:
    """The check of one segment, step by step."""

    def __init__(self, facts: CheckFacts, *, index: Sequence[tuple[int, int]] | None = None) -> None:
        """index: (relative last offset, position) of its offset index, checked on the way; None leaves that out."""
        self.facts = facts
        self.damages: list[DamagedRange] = []
        self.batches = 0
        """Sound ones."""
        self.greatest_timestamp_ms = -1
        """The greatest timestamp of their records; -1 where none bears a time."""
        self.is_index_sound = True
        self.has_gaps = False
        """Whether offsets are missing between sound batches."""
        self._size = facts.size_bytes
        self._position = 0
        self._expected = facts.base_offset
        self._index = index
        self._indexed = 0
        self._starts = [start for _, start in facts.epochs]

    @property
    def is_done(self) -> bool:
        """Whether all of it was checked."""
        return self._expected >= self.facts.end_offset

    def step(self, read: ReadAt) -> int:
        """Read and check at most about one chunk. Returns the bytes read. Raises what `read` raises."""
        if self.is_done:
            return 0
        begin = self._position
        wanted = min(CHUNK_BYTES, self._size - begin)
        chunk = read(begin, wanted) if wanted > 0 else b""
        if len(chunk) < wanted:
            self._size = begin + len(chunk)  # the file is shorter than it was
        while not self.is_done:
            position = self._position
            at = position - begin
            if self._size - position < HEADER_BYTES:
                self._damage(position, read, None, f"the file ends at byte {self._size}")
                break
            if at + HEADER_BYTES > len(chunk):
                break
            header = _unpack_header(chunk, at)
            reason = self._fault_of(header, position)
            if reason is None:
                stop = at + header[BATCH_LENGTH_FIELD] + LOG_OVERHEAD_BYTES
                if stop <= len(chunk):
                    found = crc32c(chunk[at + CRC_START : stop])
                elif at:
                    break  # the next chunk begins with it
                else:
                    found = self._checksum_of_large(read, position, header)
                if found == header[CRC_FIELD] and self._is_in_place(read, position, header):
                    self._pass(position, header)
                    continue
                reason = f"the checksum of the batch at {header[BASE_OFFSET_FIELD]} is wrong, or its offset"
            self._damage(position, read, header, reason)
            break
        return len(chunk)

    def _fault_of(self, header: HeaderFields, position: int) -> str | None:
        """What is wrong with a header where the log continues with the expected offset."""
        base_offset, length, epoch, magic, _, _, last_delta, *_ = header
        expected = self._expected
        if magic != MAGIC or length < _LENGTH_MIN or last_delta < 0:
            return f"no batch begins where offset {expected} should"
        if base_offset < expected:
            return f"a batch says offset {base_offset} where {expected} should be"
        if position + length + LOG_OVERHEAD_BYTES > self._size or base_offset + last_delta + 1 > self.facts.end_offset:
            return f"the batch at {expected} passes the segment's end"
        known = self._epoch_at(base_offset)
        if known not in (NO_EPOCH, epoch):
            return f"the batch at {expected} says leader epoch {epoch}, it was written in {known}"
        return None

    def _is_in_place(self, read: ReadAt, position: int, header: HeaderFields) -> bool:
        """Whether a sound batch is at its offset: rot may have raised one that begins later than it could."""
        if header[BASE_OFFSET_FIELD] == self._expected:
            return True
        end_offset = self.facts.end_offset
        is_raised = is_offset_raised(
            read, position, header, expected=self._expected, size_bytes=self._size, end_offset=end_offset
        )
        if is_raised is not None:
            return not is_raised
        return self.facts.may_have_gaps or header[BASE_OFFSET_FIELD] + header[LAST_OFFSET_DELTA_FIELD] + 1 == end_offset

    def _epoch_at(self, offset: int) -> int:
        number = bisect_right(self._starts, offset) - 1
        return self.facts.epochs[number][0] if number >= 0 else NO_EPOCH

    def _checksum_of_large(self, read: ReadAt, position: int, header: HeaderFields) -> int:
        """The CRC-32C of a batch that passes a chunk. -1 when what its length says is followed by no batch, so that not
        all is read for it."""
        stop = position + header[BATCH_LENGTH_FIELD] + LOG_OVERHEAD_BYTES
        if self._size - stop >= HEADER_BYTES:
            following = _unpack_header(read(stop, HEADER_BYTES))
            next_offset = header[BASE_OFFSET_FIELD] + header[LAST_OFFSET_DELTA_FIELD] + 1
            if following[BASE_OFFSET_FIELD] < next_offset or following[MAGIC_FIELD] != MAGIC:
                return -1
        return _checksum(read, position + CRC_START, stop)

    def _pass(self, position: int, header: HeaderFields) -> None:
        self.batches += 1
        if header[BASE_OFFSET_FIELD] != self._expected:
            self.has_gaps = True
        self.greatest_timestamp_ms = max(self.greatest_timestamp_ms, header[MAX_TIMESTAMP_FIELD])
        last_offset = header[BASE_OFFSET_FIELD] + header[LAST_OFFSET_DELTA_FIELD]
        index = self._index
        if index is not None:
            while self._indexed < len(index) and index[self._indexed][1] <= position:
                entry = index[self._indexed]
                if entry != (last_offset - self.facts.base_offset, position):
                    self.is_index_sound = False
                self._indexed += 1
        self._expected = Offset(last_offset + 1)
        self._position = position + header[BATCH_LENGTH_FIELD] + LOG_OVERHEAD_BYTES
        if index is not None and self.is_done and self._indexed < len(index):
            self.is_index_sound = False

    def _damage(self, position: int, read: ReadAt, header: HeaderFields | None, reason: str) -> None:
        """Note a damaged range, and continue behind it."""
        found = find_sound_batch(
            read,
            position,
            self._size,
            header,
            after=self._expected,
            end_offset=self.facts.end_offset,
            epochs=self.facts.epochs,
        )
        stop, end = (self._size, self.facts.end_offset) if found is None else found
        self.damages = merge(
            [*self.damages, DamagedRange(self._expected, Offset(end), self.facts.base_offset, position, stop, reason)]
        )
        if self._index is not None:
            # What the index says of batches that cannot be read cannot be judged.
            while self._indexed < len(self._index) and self._index[self._indexed][1] < stop:
                self._indexed += 1
        self._position, self._expected = stop, Offset(end)


def find_sound_batch(
    read: ReadAt,
    position: int,
    size_bytes: int,
    header: HeaderFields | None,
    *,
    after: int,
    end_offset: int,
    epochs: Sequence[tuple[Epoch, Offset]] = (),
) -> tuple[int, int] | None:
    """(position, base offset) of the first whole sound batch behind the damaged one at `position`, or None.

    header: what the damaged batch's own header says, as a first guess. after, end_offset: its base offset is above the one and
    not above the other. epochs: as CheckFacts has them; empty leaves that out.
    """
    starts = [start for _, start in epochs]

    def is_sound(at: int, fields: HeaderFields) -> bool:
        base_offset, length, epoch, magic, crc, _, last_delta, *_ = fields
        stop = at + length + LOG_OVERHEAD_BYTES
        if magic != MAGIC or length < _LENGTH_MIN or last_delta < 0 or stop > size_bytes:
            return False
        if not after < base_offset <= end_offset:
            return False
        known = bisect_right(starts, base_offset) - 1
        if known >= 0 and epochs[known][0] != epoch:
            return False
        return _checksum(read, at + CRC_START, stop) == crc

    if header is not None and header[BATCH_LENGTH_FIELD] >= _LENGTH_MIN:
        guess = position + header[BATCH_LENGTH_FIELD] + LOG_OVERHEAD_BYTES
        if guess + HEADER_BYTES <= size_bytes:
            fields = _unpack_header(read(guess, HEADER_BYTES))
            if is_sound(guess, fields):
                return guess, fields[BASE_OFFSET_FIELD]
    begin = position + 1
    while size_bytes - begin >= HEADER_BYTES:
        chunk = read(begin, min(CHUNK_BYTES, size_bytes - begin))
        if len(chunk) < HEADER_BYTES:
            return None
        last = len(chunk) - HEADER_BYTES
        at = chunk.find(MAGIC, _MAGIC_AT)
        while 0 <= at <= last + _MAGIC_AT:
            fields = _unpack_header(chunk, at - _MAGIC_AT)
            if is_sound(begin + at - _MAGIC_AT, fields):
                return begin + at - _MAGIC_AT, fields[BASE_OFFSET_FIELD]
            at = chunk.find(MAGIC, at + 1)
        begin += last + 1
    return None


def is_offset_raised(
    read: ReadAt, position: int, header: HeaderFields, *, expected: int, size_bytes: int, end_offset: int = -1
) -> bool | None:
    """Whether rot has raised the offset of a batch with a right checksum, at `position`, that begins after `expected`.

    end_offset: where the batches of the file end, -1 where that is not known. False where the batch behind is of later offsets: then
    compaction left the gap. None where nothing behind tells.
    """
    stop = position + header[BATCH_LENGTH_FIELD] + LOG_OVERHEAD_BYTES
    last_offset = header[BASE_OFFSET_FIELD] + header[LAST_OFFSET_DELTA_FIELD]
    raw = read(stop, HEADER_BYTES)
    if len(raw) < HEADER_BYTES:
        return None
    base_offset, length, _, magic, crc, _, last_delta, *_ = _unpack_header(raw)
    behind_stop = stop + length + LOG_OVERHEAD_BYTES
    if magic != MAGIC or length < _LENGTH_MIN or last_delta < 0 or behind_stop > size_bytes:
        return None
    if base_offset > last_offset:
        return False
    if base_offset <= expected or _checksum(read, stop + CRC_START, behind_stop) != crc:
        return None
    # One of the two has the wrong offset: the one that does not go with what comes next.
    raw = read(behind_stop, HEADER_BYTES)
    third = _unpack_header(raw)[BASE_OFFSET_FIELD] if len(raw) == HEADER_BYTES else end_offset
    if third < 0:
        return (header[BASE_OFFSET_FIELD] ^ expected).bit_count() == 1 or None
    return third == base_offset + last_delta + 1 or third <= last_offset or None


def merge(damages: Iterable[DamagedRange]) -> list[DamagedRange]:
    """Ranges of one segment, rising: those that touch become one, and all of them where they are too many."""
    merged: list[DamagedRange] = []
    for damage in damages:
        if merged and damage.position <= merged[-1].stop:
            last = merged[-1]
            merged[-1] = last._replace(
                end_offset=max(last.end_offset, damage.end_offset), stop=max(last.stop, damage.stop)
            )
        else:
            merged.append(damage)
    if len(merged) > DAMAGES_MAX:
        merged = [merged[0]._replace(end_offset=merged[-1].end_offset, stop=merged[-1].stop)]
    return merged


def plan_pass(segments: Iterable[SegmentName], checked: SegmentName | None) -> list[SegmentName]:
    """What a pass checks, in its order: all that sorts after `checked`, which an earlier run of the broker had come to."""
    return sorted(each for each in segments if checked is None or each > checked)


def pause_s(*, bytes_read: int, batches: int, segments: int, bytes_per_second: int, took_s: float) -> float:
    """How long to wait after a step, so that a scrub stays below its rate. Each batch counts for BATCH_COST_BYTES more and each
    segment that the step began for SEGMENT_COST_BYTES: tiny ones cost Python's time instead of the disk's. Without the second,
    10,000 partitions of one record each were passed over again every 11 s, for 0.15 cores."""
    cost_bytes = bytes_read + batches * BATCH_COST_BYTES + segments * SEGMENT_COST_BYTES
    return max(0.0, cost_bytes / bytes_per_second - took_s)


def newest_in_time_index(raw: bytes) -> int | None:
    """The time of its last entry in ms, -1 without one; None where it can be no time index: whole entries whose times and offsets
    rise."""
    if len(raw) % _TIME_ENTRY.size:
        return None
    entries = list(_TIME_ENTRY.iter_unpack(raw))
    if not all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(entries)):
        return None
    return int(entries[-1][0]) if entries else -1


def _checksum(read: ReadAt, start: int, stop: int) -> int:
    """CRC-32C of the bytes from start to stop, a chunk at a time; -1 where they end early."""
    found = 0
    for position in range(start, stop, CHUNK_BYTES):
        size = min(CHUNK_BYTES, stop - position)
        data = read(position, size)
        if len(data) < size:
            return -1
        found = extend_crc32c(found, data)
    return found
