"""A note: a few numbers about a sealed segment, in a small file of our own beside it, with a checksum.

May touch:  its arguments.            Must not touch: files, segments.
Invariants: a note is read whole and as it was written, or not at all; what it says can be made again from the segment.
Read next:  aborted_transactions.py and true_times.py, which write notes.

Layout (big-endian): 0  2 version = 1;  2  4 CRC-32C of byte 6 to the end;  6  8 each number i64.
Apache Kafka and our former versions pass over such files. So one may be of an earlier state of its segment: whatever it says must
name what it was made of.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas_wire.kafka.ids import NO_OFFSET, Offset
from barnabas_wire.records.crc32c import crc32c

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")


class TrueTime(NamedTuple):
    """What is known of the times of the records in the first `judged_bytes` of a segment."""

    judged_bytes: int = 0
    greatest_ms: int = -1
    """The greatest timestamp of its records; -1 where none bears a time."""
    offset: Offset = NO_OFFSET
    """The offset of the first record with that timestamp."""
    doubtful: int = 0
    """Batches whose header proves nothing."""


def encode_note(numbers: Sequence[int]) -> bytes:
    """Content of the file."""
    body = struct.pack(f">{len(numbers)}q", *numbers)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_note(content: bytes) -> tuple[int, ...] | None:
    """The numbers; None where that is not what was written."""
    if len(content) < _HEAD.size or (len(content) - _HEAD.size) % 8:
        return None
    version, crc = _HEAD.unpack_from(content)
    body = content[_HEAD.size :]
    if version != _VERSION or crc32c(body) != crc:
        return None
    return struct.unpack(f">{len(body) // 8}q", body)
