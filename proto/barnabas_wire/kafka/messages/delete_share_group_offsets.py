"""DeleteShareGroupOffsets (key 92): let a share group without members forget topics (KIP-932)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class RequestTopic:
    """One topic, with all its partitions."""

    topic_name: str = string()


@dataclass(slots=True)
class DeleteShareGroupOffsetsRequest(Message):
    """Some topics of one group."""

    API_KEY = ApiKey.DELETE_SHARE_GROUP_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    group_id: str = string()
    topics: list[RequestTopic] = array(RequestTopic)


@dataclass(slots=True)
class ResponseTopic:
    """What became of one."""

    topic_name: str = string()
    topic_id: Uuid = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class DeleteShareGroupOffsetsResponse(Message):
    """What became of the request and, where it was taken, of each topic."""

    API_KEY = ApiKey.DELETE_SHARE_GROUP_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[ResponseTopic] = array(ResponseTopic)
