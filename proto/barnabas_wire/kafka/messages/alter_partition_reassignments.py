"""AlterPartitionReassignments (key 45): change which brokers hold partitions (KIP-455, KIP-860)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ReassignablePartition:
    """A partition and the brokers it shall move to."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)  # null: call off a move under way


@dataclass(slots=True)
class ReassignableTopic:
    """A topic, with those of its partitions that shall move."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest(Message):
    """Start moves of partitions to other brokers, or call them off."""

    API_KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    timeout_ms: int = int32(default=60000)
    # False: refuse a move that would leave a partition with more or fewer replicas than it has (KIP-860)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@dataclass(slots=True)
class ReassignablePartitionResponse:
    """Whether one partition's move was accepted; it may still take long."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class ReassignableTopicResponse:
    """The outcomes of one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse(Message):
    """The outcome by partition, and one error for all."""

    API_KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)  # which rule was applied
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
