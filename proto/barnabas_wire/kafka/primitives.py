"""The smallest words of the wire: varints, strings, bytes, uuids and tagged fields, read and written by hand.

May touch:  its arguments.            Must not touch: sockets, files, clock.
Invariants: a reader never goes past `end` and never allocates for a length that the remaining bytes cannot hold.
Read next:  schema.py, which compiles whole messages and inlines the same rules.

Layout (Kafka protocol guide; KIP-482 for the compact forms):
    int8..int64, uint16, uint32, float64   big endian, fixed width
    unsigned varint    7 bits a byte, least significant first, high bit = more; at most 5 bytes and 2^32 - 1
    varint, varlong    zigzag, then as above; at most 5 and 10 bytes
    string             int16 length, utf-8; -1 = null          compact: unsigned varint length + 1; 0 = null
    bytes, records     int32 length; -1 = null                 compact: unsigned varint length + 1; 0 = null
    array              int32 count; -1 = null                  compact: unsigned varint count + 1; 0 = null
    uuid               16 raw bytes; zero = none
    tagged fields      unsigned varint count, then (unsigned varint tag, unsigned varint size, size bytes) in tag order
"""

from __future__ import annotations

import struct
from typing import NoReturn

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid

Buffer = bytes | bytearray | memoryview

UVARINT_MAX = 0xFFFF_FFFF
_unpack_int16 = struct.Struct(">h").unpack_from

ONE_BYTE = tuple(bytes((value,)) for value in range(256))
"""One-byte varints ready made: nearly every length and count on the wire is below 127."""


class MalformedMessage(KafkaError):
    """The bytes are not a message: the one connection they came from must be closed."""

    code = ErrorCode.INVALID_REQUEST


STRING_BYTES_MAX = 0x7FFF
"""The most bytes of a text, also of one with a compact length (Kafka's readers refuse longer ones)."""
TAGGED_FIELDS_MAX = 127
"""The most fields of one section. Kafka's largest has 4; each unknown one takes two bytes and is a turn of a loop."""
ELEMENTS_UNBOUNDED = 1 << 62


class TooManyElements(MalformedMessage):
    """A message with more array elements than its reader takes: well formed perhaps, but too costly to find out."""


def too_many(what: str, count: int) -> NoReturn:
    """Raise TooManyElements naming the array that went over the bound."""
    raise TooManyElements(f"{what}: with its {count} elements the message has more than are taken in one")


def malformed(what: str, value: object = None) -> NoReturn:
    """Raise MalformedMessage naming the field and the length or count that does not fit."""
    raise MalformedMessage(what if value is None else f"{what}: {value!r} does not fit the bytes that remain")


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Unsigned varint -> (value, next position). IndexError past the end, MalformedMessage beyond 32 bits."""
    value = data[position]
    if value < 0x80:
        return value, position + 1
    return read_uvarint_tail(data, position + 1, value)


def read_uvarint_tail(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, already read, had its high bit set."""
    value = first & 0x7F
    shift = 7
    while shift <= 28:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                raise MalformedMessage("varint beyond 32 bits")
            return value, position
        shift += 7
    raise MalformedMessage("varint longer than 5 bytes")


def write_uvarint(value: int) -> bytes:
    """Unsigned varint of a value below 2^32."""
    if value < 0x80:
        return ONE_BYTE[value]
    if 0x4000 <= value < 0x20_0000:  # the size of the records in most fetch answers: 3 bytes
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value > UVARINT_MAX:
        raise ValueError(f"{value} does not fit an unsigned varint")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_tagged_fields(data: Buffer, position: int, end: int) -> tuple[list[tuple[int, int, int]], int]:
    """A tagged-field section (KIP-482) -> ((tag, position, size) of each field, position after the section)."""
    fields = []
    count, position = read_uvarint(data, position)
    if count > TAGGED_FIELDS_MAX:
        too_many("tagged fields", count)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        fields.append((tag, position, size))
        position += size
        if position > end:
            malformed("tagged field", size)
    return fields, position


def skip_tagged_fields(data: Buffer, position: int, end: int) -> int:
    """Position after a tagged-field section none of whose tags is known here (KIP-482: unknown tags are skipped)."""
    count, position = read_uvarint(data, position)
    if count > TAGGED_FIELDS_MAX:
        too_many("tagged fields", count)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > end:
            malformed("tagged field", size)
    return position


def read_string(data: Buffer, position: int, end: int) -> tuple[str | None, int]:
    """Nullable string with an int16 length -> (value or None, next position). struct.error for a length that is cut."""
    (length,) = _unpack_int16(data, position)
    position += 2
    if length < 0:
        if length != -1:
            malformed("string length", length)
        return None, position
    stop = position + length
    if stop > end:
        malformed("string length", length)
    return str(data[position:stop], "utf-8"), stop


def write_string(out: bytearray, text: str | bytes | None) -> None:
    """Append a nullable string (ready utf-8 bytes serve as well) with its int16 length."""
    if text is None:
        out += b"\xff\xff"
        return
    encoded = text.encode() if isinstance(text, str) else text
    out += len(encoded).to_bytes(2, "big", signed=True)
    out += encoded


def write_compact_string(out: bytearray, text: str | bytes | None) -> None:
    """Append a nullable compact string (ready utf-8 bytes serve as well)."""
    if text is None:
        out += b"\0"
        return
    encoded = text.encode() if isinstance(text, str) else text
    out += write_uvarint(len(encoded) + 1)
    out += encoded


def read_compact_string(data: Buffer, position: int, end: int) -> tuple[str | None, int]:
    """Nullable compact string -> (value or None, next position)."""
    length, position = read_uvarint(data, position)
    if not length:
        return None, position
    stop = position + length - 1
    if stop > end:
        malformed("string length", length - 1)
    return str(data[position:stop], "utf-8"), stop


def new_uuid(raw: Buffer) -> Uuid:
    """A Uuid from 16 bytes already known to be 16: skips the length check of the public constructor."""
    return bytes.__new__(Uuid, raw)
