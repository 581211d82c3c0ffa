"""OffsetDelete (key 47): delete committed offsets of a group (KIP-496)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import NEVER_FLEXIBLE, Message, array, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    """A partition whose offset the group shall forget."""

    partition_index: int = int32()


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    """A topic with offsets to forget."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@dataclass(slots=True)
class OffsetDeleteRequest(Message):
    """Make one group forget what it committed for some partitions."""

    API_KEY = ApiKey.OFFSET_DELETE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, NEVER_FLEXIBLE

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    """Whether a partition's offset is gone."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    """The outcome for one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@dataclass(slots=True)
class OffsetDeleteResponse(Message):
    """The outcome: an error for the whole group, or one code a partition."""

    API_KEY = ApiKey.OFFSET_DELETE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, NEVER_FLEXIBLE

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
