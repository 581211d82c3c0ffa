"""OffsetDelete (key 47): delete committed offsets of a group (KIP-496).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import NEVER_FLEXIBLE, Message, array, int16, int32, string


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    """Each partition to delete offsets for."""

    partition_index: int = int32()  # The partition index


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    """The topics to delete offsets for."""

    name: str = string()  # The topic name
    # Each partition to delete offsets for
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@dataclass(slots=True)
class OffsetDeleteRequest(Message):
    """OffsetDelete request."""

    API_KEY = ApiKey.OFFSET_DELETE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, NEVER_FLEXIBLE

    group_id: str = string()  # The unique group identifier
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)  # The topics to delete offsets for


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    """The responses for each partition in the topic."""

    partition_index: int = int32()  # The partition index
    error_code: int = int16()  # The error code, or 0 if there was no error


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    """The responses for each topic."""

    name: str = string()  # The topic name
    # The responses for each partition in the topic
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@dataclass(slots=True)
class OffsetDeleteResponse(Message):
    """OffsetDelete response."""

    API_KEY = ApiKey.OFFSET_DELETE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, NEVER_FLEXIBLE

    error_code: int = int16()  # The top-level error code, or 0 if there was no error
    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)  # The responses for each topic
