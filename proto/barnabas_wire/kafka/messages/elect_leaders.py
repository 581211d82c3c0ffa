"""ElectLeaders (key 43): elect preferred or unclean leaders (KIP-183, KIP-460)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class TopicPartitions:
    """A topic, and those of its partitions that want a new leader."""

    topic: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class ElectLeadersRequest(Message):
    """Hold elections for some partitions or all. v0 knows preferred elections only, v1 lets one choose (KIP-460)."""

    API_KEY = ApiKey.ELECT_LEADERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    election_type: int = int8("1+")  # 0: preferred, 1: unclean (any live replica, but only when the ISR has none)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")  # null: every partition
    timeout_ms: int = int32(default=60000)


@dataclass(slots=True)
class PartitionResult:
    """How the election of one partition ended."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class ReplicaElectionResult:
    """The elections of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class ElectLeadersResponse(Message):
    """The outcome by topic and partition. Before v1 there is no error for the request as a whole."""

    API_KEY = ApiKey.ELECT_LEADERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    # Empty when all were asked for by someone not allowed to
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
