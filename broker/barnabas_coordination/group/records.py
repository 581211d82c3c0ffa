"""The records of `__consumer_offsets`, in Kafka's own bytes, so that Kafka's tools can read ours and we theirs.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: decode(encode(record)) == record; bytes that have another layout raise CorruptRecord, nothing else.
Read next:  shard.py, which replays these.

Key (big endian; string = int16 length + utf-8, length -1 = null):
    int16   record type         0, 1 = committed offset; 2 = group metadata; 3 to 8, 16: consumer/records.py; 10 to 15:
                                share/records.py; 17, 19 to 23: streams/records.py; others are not known
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
Version 4 is flexible (KIP-482): compact strings, tagged fields. Tag 0 of a committed offset is the id of its topic, 16 bytes, left
out when unknown; other tags are skipped.
Written, as Kafka 4 does: offsets as 4 (1 when they carry an expire timestamp), groups as 3. Earlier versions of ours read 4 as well
and lose the topic id.
A crash may leave nothing here that the batch's CRC does not catch; times are ms since 1970, -1 = unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_coordination.group.consumer import records as consumer
from barnabas_coordination.group.consumer.records import ConsumerRecord
from barnabas_coordination.group.led_records import VALUE_VERSION, RecordKind
from barnabas_coordination.group.share import records as share
from barnabas_coordination.group.share.records import ShareRecord
from barnabas_coordination.group.streams import records as streams
from barnabas_coordination.group.streams.records import StreamsRecord
from barnabas_coordination.record_bytes import number_of, pack, unpack
from barnabas_wire.kafka.ids import ZERO_UUID, Epoch, Offset, Uuid
from barnabas_wire.kafka.schema import NEVER_FLEXIBLE, Message, array, int32, int64, raw, string, uuid
from barnabas_wire.lazy_dataclass import dataclass

OFFSET_COMMIT_KEY_VERSION = 1
GROUP_METADATA_KEY_VERSION = 2
GROUP_METADATA_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION = 4
NO_TIMESTAMP = -1


# ---- what the coordinator speaks of ----------------------------------------------------------------------------------


class OffsetValue(NamedTuple):
    """A committed offset."""

    offset: Offset
    leader_epoch: Epoch
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    """Set only for clients that ask for their own retention (OffsetCommit v2 to v4)."""
    topic_id: Uuid = ZERO_UUID
    """The topic of that name which the offset is of; ZERO_UUID when unknown: an older version wrote it."""


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


GroupRecord = OffsetCommitRecord | GroupMetadataRecord | ConsumerRecord | ShareRecord | StreamsRecord


# ---- the bytes, declared as Kafka's OffsetCommitKey.json, OffsetCommitValue.json, GroupMetadataKey.json, … -------------


@dataclass(slots=True)
class _OffsetCommitKey(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, NEVER_FLEXIBLE

    group: str = string()
    topic: str = string()
    partition: int = int32()


@dataclass(slots=True)
class _OffsetCommitValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 4

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1-1", default=NO_TIMESTAMP)
    topic_id: Uuid = uuid("4+", tag=0)


@dataclass(slots=True)
class _GroupMetadataKey(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 2, NEVER_FLEXIBLE

    group: str = string()


@dataclass(slots=True)
class _MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = raw()
    assignment: bytes = raw()


@dataclass(slots=True)
class _GroupMetadataValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 4

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=NO_TIMESTAMP)
    members: list[_MemberMetadata] = array(_MemberMetadata)


_LED: Final[Mapping[int, RecordKind]] = {kind.number: kind for kind in (*consumer.KINDS, *share.KINDS, *streams.KINDS)}
_LED_BY_RECORD: Final[Mapping[type, RecordKind]] = {kind.record: kind for kind in _LED.values()}


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Record -> key and value bytes. Raises KafkaError INVALID_REQUEST for a string longer than 32,767 bytes."""
    if isinstance(record, OffsetCommitRecord):
        key = pack(_OffsetCommitKey(record.group_id, record.topic, record.partition), OFFSET_COMMIT_KEY_VERSION)
        return key, None if record.value is None else _encode_offset(record.value)
    if isinstance(record, GroupMetadataRecord):
        key = pack(_GroupMetadataKey(record.group_id), GROUP_METADATA_KEY_VERSION)
        return key, None if record.value is None else _encode_group(record.value)
    kind = _LED_BY_RECORD[type(record)]
    key, value = pack(kind.key(*record[:-1]), kind.number), record[-1]
    return key, None if kind.message is None or value is None else pack(kind.to_message(value), VALUE_VERSION)


def _encode_offset(value: OffsetValue) -> bytes:
    version = OFFSET_COMMIT_VALUE_VERSION if value.expire_timestamp_ms == NO_TIMESTAMP else 1
    return pack(_OffsetCommitValue(*value), version)


def _encode_group(value: GroupMetadataValue) -> bytes:
    message = _GroupMetadataValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        current_state_timestamp=value.state_timestamp_ms,
        members=[_MemberMetadata(*member) for member in value.members],
    )
    return pack(message, GROUP_METADATA_VALUE_VERSION)


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Key and value -> record; None for a type that is not known.

    Raises CorruptRecord when the bytes do not have the layout above.
    """
    version = number_of(key)
    if version in (0, OFFSET_COMMIT_KEY_VERSION):
        commit = unpack(_OffsetCommitKey, key)
        return OffsetCommitRecord(
            commit.group, commit.topic, commit.partition, None if value is None else _decode_offset(value)
        )
    if version == GROUP_METADATA_KEY_VERSION:
        group = unpack(_GroupMetadataKey, key).group
        return GroupMetadataRecord(group, None if value is None else _decode_group(value))
    kind = _LED.get(version)
    return None if kind is None else _decode_led(kind, key, value)


def _decode_led(kind: RecordKind, key: bytes, value: bytes | None) -> GroupRecord:
    named = unpack(kind.key, key)
    names = [getattr(named, name) for name in kind.key.__match_args__]  # type: ignore[attr-defined]  # a dataclass
    record: GroupRecord
    if kind.message is None:
        record = kind.record(*names, value is None)
    else:
        record = kind.record(*names, None if value is None else kind.to_value(unpack(kind.message, value)))
    return record


def _decode_offset(data: bytes) -> OffsetValue:
    value = unpack(_OffsetCommitValue, data)
    return OffsetValue(
        Offset(value.offset),
        Epoch(value.leader_epoch),
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def _decode_group(data: bytes) -> GroupMetadataValue:
    value = unpack(_GroupMetadataValue, data)
    return GroupMetadataValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp,
        members=tuple(_decode_member(member) for member in value.members),
    )


def _decode_member(member: _MemberMetadata) -> MemberValue:
    # Before version 1 the session time-out served for both.
    rebalance_timeout = member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout
    return MemberValue(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        rebalance_timeout,
        member.session_timeout,
        member.subscription,
        member.assignment,
    )
