"""StreamsGroupHeartbeat (key 88): a member of a Streams group (KIP-1071) is there, says its topology, and gets its tasks."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, int64, string, struct, uint16
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class KeyValue:
    """A config or a tag."""

    key: str = string()
    value: str = string()


@dataclass(slots=True)
class TopicInfo:
    """A topic that the application needs and the coordinator has made."""

    name: str = string()
    partitions: int = int32()  # 0: to be decided; always 0 for changelogs
    replication_factor: int = int16()  # 0: the cluster's default
    topic_configs: list[KeyValue] = array(KeyValue)


@dataclass(slots=True)
class CopartitionGroup:
    """Topics that must have as many partitions as each other, by their places in the lists of the subtopology."""

    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


@dataclass(slots=True)
class Subtopology:
    """A part of the application that is connected, with the topics that it reads and writes."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


@dataclass(slots=True)
class Topology:
    """What the application consists of."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


@dataclass(slots=True)
class TaskIds:
    """Some tasks of a subtopology: each is one partition of its input."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class Endpoint:
    """Where other instances ask for what an instance has in its stores."""

    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class TaskOffset:
    """How far the stores of a task are, summed over its changelogs."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@dataclass(slots=True)
class StreamsGroupHeartbeatRequest(Message):
    """Join, stay or leave. Null fields have not changed since the last heartbeat; v1 lets the answer carry its new fields."""

    API_KEY = ApiKey.STREAMS_GROUP_HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()  # 0 joins, -1 leaves, -2 leaves for a while as a static member
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)  # -1: unchanged
    topology: Topology | None = struct(Topology, nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)  # owned now, like the next two
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    process_id: str | None = string(nullable="0+", default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    shutdown_application: bool = boolean()


@dataclass(slots=True)
class Status:
    """Why the group does not run, or is about to stop."""

    status_code: int = int8()
    status_detail: str = string()


@dataclass(slots=True)
class TopicPartition:
    """Some partitions of a topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class EndpointToPartitions:
    """What the member with an endpoint reads, and what it only keeps a copy of."""

    user_endpoint: Endpoint = struct(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


@dataclass(slots=True)
class StreamsGroupHeartbeatResponse(Message):
    """The member's epoch, the state of the group in words and, where they changed, its tasks."""

    API_KEY = ApiKey.STREAMS_GROUP_HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag_legacy: int = int32("0-0")
    task_offset_interval_ms: int = int32()
    acceptable_recovery_lag: int = int64("1+", default=-1)
    status: list[Status] | None = array(Status, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    topology_description_required: bool = boolean("1+")
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable="0+", default=None
    )
