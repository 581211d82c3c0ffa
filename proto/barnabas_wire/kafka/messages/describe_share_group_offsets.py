"""DescribeShareGroupOffsets (key 90): how far share groups are in each partition (KIP-932)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class RequestTopic:
    """Some partitions of a topic."""

    topic_name: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class RequestGroup:
    """One group, and the topics asked about; null: all that have a state."""

    group_id: str = string()
    topics: list[RequestTopic] | None = array(RequestTopic, nullable="0+")


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequest(Message):
    """Ask about share groups by id."""

    API_KEY = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    groups: list[RequestGroup] = array(RequestGroup)


@dataclass(slots=True)
class ResponsePartition:
    """One partition; start offset -1: there is no state of it. From v1 on with the lag (KIP-1226); -1: not known."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class ResponseTopic:
    """One topic."""

    topic_name: str = string()
    topic_id: Uuid = uuid()
    partitions: list[ResponsePartition] = array(ResponsePartition)


@dataclass(slots=True)
class ResponseGroup:
    """One group."""

    group_id: str = string()
    topics: list[ResponseTopic] = array(ResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponse(Message):
    """The groups asked about."""

    API_KEY = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    throttle_time_ms: int = int32()
    groups: list[ResponseGroup] = array(ResponseGroup)
