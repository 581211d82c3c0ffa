"""Keys, tombstones and times of the records of a batch, without building a record.

May touch:  its arguments.            Must not touch: files, clocks.
Invariants: bytes that are not records raise CorruptBatch, nothing else; what is kept is the very bytes that were there.
Read next:  survival.py, which decides with this; barnabas_wire/records/batch.py for the layout.

Not obvious: flat loops on purpose, they see every record of a log. A key shorter than a digest stands for itself; a longer one
for its digest, which nobody can collide at will: two keys taken for one would lose a value.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from barnabas_wire.records.batch import CorruptBatch

DIGEST_BYTES: Final = 16
_DELTA_MAX: Final = 0xFFFFFFFF
"""Of an offset from its batch's base, zigzagged."""
_UINT64_MAX: Final = 0xFFFFFFFFFFFFFFFF
_digest = partial(blake2b, digest_size=DIGEST_BYTES)


def key_slot(key: bytes) -> bytes:
    """What stands for a key in an offset map."""
    return key if len(key) < DIGEST_BYTES else _digest(key).digest()


def note_keys(records: bytes, *, count: int, base_offset: int, offsets: MutableMapping[bytes, int]) -> None:
    """Put the offset of each keyed record into `offsets`, later ones over earlier ones. Raises CorruptBatch."""
    at, stop, short = 0, len(records), DIGEST_BYTES
    try:
        for _ in range(count):
            size = records[at]
            at += 1
            if size >= 0x80:
                size, at = _long_varint(records, at)
            end = at + (size >> 1)
            if size & 1 or end > stop:
                raise CorruptBatch(f"a record passes the end of the batch at offset {base_offset}")
            at += 1
            while records[at] >= 0x80:  # timestamp delta
                at += 1
            at += 1
            delta = records[at]
            at += 1
            if delta >= 0x80:
                delta, at = _long_varint(records, at)
                if delta > _DELTA_MAX:
                    raise CorruptBatch(f"a record's offset is out of bounds in the batch at offset {base_offset}")
            size = records[at]
            at += 1
            if size >= 0x80:
                size, at = _long_varint(records, at)
            if not size & 1:
                key = records[at : at + (size >> 1)]
                if at + (size >> 1) >= end:
                    raise CorruptBatch(f"a key passes its record's end in the batch at offset {base_offset}")
                offsets[key if len(key) < short else _digest(key).digest()] = base_offset + (delta >> 1)
            at = end
    except IndexError:
        raise CorruptBatch(f"a record is cut off in the batch at offset {base_offset}") from None
    if at != stop:
        raise CorruptBatch(f"{stop - at} bytes are left after the last record of the batch at {base_offset}")


class Kept(NamedTuple):
    """What stays of a batch's records."""

    ranges: list[tuple[int, int]]
    """(start, stop) in the records section, rising; neighbours are one range."""
    record_count: int
    newest_ms: int
    """Greatest time of a record that stays, as a delta from the batch's base timestamp."""
    has_tombstones: bool
    """Whether a record that stays has no value."""
    keyless: int
    """Records dropped because they have no key."""


def keep_last(
    records: bytes, *, count: int, base_offset: int, offsets: Mapping[bytes, int], latest: int, drops_tombstones: bool
) -> Kept:
    """The records that stay: those above `latest`, and of the others the last of their key by `offsets`, unless it is a tombstone
    and those go. Raises CorruptBatch."""
    at, stop, short = 0, len(records), DIGEST_BYTES
    find = offsets.get
    ranges: list[tuple[int, int]] = []
    begin = -1
    kept = keyless = 0
    newest_ms, has_tombstones = -(1 << 63), False
    try:
        for _ in range(count):
            start = at
            size = records[at]
            at += 1
            if size >= 0x80:
                size, at = _long_varint(records, at)
            end = at + (size >> 1)
            if size & 1 or end > stop:
                raise CorruptBatch(f"a record passes the end of the batch at offset {base_offset}")
            at += 1
            elapsed = records[at]
            at += 1
            if elapsed >= 0x80:
                elapsed, at = _long_varint(records, at)
            delta = records[at]
            at += 1
            if delta >= 0x80:
                delta, at = _long_varint(records, at)
                if delta > _DELTA_MAX:
                    raise CorruptBatch(f"a record's offset is out of bounds in the batch at offset {base_offset}")
            size = records[at]
            at += 1
            if size >= 0x80:
                size, at = _long_varint(records, at)
            offset = base_offset + (delta >> 1)
            if size & 1:
                is_kept = offset > latest
                keyless += not is_kept
            else:
                key = records[at : at + (size >> 1)]
                at += size >> 1
                if at >= end:
                    raise CorruptBatch(f"a key passes its record's end in the batch at offset {base_offset}")
                is_kept = offset > latest or offset >= find(key if len(key) < short else _digest(key).digest(), -1)
            if is_kept:
                is_tombstone = records[at] == 1  # zigzag of -1
                if is_tombstone and drops_tombstones and offset <= latest:
                    is_kept = False
            if is_kept:
                kept += 1
                has_tombstones = has_tombstones or is_tombstone
                elapsed = (elapsed >> 1) ^ -(elapsed & 1)
                if elapsed > newest_ms:
                    newest_ms = elapsed
                if begin < 0:
                    begin = start
            elif begin >= 0:
                ranges.append((begin, start))
                begin = -1
            at = end
    except IndexError:
        raise CorruptBatch(f"a record is cut off in the batch at offset {base_offset}") from None
    if at != stop:
        raise CorruptBatch(f"{stop - at} bytes are left after the last record of the batch at {base_offset}")
    if begin >= 0:
        ranges.append((begin, stop))
    return Kept(ranges, kept, newest_ms, has_tombstones, keyless)


def move_times(records: bytes, *, by_ms: int) -> bytes:
    """The same records with `by_ms` added to each time delta: for a batch whose base timestamp moves down by as much."""
    out = bytearray()
    at, stop = 0, len(records)
    while at < stop:
        size, at = _varint(records, at)
        end = at + (size >> 1)
        attributes = records[at : at + 1]
        elapsed, after = _varint(records, at + 1)
        body = bytearray(attributes)
        _write_varint(body, ((elapsed >> 1) ^ -(elapsed & 1)) + by_ms)
        body += records[after:end]
        _write_varint(out, len(body))
        out += body
        at = end
    return bytes(out)


def _write_varint(out: bytearray, value: int) -> None:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def _varint(records: bytes, at: int) -> tuple[int, int]:
    """The zigzagged number at `at`, and the position after it."""
    byte = records[at]
    return (byte, at + 1) if byte < 0x80 else _long_varint(records, at + 1)


def _long_varint(records: bytes, at: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, before `at`, has the continuation bit: the zigzagged number, position after it."""
    result = records[at - 1] & 0x7F
    shift = 7
    while True:
        byte = records[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _UINT64_MAX, at
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint is longer than ten bytes")
