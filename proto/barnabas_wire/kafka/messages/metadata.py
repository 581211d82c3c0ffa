"""Metadata (key 3): brokers, topics, partitions and their leaders; may create a topic that is asked for."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class MetadataRequestTopic:
    """A topic asked about, by name or by id; ids are answered from v12 on, though v10 has the field."""

    topic_id: Uuid = uuid("10+")
    name: str | None = string(nullable="10+")


@dataclass(slots=True)
class MetadataRequest(Message):
    """Ask where topics and brokers are. Since v11 rights on the cluster are asked of DescribeCluster (KIP-700)."""

    API_KEY = ApiKey.METADATA
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 13, 9

    # null asks for every topic, and so does an empty list in v0; from v1 on an empty list asks for none
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)  # the broker's config has to allow it as well
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@dataclass(slots=True)
class MetadataResponseBroker:
    """A live broker and its address."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None)  # null: has none


@dataclass(slots=True)
class MetadataResponsePartition:
    """Who leads a partition and who keeps copies of it."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32)  # every replica, in sync or not
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "5+")


@dataclass(slots=True)
class MetadataResponseTopic:
    """A topic and its partitions, or why there is nothing to report."""

    error_code: int = int16()
    # Both are set where error_code is 0; after an error at least the one it was asked by, the other null or zero.
    name: str | None = string(nullable="12+")
    topic_id: Uuid = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)  # a bit per ACL operation; default: not asked


@dataclass(slots=True)
class MetadataResponse(Message):
    """The cluster as this broker knows it."""

    API_KEY = ApiKey.METADATA
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 13, 9

    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)  # the broker to send admin requests to
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)  # bits as for topics
    error_code: int = int16("13+")  # of the whole answer
