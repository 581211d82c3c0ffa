"""The batches of a log file, and what is damaged between them.

May touch:  its arguments.            Must not touch: files, printing, records.
Invariants: damage is named with its byte, and reading continues at the next whole batch behind it; room that was never
            written is none.
Read next:  log_dump.py and data_dump.py, which print them.

Where a length is damaged too, the next batch is looked for byte by byte: one begins where magic is 2, the offset
continues, and the checksum is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas_wire.records.batch import HEADER_BYTES, MAGIC, BatchHeader, CorruptBatch, crc_is_valid, read_header


class Damage(NamedTuple):
    """Bytes that are not what should be there."""

    position: int
    size: int
    offset: int
    """The offset that the batch there should have, or says it has."""
    reason: str


def batches_of(data: bytes) -> Iterator[tuple[int, BatchHeader | Damage]]:
    """(position, header) of each batch in order, or of what is damaged."""
    position, expected = 0, -1
    while position < len(data):
        header, reason = _batch_at(data, position)
        if header is not None:
            if expected >= 0 and header.base_offset < expected:
                found = f"offset {header.base_offset} comes after {expected - 1}"
                yield position, Damage(position, 0, header.base_offset, found)
            yield position, header
            position, expected = position + header.size_bytes, header.next_offset
            continue
        following = _next_batch(data, position + 1, expected)
        end = len(data) if following is None else following
        if not any(data[position:end]):
            return  # preallocated, never written
        yield position, Damage(position, end - position, max(expected, 0), reason)
        position = end


def _batch_at(data: bytes, position: int) -> tuple[BatchHeader | None, str]:
    try:
        header = read_header(data, position)
    except CorruptBatch:
        return None, f"{len(data) - position} bytes are less than a batch header ({HEADER_BYTES}): an unfinished write"
    if header.magic != MAGIC or header.size_bytes < HEADER_BYTES or header.last_offset_delta < 0:
        return None, "no batch begins here"
    if position + header.size_bytes > len(data):
        return (
            None,
            f"a batch of {header.size_bytes} bytes is cut off after {len(data) - position}: an unfinished write",
        )
    if not crc_is_valid(data, position, header):
        return (
            None,
            f"the checksum of the batch at offset {header.base_offset} is wrong ({header.record_count} records)",
        )
    return header, ""


def _next_batch(data: bytes, start: int, expected: int) -> int | None:
    """Where the next whole batch begins."""
    for position in range(start, len(data) - HEADER_BYTES + 1):
        if data[position + 16] != MAGIC:
            continue
        header, _ = _batch_at(data, position)
        if header is not None and header.base_offset >= expected:
            return position
    return None
