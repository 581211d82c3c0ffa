"""CreateTopics (key 19): create topics.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string, uuid


@dataclass(slots=True)
class CreatableReplicaAssignment:
    """The manual partition assignment, or the empty array if we are using automatic assignment."""

    partition_index: int = int32()  # The partition index
    broker_ids: list[int] = array(int32)  # The brokers to place the partition on


@dataclass(slots=True)
class CreatableTopicConfig:
    """The custom topic configurations to set."""

    name: str = string()  # The configuration name
    value: str | None = string(nullable="0+")  # The configuration value


@dataclass(slots=True)
class CreatableTopic:
    """The topics to create."""

    name: str = string()  # The topic name
    # The number of partitions to create in the topic, or -1 if we are either specifying a manual partition assignment
    # or using the default partitions
    num_partitions: int = int32()
    # The number of replicas to create for each partition in the topic, or -1 if we are either specifying a manual
    # partition assignment or using the default replication factor
    replication_factor: int = int16()
    # The manual partition assignment, or the empty array if we are using automatic assignment
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)  # The custom topic configurations to set


@dataclass(slots=True)
class CreateTopicsRequest(Message):
    """CreateTopics request.

    Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline. Version 1 adds validateOnly.
    Version 4 makes partitions/replicationFactor optional even when assignments are not present (KIP-464) Version 5
    is the first flexible version. Version 5 also returns topic configs in the response (KIP-525). Version 6 is
    identical to version 5 but may return a THROTTLING_QUOTA_EXCEEDED error in the response if the topics creation
    is throttled (KIP-599). Version 7 is the same as version 6.
    """

    API_KEY = ApiKey.CREATE_TOPICS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 7, 5

    topics: list[CreatableTopic] = array(CreatableTopic)  # The topics to create
    timeout_ms: int = int32(default=60000)  # How long to wait in milliseconds before timing out the request
    # If true, check that the topics can be created as specified, but don't create anything
    validate_only: bool = boolean("1+")


@dataclass(slots=True)
class CreatableTopicConfigs:
    """Configuration of the topic."""

    name: str = string("5+")  # The configuration name
    value: str | None = string("5+", nullable="5+")  # The configuration value
    read_only: bool = boolean("5+")  # True if the configuration is read-only
    config_source: int = int8("5+", default=-1)  # The configuration source
    is_sensitive: bool = boolean("5+")  # True if this configuration is sensitive


@dataclass(slots=True)
class CreatableTopicResult:
    """Results for each topic we tried to create."""

    name: str = string()  # The topic name
    topic_id: Uuid = uuid("7+")  # The unique topic ID
    error_code: int = int16()  # The error code, or 0 if there was no error
    error_message: str | None = string("1+", nullable="0+")  # The error message, or null if there was no error
    # Optional topic config error returned if configs are not returned in the response
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)  # Number of partitions of the topic
    replication_factor: int = int16("5+", default=-1)  # Replication factor of the topic
    # Configuration of the topic
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+")


@dataclass(slots=True)
class CreateTopicsResponse(Message):
    """CreateTopics response.

    Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline. Version 1 adds a per-topic error
    message string. Version 2 adds the throttle time. Starting in version 3, on quota violation, brokers send out
    responses before throttling. Version 4 makes partitions/replicationFactor optional even when assignments are not
    present (KIP-464). Version 5 is the first flexible version. Version 5 also returns topic configs in the response
    (KIP-525). Version 6 is identical to version 5 but may return a THROTTLING_QUOTA_EXCEEDED error in the response
    if the topics creation is throttled (KIP-599). Version 7 returns the topic ID of the newly created topic if
    creation is successful.
    """

    API_KEY = ApiKey.CREATE_TOPICS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 7, 5

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)  # Results for each topic we tried to create
