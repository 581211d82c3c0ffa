"""The varints of records, and the walk over a batch's records without building one.

May touch:  its arguments.            Must not touch: files, clocks, everything else.
Invariants: bytes that are not records raise CorruptBatch, nothing else; positions that are given out lie within the bytes.
Read next:  batch.py for the layout; last_values.py, inspection.py and barnabas_log/cleaner/key_scan.py, which walk; compiled.py for
            the varint in machine code.

Not obvious: a flat loop on purpose, it sees every record of a log. As a generator it costs what the same loop costs when each of its
users writes it out: 1.25 us a record with its key in a map (measured, Python 3.11).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas_wire.kafka.errors import ErrorCode, KafkaError

DELTA_MAX: Final = 0xFFFFFFFF
"""The largest zigzagged distance of an offset from its batch's base."""
_UINT64_MAX: Final = 0xFFFFFFFFFFFFFFFF


class CorruptBatch(KafkaError):
    """Bytes that are no whole, sound record batch."""

    code = ErrorCode.CORRUPT_MESSAGE


def walk(
    records: bytes, *, count: int, base_offset: int | None = None, at: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Pass over `count` records of an opened section, which ends at `stop` (None: with the bytes).

    Yields (start, elapsed, delta, key size, key at, end) of each: `start`, `key at` and `end` are positions; elapsed time, offset delta
    and key size are zigzagged as they stand there, so that an odd size says that there is no key.
    Raises CorruptBatch, which names `base_offset` if there is one, where a record passes the end or is cut off, or bytes are left after
    the last.
    """
    stop = len(records) if stop is None else stop
    batch = "its batch" if base_offset is None else f"the batch at offset {base_offset}"
    try:
        for _ in range(count):
            start = at
            size = records[at]
            at += 1
            if size >= 0x80:
                size, at = long_varint(records, at)
            end = at + (size >> 1)
            if size & 1 or end > stop:
                raise CorruptBatch(f"a record passes the end of {batch}")
            at += 1  # attributes
            elapsed = records[at]
            at += 1
            if elapsed >= 0x80:
                elapsed, at = long_varint(records, at)
            delta = records[at]
            at += 1
            if delta >= 0x80:
                delta, at = long_varint(records, at)
                if delta > DELTA_MAX:
                    raise CorruptBatch(f"a record's offset is out of bounds in {batch}")
            size = records[at]
            at += 1
            if size >= 0x80:
                size, at = long_varint(records, at)
            yield start, elapsed, delta, size, at, end
            at = end
    except IndexError:
        raise CorruptBatch(f"a record is cut off in {batch}") from None
    if at != stop:
        raise CorruptBatch(f"{stop - at} bytes are left after the last record of {batch}")


def write_varint(out: bytearray, value: int) -> None:
    """Append a 64-bit signed value as a zigzag varint; a 32-bit one gets the same bytes as Kafka's varint."""
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def read_varint(records: bytes, at: int) -> tuple[int, int]:
    """The value at `at`, and the position after it. Raises CorruptBatch."""
    try:
        zigzag, at = records[at], at + 1
        if zigzag >= 0x80:
            zigzag, at = long_varint(records, at)
    except IndexError:
        raise CorruptBatch("a varint passes the end of the batch") from None
    return (zigzag >> 1) ^ -(zigzag & 1), at


def long_varint(records: bytes, at: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, before `at`, has the continuation bit: the zigzagged number, position after it.

    Raises CorruptBatch for one of more than ten bytes, IndexError past the end.
    """
    result, shift = records[at - 1] & 0x7F, 7
    while True:
        byte = records[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _UINT64_MAX, at
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint is longer than ten bytes")
