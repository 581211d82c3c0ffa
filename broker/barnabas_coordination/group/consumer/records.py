"""The records of consumer groups in `__consumer_offsets`, in Kafka's own bytes.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: decode(encode(record)) == record; bytes that have another layout raise CorruptRecord, nothing else.
Read next:  ../records.py, which has the layout of keys and values in common; group.py, which replays these.

Key: int16 record type, string group, and for types 5, 7 and 8 string member id, for 16 string regular expression. Value: null =
tombstone, otherwise int16 version 0 and a body with compact strings and arrays and tagged fields:
     3  group                int32 epoch, [tag 0] int64 hash of the metadata of the topics subscribed to
     4  partition metadata   of former versions of Kafka: only its tombstone is written
     5  member               string? instance id, string? rack, string client id, string client host, string[] topic names, sorted,
                             string? regular expression, int32 rebalance time-out, string? assignor, [tag 0] what a member of the
                             classic protocol offers: int32 session time-out, (string protocol, bytes metadata)[]
     6  target               int32 assignment epoch, [tag 0] int64 when it was made, ms since 1970
     7  member's target      (uuid topic, int32[] partitions)[]
     8  member's assignment  int32 epoch, int32 previous epoch, int8 state, assigned and pending revocation, each (uuid topic, int32[]
                             partitions, [tag 0] int32[]? assignment epochs)[]
    16  regular expression   string[] topics it matches, int64 offset of the metadata, int64 ms since 1970
A partition without an assignment epoch has the member's (Kafka before 4.3 wrote none). A crash leaves nothing here that the batch's
CRC does not catch. A version without these groups skips every one of these types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_coordination.group.led_records import (
    GroupKey,
    MemberKey,
    Partitions,
    RecordKind,
    TargetValue,
    partitions_kind,
    target_kind,
)
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.schema import NEVER_FLEXIBLE, Message, array, int8, int32, int64, raw, string, struct, uuid
from barnabas_wire.lazy_dataclass import dataclass

HeldPartitions = Mapping[Uuid, Mapping[int, int]]
"""Topic id -> partition -> the assignment epoch in which the member got it. Never changed in place."""


class MemberState(IntEnum):
    """How far a member is on its way to its target, by Kafka's numbers."""

    STABLE = 0
    """It has what it can have, all of its target."""
    UNREVOKED_PARTITIONS = 1
    """It still has to give partitions up."""
    UNRELEASED_PARTITIONS = 2
    """Others still have to give up partitions of its target."""
    UNKNOWN = 127
    """A later version's."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


# ---- what the coordinator speaks of ----------------------------------------------------------------------------------


class GroupValue(NamedTuple):
    """The group's epoch."""

    epoch: int
    metadata_hash: int = 0


class ConsumerGroupMetadataRecord(NamedTuple):
    """The group's epoch rose; value None: the group is gone."""

    group_id: str
    value: GroupValue | None


class ConsumerGroupPartitionMetadataRecord(NamedTuple):
    """What former versions of Kafka wrote of the topics; its value is not read."""

    group_id: str
    is_tombstone: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicOffer:
    """What a member that speaks the classic protocol offers (KIP-848, migration)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member says of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...] = ()
    """Sorted."""
    topic_regex: str | None = None
    """None and the empty one are alike: no regular expression."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicOffer | None = None


class ConsumerGroupMemberMetadataRecord(NamedTuple):
    """A member came or says something else; value None: it is gone."""

    group_id: str
    member_id: str
    value: MemberMetadata | None


class ConsumerGroupTargetAssignmentMetadataRecord(NamedTuple):
    """The targets are of this epoch now; value None: there are none."""

    group_id: str
    value: TargetValue | None


class ConsumerGroupTargetAssignmentMemberRecord(NamedTuple):
    """What a member is to have; value None: it is gone."""

    group_id: str
    member_id: str
    value: Partitions | None


class AssignmentValue(NamedTuple):
    """What a member has."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: HeldPartitions
    pending: HeldPartitions
    """The partitions to be given up."""


class ConsumerGroupCurrentMemberAssignmentRecord(NamedTuple):
    """A member was told this; value None: it holds nothing any more."""

    group_id: str
    member_id: str
    value: AssignmentValue | None


class RegexValue(NamedTuple):
    """What a regular expression matched."""

    topics: tuple[str, ...]
    """Sorted."""
    version: int
    """Offset of the metadata that was looked at."""
    timestamp_ms: int


class ConsumerGroupRegularExpressionRecord(NamedTuple):
    """A regular expression of the group was resolved; value None: no member subscribes by it any more."""

    group_id: str
    regex: str
    value: RegexValue | None


ConsumerRecord = (
    ConsumerGroupMetadataRecord
    | ConsumerGroupPartitionMetadataRecord
    | ConsumerGroupMemberMetadataRecord
    | ConsumerGroupTargetAssignmentMetadataRecord
    | ConsumerGroupTargetAssignmentMemberRecord
    | ConsumerGroupCurrentMemberAssignmentRecord
    | ConsumerGroupRegularExpressionRecord
)


# ---- the bytes, declared as Kafka's ConsumerGroup….json ---------------------------------------------------------------


@dataclass(slots=True)
class _RegexKey(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 16, 16, NEVER_FLEXIBLE

    group_id: str = string()
    regex: str = string()


@dataclass(slots=True)
class _GroupValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@dataclass(slots=True)
class _ClassicProtocol:
    name: str = string()
    metadata: bytes = raw()


@dataclass(slots=True)
class _ClassicMemberMetadata:
    session_timeout_ms: int = int32()
    supported_protocols: list[_ClassicProtocol] = array(_ClassicProtocol)


@dataclass(slots=True)
class _MemberValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+", default=None)
    classic_member_metadata: _ClassicMemberMetadata | None = struct(
        _ClassicMemberMetadata, nullable="0+", default=None, tag=0
    )


@dataclass(slots=True)
class _HeldTopicPartitions:
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", default=None, tag=0)


@dataclass(slots=True)
class _AssignmentValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[_HeldTopicPartitions] = array(_HeldTopicPartitions)
    partitions_pending_revocation: list[_HeldTopicPartitions] = array(_HeldTopicPartitions)


@dataclass(slots=True)
class _RegexValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


def _member_message(member: MemberMetadata) -> _MemberValue:
    classic = None
    if member.classic is not None:
        protocols = [_ClassicProtocol(*protocol) for protocol in member.classic.protocols]
        classic = _ClassicMemberMetadata(member.classic.session_timeout_ms, protocols)
    return _MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )


def _assignment_message(value: AssignmentValue) -> _AssignmentValue:
    return _AssignmentValue(
        member_epoch=value.epoch,
        previous_member_epoch=value.previous_epoch,
        state=value.state,
        assigned_partitions=_held_messages(value.assigned),
        partitions_pending_revocation=_held_messages(value.pending),
    )


def _held_messages(held: HeldPartitions) -> list[_HeldTopicPartitions]:
    return [_HeldTopicPartitions(topic_id, list(of), list(of.values())) for topic_id, of in held.items()]


def _member_of(value: _MemberValue) -> MemberMetadata:
    classic = None
    if value.classic_member_metadata is not None:
        offered = value.classic_member_metadata
        protocols = tuple((protocol.name, protocol.metadata) for protocol in offered.supported_protocols)
        classic = ClassicOffer(session_timeout_ms=offered.session_timeout_ms, protocols=protocols)
    return MemberMetadata(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=tuple(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=classic,
    )


def _assignment_of(value: _AssignmentValue) -> AssignmentValue:
    return AssignmentValue(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state),
        _held_of(value.assigned_partitions, value.member_epoch),
        _held_of(value.partitions_pending_revocation, value.member_epoch),
    )


def _held_of(found: Iterable[_HeldTopicPartitions], member_epoch: int) -> HeldPartitions:
    held = {}
    for of in found:
        epochs = of.assignment_epochs
        if epochs is None or len(epochs) != len(of.partitions):
            epochs = [max(0, member_epoch)] * len(of.partitions)
        if of.partitions:
            held[of.topic_id] = dict(zip(of.partitions, epochs, strict=True))
    return held


KINDS: Final = (
    RecordKind(
        3,
        GroupKey,
        ConsumerGroupMetadataRecord,
        _GroupValue,
        lambda group: _GroupValue(*group),
        lambda of: GroupValue(of.epoch, of.metadata_hash),
    ),
    RecordKind(4, GroupKey, ConsumerGroupPartitionMetadataRecord, None, _GroupValue, bool),
    RecordKind(5, MemberKey, ConsumerGroupMemberMetadataRecord, _MemberValue, _member_message, _member_of),
    target_kind(6, ConsumerGroupTargetAssignmentMetadataRecord),
    partitions_kind(7, ConsumerGroupTargetAssignmentMemberRecord),
    RecordKind(
        8, MemberKey, ConsumerGroupCurrentMemberAssignmentRecord, _AssignmentValue, _assignment_message, _assignment_of
    ),
    RecordKind(
        16,
        _RegexKey,
        ConsumerGroupRegularExpressionRecord,
        _RegexValue,
        lambda resolved: _RegexValue(list(resolved.topics), *resolved[1:]),
        lambda of: RegexValue(tuple(of.topics), of.version, of.timestamp),
    ),
)
