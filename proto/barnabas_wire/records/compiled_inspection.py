"""The walk over a batch's records in machine code: the same answers as inspection.walk_records, many times as fast, and without
the interpreter's lock.

May touch:  numba, numpy, its arguments.   Must not touch: files, clocks; nothing may import this without its extra.
Invariants: what it says of a section is what the plain walk says (a test holds both equal).
Read next:  inspection.py, which says what is right; compiled.py, how it is compiled and kept.

Not obvious: every uint64 meets only uint64, or numba makes a float of it and an int64.
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np

from barnabas_wire.records.compiled import READ_ONLY_BYTES, compiled
from barnabas_wire.records.inspection import INT64_MAX, Fault, Walk

_WALK = numba.void(READ_ONLY_BYTES, numba.int64, numba.int64, numba.int64[::1], numba.int64[::1])
_LENGTH, _CUT_OFF, _NUMBER, _OFFSET, _KEY, _VALUE, _HEADERS, _HEADER_NAME, _HEADER_VALUE, _END, _REST = map(
    int,
    (
        Fault.LENGTH,
        Fault.CUT_OFF,
        Fault.NUMBER,
        Fault.OFFSET,
        Fault.KEY,
        Fault.VALUE,
        Fault.HEADERS,
        Fault.HEADER_NAME,
        Fault.HEADER_VALUE,
        Fault.END,
        Fault.REST,
    ),
)
_INT32: Final = np.int64(5)
_INT64: Final = np.int64(10)


def walk_records(
    records: bytes, *, count: int, last_offset_delta: int, steps_max: int = INT64_MAX, keyless_max: int = 0
) -> Walk:
    """See inspection.walk_records. It holds up nobody, so `steps_max` is no limit."""
    found = np.zeros(5, dtype=np.int64)
    keyless = np.empty(keyless_max, dtype=np.int64)
    _walk(np.frombuffer(records, dtype=np.uint8), count, last_offset_delta, found, keyless)
    fault, at, oldest_ms, newest_ms, named = found.tolist()
    return Walk(fault, at, oldest_ms, newest_ms, tuple(keyless[:named].tolist()))


@numba.njit
def _number(data, at, stop, digits):  # type: ignore[no-untyped-def]
    """The zigzagged number at `at`, and the position after it: -1 where the bytes end, -2 where it has too many."""
    value, shift = np.uint64(0), np.uint64(0)
    for _ in range(digits):
        if at >= stop:
            return np.uint64(0), np.int64(-1)
        byte = data[at]
        at += 1
        value |= np.uint64(byte & np.uint8(0x7F)) << shift
        if byte < 128:
            if digits == _INT32:
                value &= np.uint64(0xFFFFFFFF)
            return value, at
        shift += np.uint64(7)
    return np.uint64(0), np.int64(-2)


@numba.njit
def _size(data, at, stop):  # type: ignore[no-untyped-def]
    """An int32, decoded, and the position after it, as of _number."""
    value, at = _number(data, at, stop, _INT32)
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at


@numba.njit
def _say(found, fault, record):  # type: ignore[no-untyped-def]
    found[0], found[1], found[2], found[3], found[4] = fault, record, 0, 0, 0


@numba.njit
def _unread(at):  # type: ignore[no-untyped-def]
    return _NUMBER if at == -2 else _CUT_OFF


@compiled(_WALK)
def _walk(data, count, last_offset_delta, found, keyless):  # type: ignore[no-untyped-def]
    at, stop = np.int64(0), np.int64(data.shape[0])
    previous = np.int64(-1)
    oldest, newest = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-0x8000000000000000)
    for index in range(count):
        size, at = _size(data, at, stop)
        if at < 0:
            return _say(found, _unread(at), index)
        end = at + size
        if size < 0 or end > stop:
            return _say(found, _LENGTH, index)
        at += 1  # attributes
        raw, at = _number(data, at, stop, _INT64)
        if at < 0:
            return _say(found, _unread(at), index)
        elapsed = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))
        oldest, newest = min(oldest, elapsed), max(newest, elapsed)
        delta, at = _size(data, at, stop)
        if at < 0:
            return _say(found, _unread(at), index)
        if delta <= previous or delta > last_offset_delta:
            return _say(found, _OFFSET, index)
        previous = delta
        size, at = _size(data, at, stop)
        if at < 0:
            return _say(found, _unread(at), index)
        if size < -1:
            return _say(found, _KEY, index)
        if size < 0 and keyless.shape[0]:
            keyless[found[4]] = index
            found[4] += 1
            if found[4] == keyless.shape[0]:
                found[0], found[1], found[2], found[3] = 0, -1, oldest, newest
                return None
        at += max(size, np.int64(0))
        size, at = _size(data, at, stop)
        if at < 0:
            return _say(found, _unread(at), index)
        if size < -1:
            return _say(found, _VALUE, index)
        at += max(size, np.int64(0))
        headers, at = _size(data, at, stop)
        if at < 0:
            return _say(found, _unread(at), index)
        if headers < 0:
            return _say(found, _HEADERS, index)
        if headers and 2 * headers > end - at:
            return _say(found, _END, index)
        for _ in range(headers):
            size, at = _size(data, at, stop)
            if at < 0:
                return _say(found, _unread(at), index)
            if size < 0:
                return _say(found, _HEADER_NAME, index)
            at += size
            size, at = _size(data, at, stop)
            if at < 0:
                return _say(found, _unread(at), index)
            if size < -1:
                return _say(found, _HEADER_VALUE, index)
            at += max(size, np.int64(0))
        if at != end:
            return _say(found, _END, index)
    if at != stop:
        return _say(found, _REST, -1)
    if count > 0:
        found[0], found[1], found[2], found[3] = 0, -1, oldest, newest
    else:
        _say(found, 0, -1)
    return None
