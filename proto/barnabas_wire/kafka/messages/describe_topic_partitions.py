"""DescribeTopicPartitions (key 75): topics page by page, with ELR (KIP-966).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string, struct, uuid


@dataclass(slots=True)
class TopicRequest:
    """The topics to fetch details for."""

    name: str = string()  # The topic name


@dataclass(slots=True)
class DescribeTopicPartitionsRequestCursor:
    """The first topic and partition index to fetch details for."""

    topic_name: str = string()  # The name for the first topic to process
    partition_index: int = int32()  # The partition index to start with


@dataclass(slots=True)
class DescribeTopicPartitionsRequest(Message):
    """DescribeTopicPartitions request."""

    API_KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    topics: list[TopicRequest] = array(TopicRequest)  # The topics to fetch details for
    response_partition_limit: int = int32(default=2000)  # The maximum number of partitions included in the response
    # The first topic and partition index to fetch details for
    cursor: DescribeTopicPartitionsRequestCursor | None = struct(
        DescribeTopicPartitionsRequestCursor, nullable="0+", default=None
    )


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    """Each partition in the topic."""

    error_code: int = int16()  # The partition error, or 0 if there was no error
    partition_index: int = int32()  # The partition index
    leader_id: int = int32()  # The ID of the leader broker
    leader_epoch: int = int32(default=-1)  # The leader epoch of this partition
    replica_nodes: list[int] = array(int32)  # The set of all nodes that host this partition
    isr_nodes: list[int] = array(int32)  # The set of nodes that are in sync with the leader for this partition
    # The new eligible leader replicas otherwise
    eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)  # The last known ELR
    offline_replicas: list[int] = array(int32)  # The set of offline replicas of this partition


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    """Each topic in the response."""

    error_code: int = int16()  # The topic error, or 0 if there was no error
    name: str | None = string(nullable="0+")  # The topic name
    topic_id: Uuid = uuid()  # The topic id
    is_internal: bool = boolean()  # True if the topic is internal
    # Each partition in the topic
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    # 32-bit bitfield to represent authorized operations for this topic
    topic_authorized_operations: int = int32(default=-2147483648)


@dataclass(slots=True)
class Cursor:
    """The next topic and partition index to fetch details for."""

    topic_name: str = string()  # The name for the first topic to process
    partition_index: int = int32()  # The partition index to start with


@dataclass(slots=True)
class DescribeTopicPartitionsResponse(Message):
    """DescribeTopicPartitions response."""

    API_KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    # Each topic in the response
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    # The next topic and partition index to fetch details for
    next_cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)
