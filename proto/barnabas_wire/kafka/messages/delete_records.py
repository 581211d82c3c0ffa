"""DeleteRecords (key 21): raise the log start offset of partitions (KIP-107).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string


@dataclass(slots=True)
class DeleteRecordsPartition:
    """Each partition that we want to delete records from."""

    partition_index: int = int32()  # The partition index
    offset: int = int64()  # The deletion offset. -1 means that records should be truncated to the high watermark


@dataclass(slots=True)
class DeleteRecordsTopic:
    """Each topic that we want to delete records from."""

    name: str = string()  # The topic name
    # Each partition that we want to delete records from
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@dataclass(slots=True)
class DeleteRecordsRequest(Message):
    """DeleteRecords request.

    Version 1 is the same as version 0. Version 2 is the first flexible version.
    """

    API_KEY = ApiKey.DELETE_RECORDS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)  # Each topic that we want to delete records from
    timeout_ms: int = int32()  # How long to wait for the deletion to complete, in milliseconds


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    """Each partition that we wanted to delete records from."""

    partition_index: int = int32()  # The partition index
    low_watermark: int = int64()  # The partition low water mark
    error_code: int = int16()  # The deletion error code, or 0 if the deletion succeeded


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    """Each topic that we wanted to delete records from."""

    name: str = string()  # The topic name
    # Each partition that we wanted to delete records from
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@dataclass(slots=True)
class DeleteRecordsResponse(Message):
    """DeleteRecords response.

    Starting in version 1, on quota violation, brokers send out responses before throttling. Version 2 is the first
    flexible version.
    """

    API_KEY = ApiKey.DELETE_RECORDS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    # Each topic that we wanted to delete records from
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
