"""DeleteRecords (key 21): raise the log start offset of partitions (KIP-107)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DeleteRecordsPartition:
    """A partition to shorten at its old end."""

    partition_index: int = int32()
    offset: int = int64()  # the first one to keep; -1: the high watermark


@dataclass(slots=True)
class DeleteRecordsTopic:
    """A topic with partitions to shorten."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@dataclass(slots=True)
class DeleteRecordsRequest(Message):
    """Drop all records below given offsets."""

    API_KEY = ApiKey.DELETE_RECORDS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    """Where a partition starts now, or why nothing was dropped."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()
    # Ours alone, far above Kafka's tags, so that other clients pass over it: what is wrong, and what to do
    error_message: str = string("2+", tag=64)


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    """The outcome for one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@dataclass(slots=True)
class DeleteRecordsResponse(Message):
    """The outcome, partition by partition. A throttled v0 answer is sent late, from v1 on at once."""

    API_KEY = ApiKey.DELETE_RECORDS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
