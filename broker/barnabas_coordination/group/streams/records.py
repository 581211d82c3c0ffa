"""The records of Streams groups in `__consumer_offsets`, in Kafka's own bytes.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: decode(encode(record)) == record; bytes that have another layout raise CorruptRecord, nothing else.
Read next:  ../records.py, which has the layout of keys and values in common; group.py, which replays these.

Key: int16 record type, string group, and for types 19, 21 and 22 string member id. Value: null = tombstone, otherwise int16 version 0
and a body with compact strings and arrays and tagged fields:
    17  group                int32 epoch, int64 hash of the topology's topics, [tag 0] int32 epoch of the topology that was found ready,
                             [tag 1] configs of the last assignment (string key, string value)[], [tags 2 and 3] int32 epochs of the
                             topology whose description a plugin stored, and refused
    19  member               string? instance id, string? rack, string client id, string client host, int32 rebalance time-out, int32
                             topology epoch, string process id, (string host, uint16 port)? endpoint, (string key, string value)[] tags
    20  target               int32 assignment epoch, [tag 0] int64 when it was made, ms since 1970
    21  member's target      active, standby and warm-up tasks, each (string subtopology, int32[] partitions)[]
    22  member's assignment  int32 epoch, int32 previous epoch, int8 state, assigned active, standby and warm-up tasks, then the same
                             pending revocation, each (string subtopology, int32[] partitions, [tag 0] int32[] assignment epochs)[]
    23  topology             int32 epoch, subtopologies, each string id, string[] source topics, string[] their regular expressions,
                             changelogs, string[] repartition topics written, repartition topics read, (int16[] sources, int16[] regular
                             expressions, int16[] repartition topics read)[] copartition groups. A changelog and a repartition topic read:
                             string name, int32 partitions, int16 replication factor, (string key, string value)[] configs
An active task without an assignment epoch has the member's. What a plugin did with descriptions is read and forgotten: this broker has
none. A crash leaves nothing here that the batch's CRC does not catch. A version without these groups skips every one of these types.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_coordination.group.led_records import GroupKey, MemberKey, RecordKind, TargetValue, target_kind
from barnabas_coordination.group.streams.tasks import HeldTasks, Task, Tasks, by_subtopology
from barnabas_coordination.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from barnabas_wire.kafka.schema import (
    Message,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)
from barnabas_wire.lazy_dataclass import dataclass

NO_TOPOLOGY: Final = -1
"""The value in place of a topology's epoch."""


class MemberState(IntEnum):
    """How far a member is on its way to its target, by Kafka's numbers."""

    STABLE = 1
    """It has what it can have, all of its target."""
    UNREVOKED_TASKS = 2
    """It still has to give tasks up."""
    UNRELEASED_TASKS = 3
    """Others still have to give up tasks of its target."""
    UNKNOWN = 127
    """A later version's."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


# ---- what the coordinator speaks of ----------------------------------------------------------------------------------


class Endpoint(NamedTuple):
    """Where other instances ask for what an instance has in its stores."""

    host: str
    port: int


class GroupValue(NamedTuple):
    """The group's epoch, and what it came of."""

    epoch: int
    metadata_hash: int = 0
    validated_topology_epoch: int = NO_TOPOLOGY
    """The epoch of the topology that was found ready."""
    assignment_configs: tuple[tuple[str, str], ...] = ()
    """Sorted."""


class StreamsGroupMetadataRecord(NamedTuple):
    """The group's epoch rose; value None: the group is gone."""

    group_id: str
    value: GroupValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member says of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    """Sorted."""


class StreamsGroupMemberMetadataRecord(NamedTuple):
    """A member came or says something else; value None: it is gone."""

    group_id: str
    member_id: str
    value: MemberMetadata | None


class StreamsGroupTargetAssignmentMetadataRecord(NamedTuple):
    """The targets are of this epoch now; value None: there are none."""

    group_id: str
    value: TargetValue | None


class StreamsGroupTargetAssignmentMemberRecord(NamedTuple):
    """What a member is to have; value None: it is gone."""

    group_id: str
    member_id: str
    value: Tasks | None


class AssignmentValue(NamedTuple):
    """What a member has."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: HeldTasks
    pending: HeldTasks
    """Tasks that it still has to give up."""


class StreamsGroupCurrentMemberAssignmentRecord(NamedTuple):
    """A member was told this; value None: it holds nothing any more."""

    group_id: str
    member_id: str
    value: AssignmentValue | None


class StreamsGroupTopologyRecord(NamedTuple):
    """The application consists of this; value None: the group is gone."""

    group_id: str
    value: Topology | None


StreamsRecord = (
    StreamsGroupMetadataRecord
    | StreamsGroupMemberMetadataRecord
    | StreamsGroupTargetAssignmentMetadataRecord
    | StreamsGroupTargetAssignmentMemberRecord
    | StreamsGroupCurrentMemberAssignmentRecord
    | StreamsGroupTopologyRecord
)


# ---- the bytes, declared as Kafka's StreamsGroup….json ----------------------------------------------------------------


@dataclass(slots=True)
class _KeyValue:
    key: str = string()
    value: str = string()


@dataclass(slots=True)
class _GroupValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=NO_TOPOLOGY, tag=0)
    last_assignment_configs: list[_KeyValue] | None = array(_KeyValue, nullable="0+", tag=1)
    stored_description_topology_epoch: int = int32(default=-1, tag=2)
    failed_description_topology_epoch: int = int32(default=-1, tag=3)


@dataclass(slots=True)
class _Endpoint:
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class _MemberValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: _Endpoint | None = struct(_Endpoint, nullable="0+", default=None)
    client_tags: list[_KeyValue] = array(_KeyValue)


@dataclass(slots=True)
class _TaskIds:
    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class _TargetMemberValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    active_tasks: list[_TaskIds] = array(_TaskIds)
    standby_tasks: list[_TaskIds] = array(_TaskIds)
    warmup_tasks: list[_TaskIds] = array(_TaskIds)


@dataclass(slots=True)
class _HeldTaskIds:
    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0)


@dataclass(slots=True)
class _AssignmentValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[_HeldTaskIds] = array(_HeldTaskIds)
    standby_tasks: list[_HeldTaskIds] = array(_HeldTaskIds)
    warmup_tasks: list[_HeldTaskIds] = array(_HeldTaskIds)
    active_tasks_pending_revocation: list[_HeldTaskIds] = array(_HeldTaskIds)
    standby_tasks_pending_revocation: list[_HeldTaskIds] = array(_HeldTaskIds)
    warmup_tasks_pending_revocation: list[_HeldTaskIds] = array(_HeldTaskIds)


@dataclass(slots=True)
class _TopicInfo:
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[_KeyValue] = array(_KeyValue)


@dataclass(slots=True)
class _CopartitionGroup:
    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


@dataclass(slots=True)
class _Subtopology:
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[_TopicInfo] = array(_TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[_TopicInfo] = array(_TopicInfo)
    copartition_groups: list[_CopartitionGroup] = array(_CopartitionGroup)


@dataclass(slots=True)
class _TopologyValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    epoch: int = int32()
    subtopologies: list[_Subtopology] = array(_Subtopology)


def _group_message(group: GroupValue) -> _GroupValue:
    return _GroupValue(
        epoch=group.epoch,
        metadata_hash=group.metadata_hash,
        validated_topology_epoch=group.validated_topology_epoch,
        last_assignment_configs=_pairs(group.assignment_configs),
    )


def _pairs(found: Iterable[tuple[str, str]]) -> list[_KeyValue]:
    return [_KeyValue(key, value) for key, value in found]


def _member_message(member: MemberMetadata) -> _MemberValue:
    return _MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.endpoint is None else _Endpoint(*member.endpoint),
        client_tags=_pairs(member.client_tags),
    )


def _task_messages(tasks: Iterable[Task]) -> list[_TaskIds]:
    return [_TaskIds(subtopology, partitions) for subtopology, partitions in by_subtopology(tasks).items()]


def _assignment_message(value: AssignmentValue) -> _AssignmentValue:
    return _AssignmentValue(
        value.epoch, value.previous_epoch, value.state, *_held_messages(value.assigned), *_held_messages(value.pending)
    )


def _held_messages(held: HeldTasks) -> tuple[list[_HeldTaskIds], list[_HeldTaskIds], list[_HeldTaskIds]]:
    active = [
        _HeldTaskIds(subtopology, partitions, [held.active[Task(subtopology, each)] for each in partitions])
        for subtopology, partitions in by_subtopology(held.active).items()
    ]
    return active, _without_epochs(held.standby), _without_epochs(held.warmup)


def _without_epochs(tasks: Iterable[Task]) -> list[_HeldTaskIds]:
    return [_HeldTaskIds(subtopology, partitions) for subtopology, partitions in by_subtopology(tasks).items()]


def _topology_message(topology: Topology) -> _TopologyValue:
    return _TopologyValue(
        topology.epoch,
        [
            _Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=list(part.source_topics),
                source_topic_regex=list(part.source_topic_regex),
                state_changelog_topics=_topic_messages(part.changelogs),
                repartition_sink_topics=list(part.repartition_sinks),
                repartition_source_topics=_topic_messages(part.repartition_sources),
                copartition_groups=[_CopartitionGroup(*map(list, group)) for group in part.copartitions],
            )
            for part in topology.subtopologies
        ],
    )


def _topic_messages(topics: Iterable[InternalTopic]) -> list[_TopicInfo]:
    return [
        _TopicInfo(topic.name, topic.partitions, topic.replication_factor, _pairs(topic.configs)) for topic in topics
    ]


def _group_of(value: _GroupValue) -> GroupValue:
    return GroupValue(
        value.epoch,
        value.metadata_hash,
        value.validated_topology_epoch,
        _of_pairs(value.last_assignment_configs or ()),
    )


def _of_pairs(found: Iterable[_KeyValue]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pair.key, pair.value) for pair in found))


def _member_of(value: _MemberValue) -> MemberMetadata:
    at = value.user_endpoint
    return MemberMetadata(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if at is None else Endpoint(at.host, at.port),
        client_tags=_of_pairs(value.client_tags),
    )


def _target_message(tasks: Tasks) -> _TargetMemberValue:
    return _TargetMemberValue(*map(_task_messages, tasks))


def _target_of(value: _TargetMemberValue) -> Tasks:
    return Tasks(_tasks_of(value.active_tasks), _tasks_of(value.standby_tasks), _tasks_of(value.warmup_tasks))


def _tasks_of(found: Iterable[_TaskIds | _HeldTaskIds]) -> frozenset[Task]:
    return frozenset(Task(ids.subtopology_id, partition) for ids in found for partition in ids.partitions)


def _assignment_of(value: _AssignmentValue) -> AssignmentValue:
    return AssignmentValue(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state),
        HeldTasks(
            _active_of(value.active_tasks, value.member_epoch),
            _tasks_of(value.standby_tasks),
            _tasks_of(value.warmup_tasks),
        ),
        HeldTasks(
            _active_of(value.active_tasks_pending_revocation, value.member_epoch),
            _tasks_of(value.standby_tasks_pending_revocation),
            _tasks_of(value.warmup_tasks_pending_revocation),
        ),
    )


def _active_of(found: Iterable[_HeldTaskIds], member_epoch: int) -> dict[Task, int]:
    held = {}
    for ids in found:
        epochs = ids.assignment_epochs
        if epochs is None or len(epochs) != len(ids.partitions):
            epochs = [max(0, member_epoch)] * len(ids.partitions)
        held.update({Task(ids.subtopology_id, each): since for each, since in zip(ids.partitions, epochs, strict=True)})
    return held


def _topology_of(value: _TopologyValue) -> Topology:
    return Topology(
        value.epoch,
        tuple(
            Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=tuple(part.source_topics),
                source_topic_regex=tuple(part.source_topic_regex),
                changelogs=_topics_of(part.state_changelog_topics),
                repartition_sinks=tuple(part.repartition_sink_topics),
                repartition_sources=_topics_of(part.repartition_source_topics),
                copartitions=tuple(
                    CopartitionGroup(
                        tuple(group.source_topics),
                        tuple(group.source_topic_regex),
                        tuple(group.repartition_source_topics),
                    )
                    for group in part.copartition_groups
                ),
            )
            for part in value.subtopologies
        ),
    )


def _topics_of(found: Iterable[_TopicInfo]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(topic.name, topic.partitions, topic.replication_factor, _of_pairs(topic.topic_configs))
        for topic in found
    )


KINDS: Final = (
    RecordKind(17, GroupKey, StreamsGroupMetadataRecord, _GroupValue, _group_message, _group_of),
    RecordKind(19, MemberKey, StreamsGroupMemberMetadataRecord, _MemberValue, _member_message, _member_of),
    target_kind(20, StreamsGroupTargetAssignmentMetadataRecord),
    RecordKind(
        21, MemberKey, StreamsGroupTargetAssignmentMemberRecord, _TargetMemberValue, _target_message, _target_of
    ),
    RecordKind(
        22, MemberKey, StreamsGroupCurrentMemberAssignmentRecord, _AssignmentValue, _assignment_message, _assignment_of
    ),
    RecordKind(23, GroupKey, StreamsGroupTopologyRecord, _TopologyValue, _topology_message, _topology_of),
)
