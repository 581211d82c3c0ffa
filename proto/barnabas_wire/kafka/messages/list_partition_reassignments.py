"""ListPartitionReassignments (key 46): which partitions are moving between brokers (KIP-455).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    """The topics to list partition reassignments for, or null to list everything."""

    name: str = string()  # The topic name
    partition_indexes: list[int] = array(int32)  # The partitions to list partition reassignments for


@dataclass(slots=True)
class ListPartitionReassignmentsRequest(Message):
    """ListPartitionReassignments request."""

    API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    timeout_ms: int = int32(default=60000)  # The time in ms to wait for the request to complete
    # The topics to list partition reassignments for, or null to list everything
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


@dataclass(slots=True)
class OngoingPartitionReassignment:
    """The ongoing reassignments for each partition."""

    partition_index: int = int32()  # The index of the partition
    replicas: list[int] = array(int32)  # The current replica set
    adding_replicas: list[int] = array(int32)  # The set of replicas we are currently adding
    removing_replicas: list[int] = array(int32)  # The set of replicas we are currently removing


@dataclass(slots=True)
class OngoingTopicReassignment:
    """The ongoing reassignments for each topic."""

    name: str = string()  # The topic name
    # The ongoing reassignments for each partition
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@dataclass(slots=True)
class ListPartitionReassignmentsResponse(Message):
    """ListPartitionReassignments response."""

    API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The top-level error code, or 0 if there was no error
    # The top-level error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)  # The ongoing reassignments for each topic
