"""AlterShareGroupOffsets (key 91): let a share group without members begin elsewhere (KIP-932)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class RequestPartition:
    """One partition, and where the group is to begin."""

    partition_index: int = int32()
    start_offset: int = int64()


@dataclass(slots=True)
class RequestTopic:
    """One topic."""

    topic_name: str = string()
    partitions: list[RequestPartition] = array(RequestPartition)


@dataclass(slots=True)
class AlterShareGroupOffsetsRequest(Message):
    """The offsets of one group. A group that is not there is made."""

    API_KEY = ApiKey.ALTER_SHARE_GROUP_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    group_id: str = string()
    topics: list[RequestTopic] = array(RequestTopic)


@dataclass(slots=True)
class ResponsePartition:
    """What became of one."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class ResponseTopic:
    """One topic."""

    topic_name: str = string()
    topic_id: Uuid = uuid()
    partitions: list[ResponsePartition] = array(ResponsePartition)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponse(Message):
    """What became of the request and, where it was taken, of each partition."""

    API_KEY = ApiKey.ALTER_SHARE_GROUP_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[ResponseTopic] = array(ResponseTopic)
