"""DescribeProducers (key 61): active producers of partitions (KIP-664).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string


@dataclass(slots=True)
class TopicRequest:
    """The topics to list producers for."""

    name: str = string()  # The topic name
    partition_indexes: list[int] = array(int32)  # The indexes of the partitions to list producers for


@dataclass(slots=True)
class DescribeProducersRequest(Message):
    """DescribeProducers request."""

    API_KEY = ApiKey.DESCRIBE_PRODUCERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    topics: list[TopicRequest] = array(TopicRequest)  # The topics to list producers for


@dataclass(slots=True)
class ProducerState:
    """The active producers for the partition."""

    producer_id: int = int64()  # The producer id
    producer_epoch: int = int32()  # The producer epoch
    last_sequence: int = int32(default=-1)  # The last sequence number sent by the producer
    last_timestamp: int = int64(default=-1)  # The last timestamp sent by the producer
    coordinator_epoch: int = int32()  # The current epoch of the producer group
    current_txn_start_offset: int = int64(default=-1)  # The current transaction start offset of the producer


@dataclass(slots=True)
class PartitionResponse:
    """Each partition in the response."""

    partition_index: int = int32()  # The partition index
    error_code: int = int16()  # The partition error code, or 0 if there was no error
    # The partition error message, which may be null if no additional details are available
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)  # The active producers for the partition


@dataclass(slots=True)
class TopicResponse:
    """Each topic in the response."""

    name: str = string()  # The topic name
    partitions: list[PartitionResponse] = array(PartitionResponse)  # Each partition in the response


@dataclass(slots=True)
class DescribeProducersResponse(Message):
    """DescribeProducers response."""

    API_KEY = ApiKey.DESCRIBE_PRODUCERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)  # Each topic in the response
