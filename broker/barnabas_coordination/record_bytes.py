"""The bytes of coordinators' records: a number of two bytes, then a message of that version.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: unpack(type, pack(message, version)) == message, where the version has all of it; bytes that have another layout raise
            CorruptRecord, nothing else.
Read next:  group/records.py, share_state/records.py and transaction/records.py, which say what the messages mean.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from barnabas_coordination.errors import CorruptRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.kafka.schema import Message, decode, encode_request

M = TypeVar("M", bound=Message)


def pack(message: Message, version: int, *, prefix: int | None = None) -> bytes:
    """The bytes of a message. Raises KafkaError INVALID_REQUEST for what does not fit its field.

    prefix: the number before it; None: the version.
    """
    out = bytearray((version if prefix is None else prefix).to_bytes(2, "big"))
    try:
        encode_request(message, version, out)
    except struct.error as error:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"too long for a record: {error}") from error
    return bytes(out)


def number_of(data: bytes) -> int:
    """The number that a key or a value begins with. Raises CorruptRecord."""
    if len(data) < 2:
        raise CorruptRecord(f"a record of {len(data)} bytes has no version")
    return int.from_bytes(data[:2], "big", signed=True)


def unpack(cls: type[M], data: bytes, *, version: int | None = None) -> M:
    """The message in these bytes. Raises CorruptRecord.

    version: None: the number before it.
    """
    version = number_of(data) if version is None else version
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise CorruptRecord(f"{cls.__name__.lstrip('_')}: version {version} is not known; a later release wrote it")
    try:
        message: M = decode(cls, version, data, 2)
    except MalformedMessage as error:
        raise CorruptRecord(str(error)) from error
    return message
