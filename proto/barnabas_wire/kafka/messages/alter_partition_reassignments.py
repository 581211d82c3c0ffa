"""AlterPartitionReassignments (key 45): change which brokers hold partitions (KIP-455, KIP-860).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string


@dataclass(slots=True)
class ReassignablePartition:
    """The partitions to reassign."""

    partition_index: int = int32()  # The partition index
    # The replicas to place the partitions on, or null to cancel a pending reassignment for this partition
    replicas: list[int] | None = array(int32, nullable="0+", default=None)


@dataclass(slots=True)
class ReassignableTopic:
    """The topics to reassign."""

    name: str = string()  # The topic name
    partitions: list[ReassignablePartition] = array(ReassignablePartition)  # The partitions to reassign


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest(Message):
    """AlterPartitionReassignments request.

    Version 1 adds the ability to allow/disallow changing the replication factor as part of the request.
    """

    API_KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    timeout_ms: int = int32(default=60000)  # The time in ms to wait for the request to complete
    # The option indicating whether changing the replication factor of any given partition as part of this request is
    # a valid move
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)  # The topics to reassign


@dataclass(slots=True)
class ReassignablePartitionResponse:
    """The responses to partitions to reassign."""

    partition_index: int = int32()  # The partition index
    error_code: int = int16()  # The error code for this partition, or 0 if there was no error
    # The error message for this partition, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class ReassignableTopicResponse:
    """The responses to topics to reassign."""

    name: str = string()  # The topic name
    # The responses to partitions to reassign
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse(Message):
    """AlterPartitionReassignments response.

    Version 1 adds the ability to allow/disallow changing the replication factor as part of the request.
    """

    API_KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    # The option indicating whether changing the replication factor of any given partition as part of the request was
    # allowed
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()  # The top-level error code, or 0 if there was no error
    # The top-level error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)  # The responses to topics to reassign
