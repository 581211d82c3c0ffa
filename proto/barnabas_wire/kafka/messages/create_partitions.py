"""CreatePartitions (key 37): add partitions to topics.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string


@dataclass(slots=True)
class CreatePartitionsAssignment:
    """The new partition assignments."""

    broker_ids: list[int] = array(int32)  # The assigned broker IDs


@dataclass(slots=True)
class CreatePartitionsTopic:
    """Each topic that we want to create new partitions inside."""

    name: str = string()  # The topic name
    count: int = int32()  # The new partition count
    # The new partition assignments
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@dataclass(slots=True)
class CreatePartitionsRequest(Message):
    """CreatePartitions request.

    Version 1 is the same as version 0. Version 2 adds flexible version support Version 3 is identical to version 2
    but may return a THROTTLING_QUOTA_EXCEEDED error in the response if the partitions creation is throttled
    (KIP-599).
    """

    API_KEY = ApiKey.CREATE_PARTITIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 3, 2

    # Each topic that we want to create new partitions inside
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()  # The time in ms to wait for the partitions to be created
    # If true, then validate the request, but don't actually increase the number of partitions
    validate_only: bool = boolean()


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    """The partition creation results for each topic."""

    name: str = string()  # The topic name
    error_code: int = int16()  # The result error, or zero if there was no error
    # The result message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class CreatePartitionsResponse(Message):
    """CreatePartitions response.

    Starting in version 1, on quota violation, brokers send out responses before throttling. Version 2 adds flexible
    version support Version 3 is identical to version 2 but may return a THROTTLING_QUOTA_EXCEEDED error in the
    response if the partitions creation is throttled (KIP-599).
    """

    API_KEY = ApiKey.CREATE_PARTITIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 3, 2

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    # The partition creation results for each topic
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
