"""WriteTxnMarkers (key 27): the coordinator has the leaders of a transaction's partitions end it in their logs."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class WritableTxnMarkerTopic:
    """A topic, and which of its partitions get the marker."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@dataclass(slots=True)
class WritableTxnMarker:
    """How one transaction ended."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()  # True: commit
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()  # leader epoch of the coordinator's partition of __transaction_state
    transaction_version: int = int8("2+")  # 2: the marker's epoch is above that of the transaction's records (KIP-1228)


@dataclass(slots=True)
class WriteTxnMarkersRequest(Message):
    """Write markers of many transactions. v0 went with Kafka 4.0."""

    API_KEY = ApiKey.WRITE_TXN_MARKERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 1

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@dataclass(slots=True)
class WritableTxnMarkerPartitionResult:
    """Whether one partition has the marker now."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class WritableTxnMarkerTopicResult:
    """The outcomes of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@dataclass(slots=True)
class WritableTxnMarkerResult:
    """The outcomes of one transaction, by the producer that ran it."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@dataclass(slots=True)
class WriteTxnMarkersResponse(Message):
    """The outcome by transaction and partition."""

    API_KEY = ApiKey.WRITE_TXN_MARKERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 1

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
