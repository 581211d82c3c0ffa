"""StreamsGroupDescribe (key 89): state, epochs, topology and members of Streams groups (KIP-1071)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.consumer_group_describe import EXPLANATION_TAG
from barnabas_wire.kafka.messages.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo
from barnabas_wire.kafka.messages.streams_group_topology_description_update import TopologyDescription
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string, struct
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class StreamsGroupDescribeRequest(Message):
    """Ask about Streams groups by id."""

    API_KEY = ApiKey.STREAMS_GROUP_DESCRIBE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()
    include_topology_description: bool = boolean("1+")


@dataclass(slots=True)
class Subtopology:
    """A part of the application, with the partition counts that were decided."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    repartition_sink_topics: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


@dataclass(slots=True)
class Topology:
    """What the application consists of."""

    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable="0+", default=None)  # null: not ready


@dataclass(slots=True)
class Assignment:
    """Tasks by what the member does with them."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


@dataclass(slots=True)
class Member:
    """One member: a thread of an instance."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean()


@dataclass(slots=True)
class DescribedGroup:
    """What the coordinator knows about one group."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = struct(Topology, nullable="0+", default=None)
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)  # bit n: ACL operation n; the default: not asked for
    topology_description: TopologyDescription | None = struct(TopologyDescription, "1+", nullable="1+", default=None)
    topology_description_status: int = int8("1+")  # 0 not asked for, 1 not stored, 2 an error, 3 there
    assignor_name: str | None = string("1+", nullable="1+", default=None)
    obstacle: str | None = string(nullable="0+", default=None, tag=EXPLANATION_TAG)  # ours: why it is NotReady


@dataclass(slots=True)
class StreamsGroupDescribeResponse(Message):
    """The groups asked about; one of another type is GROUP_ID_NOT_FOUND."""

    API_KEY = ApiKey.STREAMS_GROUP_DESCRIBE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
