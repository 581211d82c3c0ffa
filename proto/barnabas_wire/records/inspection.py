"""Whether the records in a batch are what its header says, without building one.

May touch:  batch.py, compression.py.        Must not touch: files, sockets, clocks.
Invariants: a batch that passes can be read to its end by every client; whatever the bytes say, the walk ends within them, and what is
            decompressed is bounded by the caller.
Read next:  compiled_inspection.py, the same walk in machine code; barnabas_log/batch_inspection.py, which judges a producer's batch.

What is held against the header: each record's length, the rise of the offset deltas, the lengths of key, value and headers, and that
records and bytes end together. A checksum says only that the bytes are those that the producer made.

Differences from Kafka's LogValidator, measured with 4.4.0. Kafka takes offset deltas that do not rise in an uncompressed batch (and
keeps them) and lengths below -1 (for null); other readers stick at both, and both are refused here. A records section that does
not decompress is UNKNOWN_SERVER_ERROR there, INVALID_RECORD here: the checksum is right, so the same bytes would come again.
What comes behind the first lz4 frame is read by some clients and not by Java's; Kafka takes it as long as the first frame holds
all records, and so does this.

Not obvious: a flat loop, and numbers for texts, so that the compiled walk says the same without a second pass.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from itertools import islice
from typing import Final, NamedTuple

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.records.batch import HEADER_BYTES, BatchHeader, Buffer, CorruptBatch
from barnabas_wire.records.compression import CompressionType, CorruptCompressedData, decompress, first_lz4_frame
from barnabas_wire.records.walk import walk

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
INT32_DIGITS: Final = 5
"""Most bytes of a varint that stands for an int32."""
INT64_DIGITS: Final = 10


class Fault(IntEnum):
    """What is wrong with a record."""

    NONE = 0
    LENGTH = 1
    CUT_OFF = 2
    NUMBER = 3
    OFFSET = 4
    KEY = 5
    VALUE = 6
    HEADERS = 7
    HEADER_NAME = 8
    HEADER_VALUE = 9
    END = 10
    REST = 11
    UNFINISHED = 12
    """Nothing: the walk was to take no more steps."""


_TEXTS: Final = {
    Fault.LENGTH: "its length is negative or passes the end of the records",
    Fault.CUT_OFF: "the records end within it, or before it: the header counts more of them",
    Fault.NUMBER: "it has a number of more bytes than its type allows",
    Fault.OFFSET: "its offset delta does not rise from the record before it, or passes the header's last offset delta",
    Fault.KEY: "its key has a length below -1",
    Fault.VALUE: "its value has a length below -1",
    Fault.HEADERS: "its count of headers is negative",
    Fault.HEADER_NAME: "a header of it has no name",
    Fault.HEADER_VALUE: "the value of a header of it has a length below -1",
    Fault.END: "its fields do not end where its length says",
    Fault.REST: "bytes are left after the last record that the header counts",
}


class Walk(NamedTuple):
    """What a walk over the records of a batch found; times are deltas from the batch's base timestamp, in ms."""

    fault: int
    record: int
    """Index of the record with the fault; -1 where it is none's."""
    oldest_ms: int
    newest_ms: int
    keyless: tuple[int, ...] = ()
    """Indexes of records without a key, ascending, where they were asked for: at most so many, and the walk ends with the last one."""


WalkRecords = Callable[..., Walk]
"""As walk_records; `steps_max` may be taken for no limit by one that does not hold the interpreter."""


class UnsoundRecords(KafkaError):
    """The records of a batch are not what its header says."""

    code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, *, record: int = -1) -> None:
        """record: index of the first unsound record; -1 where no single one is."""
        super().__init__(message)
        self.record = record


def opened_section(batch: Buffer, header: BatchHeader, *, bytes_max: int) -> bytes:
    """The records section of the batch at the start of `batch`, as Java's clients open it: of lz4 the first frame alone.

    Raises UnsoundRecords for what does not decompress, or to more than `bytes_max`; CorruptBatch for an unknown codec.
    """
    payload: Buffer = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    kind = header.compression
    if kind == CompressionType.NONE or not payload:  # compaction leaves empty sections
        return bytes(payload)
    try:
        return decompress(
            kind, first_lz4_frame(payload) if kind == CompressionType.LZ4 else payload, bytes_max=bytes_max
        )
    except CorruptCompressedData as error:
        raise UnsoundRecords(f"the records cannot be read: {error.message}") from None


def inspect_records(header: BatchHeader, records: bytes, *, walk: WalkRecords | None = None) -> Walk:
    """Walk over all records of a batch's opened section. Raises UnsoundRecords."""
    found = (walk or walk_records)(records, count=header.record_count, last_offset_delta=header.last_offset_delta)
    raise_fault(found, header)
    return found


def raise_fault(found: Walk, header: BatchHeader) -> None:
    """Raise UnsoundRecords where a walk found a fault, or a time that no int64 holds."""
    if found.fault:
        text = _TEXTS[Fault(found.fault)]
        if found.record < 0:
            raise UnsoundRecords(f"{text} ({header.record_count})")
        raise UnsoundRecords(f"record {found.record} of {header.record_count}: {text}", record=found.record)
    if header.record_count and not (
        header.base_timestamp_ms + found.oldest_ms >= INT64_MIN
        and header.base_timestamp_ms + found.newest_ms <= INT64_MAX
    ):
        raise UnsoundRecords("a record's time is out of bounds")


def inspect_batch(batch: Buffer, header: BatchHeader, *, bytes_max: int, walk: WalkRecords | None = None) -> Walk:
    """Open the batch at the start of `batch`, whose checksum is right, and walk over its records. Raises UnsoundRecords,
    CorruptBatch.

    bytes_max: of the records section, decompressed.
    """
    if header.record_count < 0:
        raise CorruptBatch(f"the header counts {header.record_count} records")
    return inspect_records(header, opened_section(batch, header, bytes_max=bytes_max), walk=walk)


def walk_records(
    records: bytes, *, count: int, last_offset_delta: int, steps_max: int = INT64_MAX, keyless_max: int = 0
) -> Walk:
    """Hold the records of an opened section against the header's count and last offset delta.

    steps_max: records and headers to be walked over before the walk gives up (Fault.UNFINISHED). keyless_max: records without a key
    to be named; 0 where they are none of the caller's business.
    """
    at, stop, index = 0, len(records), -1
    previous = -1
    oldest, newest = INT64_MAX, INT64_MIN
    keyless: list[int] = []
    steps = steps_max - count
    if steps < 0:
        return Walk(Fault.UNFINISHED, -1, 0, 0)
    try:
        for index in range(count):
            size = records[at]
            at += 1
            if size >= 0x80:
                size, at = _long(records, at, INT32_DIGITS)
            end = at + (size >> 1)
            if size & 1 or end > stop:
                return Walk(Fault.LENGTH, index, 0, 0)
            at += 1  # attributes
            elapsed = records[at]
            at += 1
            if elapsed >= 0x80:
                elapsed, at = _long(records, at, INT64_DIGITS)
            elapsed = (elapsed >> 1) ^ -(elapsed & 1)
            if elapsed < oldest:
                oldest = elapsed
            if elapsed > newest:
                newest = elapsed
            delta = records[at]
            at += 1
            if delta >= 0x80:
                delta, at = _long(records, at, INT32_DIGITS)
            if delta & 1 or not previous < delta >> 1 <= last_offset_delta:
                return Walk(Fault.OFFSET, index, 0, 0)
            previous = delta >> 1
            size = records[at]
            at += 1
            if size >= 0x80:
                size, at = _long(records, at, INT32_DIGITS)
            if not size & 1:
                at += size >> 1
            elif size != 1:
                return Walk(Fault.KEY, index, 0, 0)
            elif keyless_max:
                keyless.append(index)
                if len(keyless) == keyless_max:  # a few bytes of a compressed batch can be millions of them
                    break
            size = records[at]
            at += 1
            if size >= 0x80:
                size, at = _long(records, at, INT32_DIGITS)
            if not size & 1:
                at += size >> 1
            elif size != 1:
                return Walk(Fault.VALUE, index, 0, 0)
            headers = records[at]
            at += 1
            if headers:
                if headers >= 0x80:
                    headers, at = _long(records, at, INT32_DIGITS)
                if headers & 1:
                    return Walk(Fault.HEADERS, index, 0, 0)
                headers >>= 1
                if headers << 1 > end - at:  # a name's and a value's length are a byte each
                    return Walk(Fault.END, index, 0, 0)
                steps -= headers
                if steps < 0:
                    return Walk(Fault.UNFINISHED, -1, 0, 0)
                for _ in range(headers):
                    size = records[at]
                    at += 1
                    if size >= 0x80:
                        size, at = _long(records, at, INT32_DIGITS)
                    if size & 1:
                        return Walk(Fault.HEADER_NAME, index, 0, 0)
                    at += size >> 1
                    size = records[at]
                    at += 1
                    if size >= 0x80:
                        size, at = _long(records, at, INT32_DIGITS)
                    if not size & 1:
                        at += size >> 1
                    elif size != 1:
                        return Walk(Fault.HEADER_VALUE, index, 0, 0)
            if at != end:
                return Walk(Fault.END, index, 0, 0)
    except IndexError:
        return Walk(Fault.CUT_OFF, index, 0, 0)
    except _LongNumber:
        return Walk(Fault.NUMBER, index, 0, 0)
    if at != stop and not (keyless_max and len(keyless) == keyless_max):
        return Walk(Fault.REST, -1, 0, 0)
    return Walk(Fault.NONE, -1, oldest, newest, tuple(keyless)) if count else Walk(Fault.NONE, -1, 0, 0)


class DatedRecord(NamedTuple):
    """A record that a search by time found; both are deltas from what the batch's header says."""

    offset: int
    elapsed_ms: int


def find_time(records: bytes, *, count: int, from_offset: int, from_ms: int) -> DatedRecord | None:
    """The first record of an opened section at or after both, or where none is so late the first of those with the greatest time.

    from_offset, from_ms: deltas, as in DatedRecord. None where no record is at or after the offset. Raises CorruptBatch where
    the records up to the one that is found are cut off or pass the end.
    """
    offset, newest = -1, INT64_MIN - 1
    for _, elapsed, delta, _, _, _ in islice(walk(records, count=count), count):
        elapsed = (elapsed >> 1) ^ -(elapsed & 1)
        # Only one that is newer than all before it can be what is looked for.
        if elapsed > newest and delta >> 1 >= from_offset and not delta & 1:
            if elapsed >= from_ms:
                return DatedRecord(delta >> 1, elapsed)
            offset, newest = delta >> 1, elapsed
    return None if offset < 0 else DatedRecord(offset, newest)


class _LongNumber(Exception):
    """A varint continues beyond its type."""


def _long(records: bytes, at: int, digits: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, before `at`, has the continuation bit: the zigzagged number, position after it."""
    result, shift = records[at - 1] & 0x7F, 7
    for _ in range(digits - 1):
        byte = records[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & (0xFFFFFFFF if digits == INT32_DIGITS else 0xFFFFFFFFFFFFFFFF), at
        shift += 7
    raise _LongNumber
