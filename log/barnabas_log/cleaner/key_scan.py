"""Keys, tombstones and times of the records of a batch, without building a record.

May touch:  its arguments.            Must not touch: files, clocks.
Invariants: bytes that are not records raise CorruptBatch, nothing else; what is kept is the very bytes that were there.
Read next:  survival.py, which decides with this; barnabas_wire/records/walk.py, the loop.

Not obvious: a key shorter than a digest stands for itself; a longer one
stands for its digest, which cannot be made to collide at will: two keys taken for one would lose a value.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from barnabas_wire.records.walk import CorruptBatch, read_varint, walk, write_varint

DIGEST_BYTES: Final = 16
_digest = partial(blake2b, digest_size=DIGEST_BYTES)


def key_slot(key: bytes) -> bytes:
    """What stands for a key in an offset map."""
    return key if len(key) < DIGEST_BYTES else _digest(key).digest()


def note_keys(records: bytes, *, count: int, base_offset: int, offsets: MutableMapping[bytes, int]) -> None:
    """Put the offset of each keyed record into `offsets`, later ones over earlier ones. Raises CorruptBatch."""
    for _, _, delta, size, at, end in walk(records, count=count, base_offset=base_offset):
        if not size & 1:
            key = records[at : at + (size >> 1)]
            if at + (size >> 1) >= end:
                raise CorruptBatch(f"a key passes its record's end in the batch at offset {base_offset}")
            offsets[key if len(key) < DIGEST_BYTES else _digest(key).digest()] = base_offset + (delta >> 1)


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
    find = offsets.get
    ranges: list[tuple[int, int]] = []
    begin = -1
    kept = keyless = 0
    newest_ms, has_tombstones = -(1 << 63), False
    for start, elapsed, delta, size, at, end in walk(records, count=count, base_offset=base_offset):
        offset = base_offset + (delta >> 1)
        if size & 1:
            value_at = at
            is_kept = offset > latest
            keyless += not is_kept
        else:
            value_at = at + (size >> 1)
            key = records[at:value_at]
            if value_at >= end:
                raise CorruptBatch(f"a key passes its record's end in the batch at offset {base_offset}")
            is_kept = offset > latest or offset >= find(key if len(key) < DIGEST_BYTES else _digest(key).digest(), -1)
        if is_kept:
            if value_at >= len(records):
                raise CorruptBatch(f"a record is cut off in the batch at offset {base_offset}")
            is_tombstone = records[value_at] == 1  # zigzag of -1
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
    if begin >= 0:
        ranges.append((begin, len(records)))
    return Kept(ranges, kept, newest_ms, has_tombstones, keyless)


def move_times(records: bytes, *, by_ms: int) -> bytes:
    """The same records with `by_ms` added to each time delta: for a batch whose base timestamp moves down by as much."""
    out = bytearray()
    at, stop = 0, len(records)
    while at < stop:
        size, at = read_varint(records, at)
        end = at + size
        elapsed, after = read_varint(records, at + 1)
        body = bytearray(records[at : at + 1])
        write_varint(body, elapsed + by_ms)
        body += records[after:end]
        write_varint(out, len(body))
        out += body
        at = end
    return bytes(out)
