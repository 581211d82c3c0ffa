"""ConsumerGroupHeartbeat (key 68): a member of a group of the consumer protocol (KIP-848) is there, and gets its assignment."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string, struct, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class TopicPartitions:
    """Some partitions of a topic."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest(Message):
    """Join, stay or leave. Null fields have not changed since the last heartbeat.

    From v1 on the member makes its own id (KIP-1082) and may subscribe by a pattern.
    """

    API_KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()  # 0 joins, -1 leaves, -2 leaves for a while as a static member
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)  # -1: unchanged
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)  # owned now


@dataclass(slots=True)
class Assignment:
    """What a member is to own."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@dataclass(slots=True)
class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch and, where it changed, its assignment."""

    API_KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
