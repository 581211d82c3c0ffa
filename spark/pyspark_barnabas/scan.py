"""Where every record of a fetch has its parts: numba walks the varints and writes down positions, nothing else.

May touch:  numba, numpy.             Must not touch: bytes of keys and values, pyarrow, sockets.
Invariants: a position is checked against the section it must lie in before it is used; a section's records fill it to its
    last byte and their offsets rise within the batch's own, or the section is malformed.
Read next:  decoder.py, which gathers by these positions; barnabas_wire/records/compiled.py for when and where it compiles.
"""

from __future__ import annotations

import numba
import numpy as np

from barnabas_wire.records.compiled import READ_ONLY_BYTES, compiled, varint

SECTION_COLUMNS = 7
"""The columns of a section, int64 each: first byte, end byte, base offset, last offset delta, base timestamp ms, records, log append
time ms (-1: records have their own)."""
LONG_COLUMNS = 2
"""The columns of a record, int64: offset, timestamp ms."""
OFFSET, TIMESTAMP = range(LONG_COLUMNS)
INT_COLUMNS = 7
"""The columns of a record, int32: where the key, the value and the headers begin, their sizes (-1 null), the end of the record."""
KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT, HEADER_COUNT, RECORD_END = range(INT_COLUMNS)
RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths, header count: one byte each."""

_INTS, _TABLE = numba.int32[:, ::1], numba.int64[:, ::1]
_SCAN_RECORDS = numba.int64(READ_ONLY_BYTES, _TABLE, numba.int64, numba.int64, _TABLE, _INTS, numba.int64[::1])
_SCAN_HEADERS = numba.int64(READ_ONLY_BYTES, numba.int32[::1], numba.int32[::1], numba.int32[::1], _INTS)


@compiled(_SCAN_RECORDS)
def scan_records(data, sections, start, end, longs, ints, section_rows):  # type: ignore[no-untyped-def]
    """Write down the records of offsets [start, end). Returns the rows, or -1 - section of a malformed one.

    `longs` and `ints` have one column per row; `section_rows` gets how many rows came of each section.
    """
    row = 0
    rows_max = longs.shape[1]
    for section in range(sections.shape[0]):
        before = row
        position = sections[section, 0]
        section_end = sections[section, 1]
        base_offset = sections[section, 2]
        last_delta = sections[section, 3]
        base_timestamp = sections[section, 4]
        append_time = sections[section, 6]
        delta_before = np.int64(-1)
        for _ in range(sections[section, 5]):
            size, position = varint(data, position, section_end)
            if position < 0 or size < 6 or size > section_end - position:
                return -1 - section
            record_end = position + size
            position += 1  # record attributes, unused
            timestamp_delta, position = varint(data, position, record_end)
            if position < 0:
                return -1 - section
            offset_delta, position = varint(data, position, record_end)
            if position < 0 or offset_delta <= delta_before or offset_delta > last_delta:
                return -1 - section
            delta_before = offset_delta
            key_size, position = varint(data, position, record_end)
            if position < 0 or key_size < -1 or key_size > record_end - position:
                return -1 - section
            key_at = position
            if key_size > 0:
                position += key_size
            value_size, position = varint(data, position, record_end)
            if position < 0 or value_size < -1 or value_size > record_end - position:
                return -1 - section
            value_at = position
            if value_size > 0:
                position += value_size
            headers, position = varint(data, position, record_end)
            if position < 0 or headers < 0 or headers > record_end - position:
                return -1 - section
            if headers == 0 and position != record_end:
                return -1 - section
            offset = base_offset + offset_delta
            if start <= offset < end:
                if row >= rows_max:
                    return -1 - section
                longs[OFFSET, row] = offset
                longs[TIMESTAMP, row] = base_timestamp + timestamp_delta if append_time < 0 else append_time
                ints[KEY_AT, row] = key_at
                ints[KEY_SIZE, row] = key_size
                ints[VALUE_AT, row] = value_at
                ints[VALUE_SIZE, row] = value_size
                ints[HEADERS_AT, row] = position
                ints[HEADER_COUNT, row] = headers
                ints[RECORD_END, row] = record_end
                row += 1
            position = record_end
        if position != section_end:
            return -1 - section
        section_rows[section] = row - before
    return row


@compiled(_SCAN_HEADERS)
def scan_headers(data, headers_at, header_count, record_end, parts):  # type: ignore[no-untyped-def]
    """Write down each header's key position and size, value position and size. Returns the headers, or -1 - malformed row."""
    found = 0
    for row in range(headers_at.shape[0]):
        position = np.int64(headers_at[row])
        end = np.int64(record_end[row])
        for _ in range(header_count[row]):
            size, position = varint(data, position, end)
            if position < 0 or size < 0 or size > end - position:
                return -1 - row
            parts[0, found] = position
            parts[1, found] = size
            position += size
            size, position = varint(data, position, end)
            if position < 0 or size < -1 or size > end - position:
                return -1 - row
            parts[2, found] = position
            parts[3, found] = size
            if size > 0:
                position += size
            found += 1
        if position != end:
            return -1 - row
    return found
