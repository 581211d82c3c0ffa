"""DescribeTopicPartitions (key 75): topics page by page, with ELR (KIP-966)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string, struct, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class TopicRequest:
    """A topic asked about."""

    name: str = string()


@dataclass(slots=True)
class DescribeTopicPartitionsRequestCursor:
    """Where this page begins: taken from next_cursor of the page before."""

    topic_name: str = string()
    partition_index: int = int32()


@dataclass(slots=True)
class DescribeTopicPartitionsRequest(Message):
    """Ask for one page of topics and their partitions."""

    API_KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    topics: list[TopicRequest] = array(TopicRequest)  # empty: all
    response_partition_limit: int = int32(default=2000)  # of the page, over all its topics
    # null: from the beginning
    cursor: DescribeTopicPartitionsRequestCursor | None = struct(
        DescribeTopicPartitionsRequestCursor, nullable="0+", default=None
    )


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    """Who leads a partition, who keeps it and who could lead it."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()  # -1: none
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    # outside the ISR, yet complete enough to lead
    eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
    offline_replicas: list[int] = array(int32)


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    """A topic with those of its partitions that fit on the page."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: Uuid = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    # a bit for the number of each ACL operation the asker may do; the default: not known
    topic_authorized_operations: int = int32(default=-2147483648)


@dataclass(slots=True)
class Cursor:
    """Where the next page begins."""

    topic_name: str = string()
    partition_index: int = int32()


@dataclass(slots=True)
class DescribeTopicPartitionsResponse(Message):
    """One page of topics."""

    API_KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)  # null: this page is the last
