"""The offset map and the loops over records in machine code: the same answers as key_scan.py, many times as fast.

May touch:  numba, numpy, its arguments.   Must not touch: files, clocks.
Invariants: what it says of a batch is what the plain loops say, or it raises what they raise (a test holds both equal); keys are
            distinguished by 128 bits of a hash whose secret is the process's own.
Read next:  key_scan.py, which says what is right; worker.py, which takes this where the extra is installed.

Layout of the table: rows of three uint64, two of the key's SipHash-2-4 and its offset + 1, 0 for an empty row; linear probing; it
doubles when it is three quarters full, up to the map's bound (and while it doubles, half as much again is in use).

Not obvious: a hash without a secret could be collided at will, and two keys taken for one lose a value. Every uint64 meets only
uint64: numba makes a float of it and an int64.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numba
import numpy as np

from barnabas_log.cleaner.key_scan import Kept, keep_last, note_keys
from barnabas_log.cleaner.survival import KeyOffsets
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.records.compiled import READ_ONLY_BYTES, compiled

if TYPE_CHECKING:
    import numpy.typing as npt

    Table = npt.NDArray[np.uint64]

ROW_BYTES: Final = 24
FULL: Final = 0.75
_ROWS_MIN: Final = 1 << 12
_U64 = np.uint64
_ONE, _SEVEN, _DELTA_MAX = _U64(1), _U64(7), _U64(0xFFFFFFFF)
_TABLE, _SECRET = numba.uint64[:, ::1], numba.uint64[::1]
_NOTE = numba.int64(READ_ONLY_BYTES, numba.int64, numba.int64, _TABLE, _SECRET)
_KEEP = numba.int64(
    READ_ONLY_BYTES, numba.int64, numba.int64, numba.int64, numba.boolean, _TABLE, _SECRET, numba.int32[::1], numba.int64[::1]
)  # fmt: skip
_MOVE = numba.void(_TABLE, _TABLE)
_HASH = numba.void(READ_ONLY_BYTES, _SECRET, numba.uint64[::1])


class CompiledKeyOffsets(KeyOffsets):
    """As KeyOffsets, with machine code for the loops."""

    def __init__(self, *, bytes_max: int) -> None:
        super().__init__(bytes_max=bytes_max)
        rows = 1
        while rows * 2 * ROW_BYTES <= bytes_max:
            rows *= 2
        self.entries_max = max(1, int(rows * FULL))
        self._table: Table = np.zeros((min(_ROWS_MIN, rows), 3), dtype=np.uint64)
        self._used = 0
        self._secret = np.frombuffer(os.urandom(16), dtype=np.uint64).copy()

    @property
    def key_count(self) -> int:
        """See KeyOffsets."""
        return self._used

    def note_records(self, records: bytes, *, count: int, base_offset: int) -> None:
        """See KeyOffsets."""
        if count <= len(records):
            while self._used + count > len(self._table) * FULL:
                larger = np.zeros((len(self._table) * 2, 3), dtype=np.uint64)
                _move(self._table, larger)
                self._table = larger
            added = _note(np.frombuffer(records, dtype=np.uint8), count, base_offset, self._table, self._secret)
            if added >= 0:
                self._used += added
                return
        note_keys(records, count=count, base_offset=base_offset, offsets={})
        raise InvariantViolated(f"the batch at {base_offset} is sound to one scan of keys and not to the other")

    def keep(self, records: bytes, *, count: int, base_offset: int, drops_tombstones: bool) -> Kept:
        """See KeyOffsets."""
        if count <= len(records):
            spans = np.empty(2 * count, dtype=np.int32)
            found = np.empty(4, dtype=np.int64)
            ranges = _keep(
                np.frombuffer(records, dtype=np.uint8),
                *(count, base_offset, self.latest, drops_tombstones, self._table, self._secret, spans, found),
            )
            if ranges >= 0:
                ends = spans[: 2 * ranges].tolist()
                kept, newest_ms, has_tombstones, keyless = found.tolist()
                return Kept(
                    list(zip(ends[::2], ends[1::2], strict=True)), kept, newest_ms, bool(has_tombstones), keyless
                )
        keep_last(
            *(records,),
            count=count,
            base_offset=base_offset,
            offsets={},
            latest=self.latest,
            drops_tombstones=drops_tombstones,
        )
        raise InvariantViolated(f"the batch at {base_offset} is sound to one scan of records and not to the other")


def sip_hash(data: bytes, secret: bytes) -> bytes:
    """SipHash-2-4 of 128 bits."""
    out = np.empty(2, dtype=np.uint64)
    _hash_into(np.frombuffer(data, dtype=np.uint8), np.frombuffer(secret, dtype=np.uint64).copy(), out)
    return out.tobytes()


@numba.njit
def _round(v0, v1, v2, v3):  # type: ignore[no-untyped-def]
    v0 += v1
    v1 = ((v1 << _U64(13)) | (v1 >> _U64(51))) ^ v0
    v0 = (v0 << _U64(32)) | (v0 >> _U64(32))
    v2 += v3
    v3 = ((v3 << _U64(16)) | (v3 >> _U64(48))) ^ v2
    v0 += v3
    v3 = ((v3 << _U64(21)) | (v3 >> _U64(43))) ^ v0
    v2 += v1
    v1 = ((v1 << _U64(17)) | (v1 >> _U64(47))) ^ v2
    v2 = (v2 << _U64(32)) | (v2 >> _U64(32))
    return v0, v1, v2, v3


@numba.njit
def _word(data, at):  # type: ignore[no-untyped-def]
    """Eight bytes, the lowest first."""
    return (
        _U64(data[at])
        | _U64(data[at + 1]) << _U64(8)
        | _U64(data[at + 2]) << _U64(16)
        | _U64(data[at + 3]) << _U64(24)
        | _U64(data[at + 4]) << _U64(32)
        | _U64(data[at + 5]) << _U64(40)
        | _U64(data[at + 6]) << _U64(48)
        | _U64(data[at + 7]) << _U64(56)
    )


@numba.njit
def _hash(data, at, size, secret):  # type: ignore[no-untyped-def]
    """Both words of the SipHash of data[at : at + size]."""
    v0 = secret[0] ^ _U64(0x736F6D6570736575)
    v1 = secret[1] ^ _U64(0x646F72616E646F83)
    v2 = secret[0] ^ _U64(0x6C7967656E657261)
    v3 = secret[1] ^ _U64(0x7465646279746573)
    stop = at + (size & ~7)
    while at < stop:
        word = _word(data, at)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    word = _U64(size) << _U64(56)
    for number in range(size & 7):
        word |= _U64(data[at + number]) << _U64(8 * number)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _U64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _U64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@compiled(_HASH)
def _hash_into(data, secret, out):  # type: ignore[no-untyped-def]
    out[0], out[1] = _hash(data, 0, data.shape[0], secret)


@numba.njit
def _row(table, first, second):  # type: ignore[no-untyped-def]
    """Where a key is, or the empty row where it goes."""
    mask = _U64(table.shape[0] - 1)
    row = first & mask
    while table[row, 2] != _U64(0) and not (table[row, 0] == first and table[row, 1] == second):
        row = (row + _ONE) & mask
    return row


@compiled(_MOVE)
def _move(old, new):  # type: ignore[no-untyped-def]
    """Put all keys of a table into a larger one."""
    for number in range(old.shape[0]):
        if old[number, 2] != _U64(0):
            row = _row(new, old[number, 0], old[number, 1])
            new[row, 0] = old[number, 0]
            new[row, 1] = old[number, 1]
            new[row, 2] = old[number, 2]


@numba.njit
def _raw_varint(data, at, stop):  # type: ignore[no-untyped-def]
    """The zigzagged number and the position after it, which is -1 where there is none or it is too long."""
    value, shift = _U64(0), _U64(0)
    while at < stop and shift < _U64(70):
        byte = data[at]
        at += 1
        value |= _U64(byte & np.uint8(0x7F)) << shift
        if byte < 128:
            return value, at
        shift += _SEVEN
    return _U64(0), np.int64(-1)


@compiled(_NOTE)
def _note(data, count, base_offset, table, secret):  # type: ignore[no-untyped-def]
    """See key_scan.note_keys. Returns how many keys are new, or -1 where that raises."""
    at, stop, added = np.int64(0), np.int64(data.shape[0]), np.int64(0)
    for _ in range(count):
        size, at = _raw_varint(data, at, stop)
        if at < 0 or size & _ONE or size >> _ONE > _U64(stop - at):
            return -1
        end = at + np.int64(size >> _ONE)
        _, at = _raw_varint(data, at + 1, stop)  # timestamp delta
        if at < 0:
            return -1
        delta, at = _raw_varint(data, at, stop)
        if at < 0 or delta > _DELTA_MAX:
            return -1
        size, at = _raw_varint(data, at, stop)
        if at < 0:
            return -1
        if not size & _ONE:
            if end <= at or size >> _ONE >= _U64(end - at):
                return -1
            length = np.int64(size >> _ONE)
            first, second = _hash(data, at, length, secret)
            row = _row(table, first, second)
            if table[row, 2] == _U64(0):
                table[row, 0] = first
                table[row, 1] = second
                added += 1
            table[row, 2] = _U64(base_offset + np.int64(delta >> _ONE) + 1)
        at = end
    return added if at == stop else -1


@compiled(_KEEP)
def _keep(data, count, base_offset, latest, drops_tombstones, table, secret, spans, found):  # type: ignore[no-untyped-def]
    """See key_scan.keep_last. Returns how many ranges of records stay, or -1 where that raises."""
    at, stop = np.int64(0), np.int64(data.shape[0])
    ranges, begin, kept, keyless = np.int64(0), np.int64(-1), np.int64(0), np.int64(0)
    newest_ms, has_tombstones = np.int64(-(1 << 63)), np.int64(0)
    for _ in range(count):
        start = at
        size, at = _raw_varint(data, at, stop)
        if at < 0 or size & _ONE or size >> _ONE > _U64(stop - at):
            return -1
        end = at + np.int64(size >> _ONE)
        at += 1
        elapsed, at = _raw_varint(data, at, stop)
        if at < 0:
            return -1
        delta, at = _raw_varint(data, at, stop)
        if at < 0 or delta > _DELTA_MAX:
            return -1
        size, at = _raw_varint(data, at, stop)
        if at < 0:
            return -1
        offset = base_offset + np.int64(delta >> _ONE)
        is_kept = offset > latest
        if size & _ONE:
            if not is_kept:
                keyless += 1
        else:
            if end <= at or size >> _ONE >= _U64(end - at):
                return -1
            length = np.int64(size >> _ONE)
            if not is_kept:
                first, second = _hash(data, at, length, secret)
                is_kept = _U64(offset + 1) >= table[_row(table, first, second), 2]
            at += length
        if is_kept:
            if at >= stop:
                return -1
            is_tombstone = data[at] == 1  # zigzag of -1
            if is_tombstone and drops_tombstones and offset <= latest:
                is_kept = False
            elif is_tombstone:
                has_tombstones = np.int64(1)
        if is_kept:
            kept += 1
            time_ms = np.int64(elapsed >> _ONE) ^ -np.int64(elapsed & _ONE)
            newest_ms = max(newest_ms, time_ms)
            if begin < 0:
                begin = start
        elif begin >= 0:
            spans[2 * ranges] = begin
            spans[2 * ranges + 1] = start
            ranges += 1
            begin = np.int64(-1)
        at = end
    if at != stop:
        return -1
    if begin >= 0:
        spans[2 * ranges] = begin
        spans[2 * ranges + 1] = stop
        ranges += 1
    found[0], found[1], found[2], found[3] = kept, newest_ms, has_tombstones, keyless
    return ranges
