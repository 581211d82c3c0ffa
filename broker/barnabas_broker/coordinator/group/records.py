"""The records of `__consumer_offsets`, in Kafka's own bytes, so that Kafka's tools can read ours and we theirs.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: decode(encode(record)) == record; a length is checked against the bytes that remain before anything is allocated.
Read next:  shard.py, which replays these.

Key (big endian; string = int16 length + utf-8, length -1 = null):
    int16   record type         0, 1 = committed offset; 2 = group metadata; others belong to newer protocols
    type 0, 1:  string group, string topic, int32 partition
    type 2:     string group
Value: null = tombstone (the offset, or the group, is gone). Otherwise
    int16   version
    committed offset, 0 to 4:
        int64 offset, [3+] int32 leader epoch, string metadata, int64 commit timestamp, [1 only] int64 expire timestamp
    group metadata, 0 to 4:
        string protocol type, int32 generation, string? protocol, string? leader, [2+] int64 current state timestamp,
        int32 count of members, each: string member id, [3+] string? instance id, string client id, string client host,
        [1+] int32 rebalance timeout, int32 session timeout, int32 + bytes subscription, int32 + bytes assignment
Version 4 is flexible: lengths and counts are unsigned varints of n + 1, every struct ends with tagged fields (skipped here).
Written: offsets as 3 (1 when they carry an expire timestamp), groups as 3: the newest that is not flexible, as Kafka does.
A crash may leave nothing here that the batch's CRC does not catch; times are ms since 1970, -1 = unknown.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, Epoch, Offset

OFFSET_COMMIT_KEY_VERSIONS = (0, 1)
GROUP_METADATA_KEY_VERSION = 2
FLEXIBLE_FROM = 4
VALUE_VERSION_MAX = 4
NO_TIMESTAMP = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class CorruptRecord(KafkaError):
    """The bytes are not a record of this topic: the partition cannot be loaded."""

    code = ErrorCode.CORRUPT_MESSAGE


class OffsetValue(NamedTuple):
    """A committed offset."""

    offset: Offset
    leader_epoch: Epoch
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    """Set only for clients that ask for their own retention (OffsetCommit v2 to v4)."""


class OffsetCommitRecord(NamedTuple):
    """Group committed an offset for a partition; value None takes it back."""

    group_id: str
    topic: str
    partition: int
    value: OffsetValue | None


class MemberValue(NamedTuple):
    """One member of a stable generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue:
    """A generation as it was when every member got its assignment, or when the last member left."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...] = ()


class GroupMetadataRecord(NamedTuple):
    """A classic group's generation; value None: the group is gone."""

    group_id: str
    value: GroupMetadataValue | None


GroupRecord = OffsetCommitRecord | GroupMetadataRecord


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Record -> key and value bytes. Raises KafkaError INVALID_REQUEST for a string longer than 32,767 bytes."""
    out = bytearray()
    if isinstance(record, OffsetCommitRecord):
        out += _INT16.pack(1)
        _put_string(out, record.group_id)
        _put_string(out, record.topic)
        out += _INT32.pack(record.partition)
        return bytes(out), None if record.value is None else _encode_offset(record.value)
    out += _INT16.pack(GROUP_METADATA_KEY_VERSION)
    _put_string(out, record.group_id)
    return bytes(out), None if record.value is None else _encode_group(record.value)


def _encode_offset(value: OffsetValue) -> bytes:
    version = 3 if value.expire_timestamp_ms == NO_TIMESTAMP else 1
    out = bytearray(_INT16.pack(version))
    out += _INT64.pack(value.offset)
    if version == 3:
        out += _INT32.pack(value.leader_epoch)
    _put_string(out, value.metadata)
    out += _INT64.pack(value.commit_timestamp_ms)
    if version == 1:
        out += _INT64.pack(value.expire_timestamp_ms)
    return bytes(out)


def _encode_group(value: GroupMetadataValue) -> bytes:
    out = bytearray(_INT16.pack(3))
    _put_string(out, value.protocol_type)
    out += _INT32.pack(value.generation)
    _put_string(out, value.protocol)
    _put_string(out, value.leader)
    out += _INT64.pack(value.state_timestamp_ms)
    out += _INT32.pack(len(value.members))
    for member in value.members:
        _put_string(out, member.member_id)
        _put_string(out, member.instance_id)
        _put_string(out, member.client_id)
        _put_string(out, member.client_host)
        out += _INT32.pack(member.rebalance_timeout_ms)
        out += _INT32.pack(member.session_timeout_ms)
        for blob in (member.subscription, member.assignment):
            out += _INT32.pack(len(blob))
            out += blob
    return bytes(out)


def _put_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += b"\xff\xff"
        return
    raw = text.encode()
    if len(raw) > 0x7FFF:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"a string of {len(raw)} bytes does not fit a group record")
    out += _INT16.pack(len(raw))
    out += raw


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Key and value -> record; None for a type that belongs to another protocol (KIP-848, share groups).

    Raises CorruptRecord when the bytes do not have the layout above.
    """
    reader = _Reader(key)
    version = reader.int16()
    if version in OFFSET_COMMIT_KEY_VERSIONS:
        group_id, topic, partition = reader.string(), reader.string(), reader.int32()
        return OffsetCommitRecord(group_id, topic, partition, None if value is None else _decode_offset(value))
    if version == GROUP_METADATA_KEY_VERSION:
        return GroupMetadataRecord(reader.string(), None if value is None else _decode_group(value))
    return None


def _decode_offset(raw: bytes) -> OffsetValue:
    reader = _Reader(raw)
    version = reader.value_version("committed offset")
    offset = Offset(reader.int64())
    leader_epoch = Epoch(reader.int32()) if version >= 3 else NO_EPOCH
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else NO_TIMESTAMP
    return OffsetValue(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms)


def _decode_group(raw: bytes) -> GroupMetadataValue:
    reader = _Reader(raw)
    version = reader.value_version("group metadata")
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_decode_member(reader, version) for _ in range(reader.count()))
    return GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_timestamp_ms=state_timestamp_ms,
        members=members,
    )


def _decode_member(reader: _Reader, version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.blob()
    assignment = reader.blob()
    reader.skip_tagged_fields()
    # Before version 1 the session time-out served for both.
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = session_timeout_ms
    return MemberValue(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


class _Reader:
    """Reads one key or value; every step checks what remains."""

    __slots__ = ("is_flexible", "position", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.position = 0
        self.is_flexible = False

    def value_version(self, what: str) -> int:
        version = self.int16()
        if not 0 <= version <= VALUE_VERSION_MAX:
            raise CorruptRecord(f"{what}: version {version} is not known")
        self.is_flexible = version >= FLEXIBLE_FROM
        return version

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.raw):
            raise CorruptRecord(f"{size} bytes wanted at {self.position} of {len(self.raw)}")
        taken = self.raw[self.position : end]
        self.position = end
        return taken

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def uvarint(self) -> int:
        value = shift = 0
        while shift <= 28:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise CorruptRecord("varint longer than 5 bytes")

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self.is_flexible else self.int16()
        if size == -1:
            return None
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise CorruptRecord(f"string at {self.position - size} is not utf-8") from error

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise CorruptRecord(f"null string at {self.position}")
        return text

    def blob(self) -> bytes:
        return self.take(self.uvarint() - 1 if self.is_flexible else self.int32())

    def count(self) -> int:
        count = self.uvarint() - 1 if self.is_flexible else self.int32()
        if not 0 <= count <= len(self.raw) - self.position:
            raise CorruptRecord(f"{count} members in {len(self.raw) - self.position} bytes")
        return count

    def skip_tagged_fields(self) -> None:
        if self.is_flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.take(self.uvarint())
