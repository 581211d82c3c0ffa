"""The five compression types of a record batch, by their number in the batch attributes.

May touch:  cramjam, zlib.            Must not touch: sockets, files, clock.
Invariants: a type's number never changes; what decompress returns is never longer than the caller allows.
Read next:  batch.py, which stores the number in the low three bits of its attributes.
"""

from __future__ import annotations

from enum import IntEnum


class CompressionType(IntEnum):
    """Bits 0–2 of the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
