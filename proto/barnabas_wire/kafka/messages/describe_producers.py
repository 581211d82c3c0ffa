"""DescribeProducers (key 61): active producers of partitions (KIP-664)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class TopicRequest:
    """A topic, and which of its partitions are asked about."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@dataclass(slots=True)
class DescribeProducersRequest(Message):
    """Ask the leaders of partitions which producers they remember, to find hanging transactions."""

    API_KEY = ApiKey.DESCRIBE_PRODUCERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    topics: list[TopicRequest] = array(TopicRequest)


@dataclass(slots=True)
class ProducerState:
    """What a partition remembers of one producer."""

    producer_id: int = int64()
    producer_epoch: int = int32()  # int16 in other messages
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)  # ms
    coordinator_epoch: int = int32()  # the transaction coordinator's, from the last marker
    current_txn_start_offset: int = int64(default=-1)  # -1: no transaction open


@dataclass(slots=True)
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)  # may be null beside an error too
    active_producers: list[ProducerState] = array(ProducerState)


@dataclass(slots=True)
class TopicResponse:
    """The answer for one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@dataclass(slots=True)
class DescribeProducersResponse(Message):
    """Producers by topic and partition."""

    API_KEY = ApiKey.DESCRIBE_PRODUCERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
