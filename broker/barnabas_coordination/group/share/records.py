"""The records of share groups in `__consumer_offsets`, in Kafka's own bytes.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: decode(encode(record)) == record; bytes that have another layout raise CorruptRecord, nothing else.
Read next:  ../led_records.py, which has what all groups have in common; group.py, which replays these.

Key: int16 record type, string group, and for types 10, 13 and 14 string member id. Value: null = tombstone, otherwise int16 version 0
and a body with compact strings and arrays and tagged fields:
    10  member               string? rack, string client id, string client host, string[] topic names, sorted
    11  group                int32 epoch, int64 hash of the metadata of the topics subscribed to
    12  target               int32 assignment epoch, [tag 0] int64 when it was made, ms since 1970
    13  member's target      (uuid topic, int32[] partitions)[]
    14  member's assignment  int32 epoch, int32 previous epoch, int8 state, (uuid topic, int32[] partitions)[]
    15  share states         being begun and begun, each (uuid topic, string name, int32[] partitions)[], then being ended (uuid topic,
                             string name)[]. Of a topic whose states are being begun, [tag 64, ours] int64[] where each partition is to
                             begin; without it, which is how Kafka writes it, where the group's share.auto.offset.reset says
A crash leaves nothing here that the batch's CRC does not catch. A version without these groups skips every one of these types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from barnabas_coordination.group.led_records import (
    GroupKey,
    MemberKey,
    Partitions,
    RecordKind,
    TargetValue,
    TopicPartitions,
    partitions_kind,
    partitions_of,
    target_kind,
    topic_messages,
)
from barnabas_wire.kafka.ids import NO_OFFSET, Offset, Uuid
from barnabas_wire.kafka.schema import Message, array, int8, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass

STABLE: Final = 0
"""The one state of a member: nothing is ever given up first."""
START_OFFSETS_TAG: Final = 64


# ---- what the coordinator speaks of ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberMetadata:
    """What a member says of itself."""

    rack_id: str | None = None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...] = ()
    """Sorted."""


class ShareGroupMemberMetadataRecord(NamedTuple):
    """A member came or says something else; value None: it is gone."""

    group_id: str
    member_id: str
    value: ShareMemberMetadata | None


class ShareGroupValue(NamedTuple):
    """The group's epoch."""

    epoch: int
    metadata_hash: int = 0


class ShareGroupMetadataRecord(NamedTuple):
    """The group's epoch rose; value None: the group is gone."""

    group_id: str
    value: ShareGroupValue | None


class ShareGroupTargetAssignmentMetadataRecord(NamedTuple):
    """The targets are of this epoch now; value None: there are none."""

    group_id: str
    value: TargetValue | None


class ShareGroupTargetAssignmentMemberRecord(NamedTuple):
    """What a member is to have; value None: it is gone."""

    group_id: str
    member_id: str
    value: Partitions | None


class ShareAssignmentValue(NamedTuple):
    """What a member has."""

    epoch: int
    previous_epoch: int
    assigned: Partitions


class ShareGroupCurrentMemberAssignmentRecord(NamedTuple):
    """A member was told this; value None: it has nothing any more."""

    group_id: str
    member_id: str
    value: ShareAssignmentValue | None


class Beginning(NamedTuple):
    """Partitions of a topic whose share states are being begun."""

    name: str
    starts: Mapping[int, Offset]
    """Partition -> where it is to begin; NO_OFFSET: where the group's share.auto.offset.reset says."""


class Begun(NamedTuple):
    """Partitions of a topic that have a share state."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The share states of a group, by the ids of their topics."""

    beginning: Mapping[Uuid, Beginning] = field(default_factory=dict)
    begun: Mapping[Uuid, Begun] = field(default_factory=dict)
    ending: Mapping[Uuid, str] = field(default_factory=dict)
    """Topic id -> name: every state of the topic is being forgotten."""


class ShareGroupStatePartitionMetadataRecord(NamedTuple):
    """Which partitions have a share state; value None: none."""

    group_id: str
    value: StatePartitions | None


ShareRecord = (
    ShareGroupMemberMetadataRecord
    | ShareGroupMetadataRecord
    | ShareGroupTargetAssignmentMetadataRecord
    | ShareGroupTargetAssignmentMemberRecord
    | ShareGroupCurrentMemberAssignmentRecord
    | ShareGroupStatePartitionMetadataRecord
)


# ---- the bytes, declared as Kafka's ShareGroup….json ------------------------------------------------------------------


@dataclass(slots=True)
class _MemberValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


@dataclass(slots=True)
class _GroupValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    epoch: int = int32()
    metadata_hash: int = int64()


@dataclass(slots=True)
class _AssignmentValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


@dataclass(slots=True)
class _TopicPartitionsInfo:
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)
    start_offsets: list[int] | None = array(int64, nullable="0+", default=None, tag=START_OFFSETS_TAG)


@dataclass(slots=True)
class _TopicInfo:
    topic_id: Uuid = uuid()
    topic_name: str = string()


@dataclass(slots=True)
class _StatePartitionsValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    initializing_topics: list[_TopicPartitionsInfo] = array(_TopicPartitionsInfo)
    initialized_topics: list[_TopicPartitionsInfo] = array(_TopicPartitionsInfo)
    deleting_topics: list[_TopicInfo] = array(_TopicInfo)


def _member_message(member: ShareMemberMetadata) -> _MemberValue:
    return _MemberValue(member.rack_id, member.client_id, member.client_host, list(member.topic_names))


def _states_message(states: StatePartitions) -> _StatePartitionsValue:
    beginning = []
    for topic_id, (name, starts) in states.beginning.items():
        partitions = sorted(starts)
        offsets = [int(starts[partition]) for partition in partitions]
        says = any(offset != NO_OFFSET for offset in offsets)
        beginning.append(_TopicPartitionsInfo(topic_id, name, partitions, offsets if says else None))
    return _StatePartitionsValue(
        initializing_topics=beginning,
        initialized_topics=[
            _TopicPartitionsInfo(topic_id, name, sorted(partitions))
            for topic_id, (name, partitions) in states.begun.items()
        ],
        deleting_topics=[_TopicInfo(topic_id, name) for topic_id, name in states.ending.items()],
    )


def _member_of(value: _MemberValue) -> ShareMemberMetadata:
    return ShareMemberMetadata(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=tuple(value.subscribed_topic_names),
    )


def _assignment_message(has: ShareAssignmentValue) -> _AssignmentValue:
    return _AssignmentValue(has.epoch, has.previous_epoch, STABLE, topic_messages(has.assigned))


def _assignment_of(value: _AssignmentValue) -> ShareAssignmentValue:
    return ShareAssignmentValue(
        value.member_epoch, value.previous_member_epoch, partitions_of(value.assigned_partitions)
    )


def _states_of(value: _StatePartitionsValue) -> StatePartitions:
    return StatePartitions(
        {of.topic_id: Beginning(of.topic_name, _starts_of(of)) for of in value.initializing_topics if of.partitions},
        {
            of.topic_id: Begun(of.topic_name, frozenset(of.partitions))
            for of in value.initialized_topics
            if of.partitions
        },
        {of.topic_id: of.topic_name for of in value.deleting_topics},
    )


def _starts_of(of: _TopicPartitionsInfo) -> dict[int, Offset]:
    offsets: Iterable[int] = of.start_offsets or ()
    if of.start_offsets is None or len(of.start_offsets) != len(of.partitions):
        offsets = [NO_OFFSET] * len(of.partitions)
    return {partition: Offset(offset) for partition, offset in zip(of.partitions, offsets, strict=True)}


KINDS: Final = (
    RecordKind(10, MemberKey, ShareGroupMemberMetadataRecord, _MemberValue, _member_message, _member_of),
    RecordKind(
        11,
        GroupKey,
        ShareGroupMetadataRecord,
        _GroupValue,
        lambda group: _GroupValue(*group),
        lambda of: ShareGroupValue(of.epoch, of.metadata_hash),
    ),
    target_kind(12, ShareGroupTargetAssignmentMetadataRecord),
    partitions_kind(13, ShareGroupTargetAssignmentMemberRecord),
    RecordKind(
        14, MemberKey, ShareGroupCurrentMemberAssignmentRecord, _AssignmentValue, _assignment_message, _assignment_of
    ),
    RecordKind(
        15, GroupKey, ShareGroupStatePartitionMetadataRecord, _StatePartitionsValue, _states_message, _states_of
    ),
)
