"""CreateTopics (key 19): create topics."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class CreatableReplicaAssignment:
    """Which brokers shall hold one partition, chosen by hand."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@dataclass(slots=True)
class CreatableTopicConfig:
    """A config the new topic starts with."""

    name: str = string()
    value: str | None = string(nullable="0+")


@dataclass(slots=True)
class CreatableTopic:
    """A topic to make, its replicas placed by hand or by the cluster."""

    name: str = string()
    # Both -1 where assignments are given; without them, -1 takes the cluster's default (v4+, KIP-464)
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)  # empty: the cluster places
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@dataclass(slots=True)
class CreateTopicsRequest(Message):
    """Ask for new topics. From v6 the sender must expect THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

    API_KEY = ApiKey.CREATE_TOPICS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 7, 5

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")  # a dry run: nothing is created


@dataclass(slots=True)
class CreatableTopicConfigs:
    """A config as the new topic has it, set or inherited."""

    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)  # numbered as in DescribeConfigs
    is_sensitive: bool = boolean("5+")


@dataclass(slots=True)
class CreatableTopicResult:
    """What became of one topic; v5 also reports its shape and configs (KIP-525)."""

    name: str = string()
    topic_id: Uuid = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", default=None)
    topic_config_error_code: int = int16("5+", tag=0)  # why the configs are left out, where they are
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+")


@dataclass(slots=True)
class CreateTopicsResponse(Message):
    """How each topic fared. From v3 a broker over quota answers at once and throttles afterwards."""

    API_KEY = ApiKey.CREATE_TOPICS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 7, 5

    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
