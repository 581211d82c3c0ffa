"""A run: sound batches of one leader epoch, end to end, as a leader sent them to its follower.

May touch:  its arguments.            Must not touch: clocks, files, log state.
Invariants: a run continues the log, with rising offsets; each of its checksums is right, which is known without opening
            a record.
Read next:  log_tail.py append_as_follower, the one caller, which appends a run in one go.

Why runs: a follower's answer holds some 30 batches of 16 KiB. Judged, counted, indexed and written one by one they cost
a follower as much as the leader pays for taking them from its producers.

Offsets may be missing between two batches where the leader compacts: it has none for what it let go of.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_log.errors import InvalidBatch
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import (
    BASE_OFFSET_FIELD,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH_FIELD,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    Buffer,
    CorruptBatch,
    HeaderFields,
    read_header,
)
from barnabas_wire.records.crc32c import crc32c, extend_crc32c

_unpack_header = HEADER.unpack_from
CRC_WINDOW_BYTES = 128 * 1024
"""Copied at a time for the checksum of a large batch: a copy of 1 MiB would drive the batch itself out of the processor's
cache before it is written (measured: 5 to 10 % of a follower's append)."""
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES


class BatchRun(NamedTuple):
    """The headers of a run, at least one, as plain tuples in BatchHeader's order, and where in the buffer it ends."""

    headers: list[HeaderFields]
    stop: int
    has_producers: bool
    """Whether any of them names an idempotent producer."""
    has_gaps: bool = False
    """Whether offsets are missing before or between them."""

    @property
    def epoch(self) -> Epoch:
        """The leader epoch of all its batches."""
        return Epoch(self.headers[0][LEADER_EPOCH_FIELD])


def read_run(view: memoryview, position: int, *, next_offset: Offset, may_have_gaps: bool = False) -> BatchRun:
    """The longest run that begins at `position`, where the log continues with `next_offset`; with `may_have_gaps` it,
    and each batch after another, may begin later.

    It ends before the first batch that is not sound or of another epoch, so whoever reads on from there learns why.
    Raises CorruptBatch or InvalidBatch when not even the first batch is sound.
    """
    headers: list[HeaderFields] = []
    append = headers.append
    begin, end, expected = position, len(view), next_offset
    run_epoch = None
    has_producers = has_gaps = False
    while end - position >= HEADER_BYTES:
        header = _unpack_header(view, position)
        base_offset, length, epoch, magic, crc, _, last_delta, _, _, producer_id, _, _, _ = header
        following = position + length + LOG_OVERHEAD_BYTES
        if base_offset < expected or magic != MAGIC or last_delta < 0 or length < _LENGTH_MIN or following > end:
            break
        if base_offset != expected:
            # No checksum covers an offset: one that rot has raised is above what follows.
            if not may_have_gaps or not is_below_next(view, following, base_offset + last_delta):
                break
            has_gaps = True
        if epoch != run_epoch:
            if headers:
                break
            run_epoch = epoch
        if length <= CRC_WINDOW_BYTES:
            found = crc32c(view[position + CRC_START : following])
        else:
            found = _checksum(view, position + CRC_START, following)
        if found != crc:
            break
        if producer_id >= 0:
            has_producers = True
        append(header)
        expected = base_offset + last_delta + 1
        position = following
    if not headers:
        _refuse(view, begin, next_offset)
    return BatchRun(headers, position, has_producers, has_gaps)


def is_below_next(view: Buffer, position: int, last_offset: int) -> bool:
    """Whether the batch that begins at `position`, if its header is there, is of offsets above `last_offset`."""
    return len(view) - position < HEADER_BYTES or _unpack_header(view, position)[BASE_OFFSET_FIELD] > last_offset


def _checksum(view: memoryview, start: int, stop: int) -> int:
    """CRC-32C of view[start:stop], a window at a time."""
    found = 0
    for position in range(start, stop, CRC_WINDOW_BYTES):
        found = extend_crc32c(found, view[position : min(stop, position + CRC_WINDOW_BYTES)])
    return found


def _refuse(view: memoryview, position: int, next_offset: Offset) -> None:
    """Raise what is wrong with the batch at `position`."""
    header = read_header(view, position)
    left = len(view) - position
    if header.size_bytes > left:
        raise CorruptBatch(f"the last batch is cut off: {left} of {header.size_bytes} bytes")
    if header.magic != MAGIC or header.last_offset_delta < 0:
        raise CorruptBatch(f"a batch of magic {header.magic} with last offset delta {header.last_offset_delta}")
    if header.base_offset != next_offset:
        raise InvalidBatch(f"the log ends at {next_offset}, the batch is {header.base_offset}")
    raise CorruptBatch(f"the checksum of the batch at {header.base_offset} is wrong")
