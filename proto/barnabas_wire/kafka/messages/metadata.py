"""Metadata (key 3): brokers, topics, partitions and their leaders; may create a topic that is asked for.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string, uuid


@dataclass(slots=True)
class MetadataRequestTopic:
    """The topics to fetch metadata for."""

    topic_id: Uuid = uuid("10+")  # The topic id
    name: str | None = string(nullable="10+")  # The topic name


@dataclass(slots=True)
class MetadataRequest(Message):
    """Metadata request."""

    API_KEY = ApiKey.METADATA
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 13, 9

    # The topics to fetch metadata for
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    # If this is true, the broker may auto-create topics that we requested which do not already exist, if it is
    # configured to do so
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")  # Whether to include cluster authorized operations
    include_topic_authorized_operations: bool = boolean("8+")  # Whether to include topic authorized operations


@dataclass(slots=True)
class MetadataResponseBroker:
    """A list of brokers present in the cluster."""

    node_id: int = int32()  # The broker ID
    host: str = string()  # The broker hostname
    port: int = int32()  # The broker port
    # The rack of the broker, or null if it has not been assigned to a rack
    rack: str | None = string("1+", nullable="1+", default=None)


@dataclass(slots=True)
class MetadataResponsePartition:
    """Each partition in the topic."""

    error_code: int = int16()  # The partition error, or 0 if there was no error
    partition_index: int = int32()  # The partition index
    leader_id: int = int32()  # The ID of the leader broker
    leader_epoch: int = int32("7+", default=-1)  # The leader epoch of this partition
    replica_nodes: list[int] = array(int32)  # The set of all nodes that host this partition
    isr_nodes: list[int] = array(int32)  # The set of nodes that are in sync with the leader for this partition
    offline_replicas: list[int] = array(int32, "5+")  # The set of offline replicas of this partition


@dataclass(slots=True)
class MetadataResponseTopic:
    """Each topic in the response."""

    error_code: int = int16()  # The topic error, or 0 if there was no error
    # The topic name. Null for non-existing topics queried by ID. This is never null when ErrorCode is zero. One of
    # Name and TopicId is always populated
    name: str | None = string(nullable="12+")
    # The topic id. Zero for non-existing topics queried by name. This is never zero when ErrorCode is zero. One of
    # Name and TopicId is always populated
    topic_id: Uuid = uuid("10+")
    is_internal: bool = boolean("1+")  # True if the topic is internal
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)  # Each partition in the topic
    # 32-bit bitfield to represent authorized operations for this topic
    topic_authorized_operations: int = int32("8+", default=-2147483648)


@dataclass(slots=True)
class MetadataResponse(Message):
    """Metadata response.

    Version 1 adds fields for the rack of each broker, the controller id, and whether or not the topic is internal.
    Version 2 adds the cluster ID field. Version 3 adds the throttle time. Version 4 is the same as version 3.
    Version 5 adds a per-partition offline_replicas field. This field specifies the list of replicas that are
    offline. Starting in version 6, on quota violation, brokers send out responses before throttling. Version 7 adds
    the leader epoch to the partition metadata. Starting in version 8, brokers can send authorized operations for
    topic and cluster. Version 9 is the first flexible version. Version 10 adds topicId. Version 11 deprecates
    ClusterAuthorizedOperations. This is now exposed by the DescribeCluster API (KIP-700). Version 12 supports
    topicId. Version 13 supports top-level error code in the response.
    """

    API_KEY = ApiKey.METADATA
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 13, 9

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)  # A list of brokers present in the cluster
    # The cluster ID that responding broker belongs to
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)  # The ID of the controller broker
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)  # Each topic in the response
    # 32-bit bitfield to represent authorized operations for this cluster
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+")  # The top-level error code, or 0 if there was no error
