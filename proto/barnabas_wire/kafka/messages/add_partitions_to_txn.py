"""AddPartitionsToTxn (key 24): partitions that a transaction is about to write to, or that it is asked whether it has."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class AddPartitionsToTxnTopic:
    """A topic, and which of its partitions are meant."""

    name: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class AddPartitionsToTxnTransaction:
    """One transaction, by its transactional id and by the producer that runs it."""

    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")  # only say whether the partitions are in the transaction; add none (KIP-890)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


@dataclass(slots=True)
class AddPartitionsToTxnRequest(Message):
    """Add partitions to transactions: clients send one up to v3, brokers many from v4 on (KIP-890)."""

    API_KEY = ApiKey.ADD_PARTITIONS_TO_TXN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult:
    """Whether one partition is in the transaction now."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult:
    """The outcomes of one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@dataclass(slots=True)
class AddPartitionsToTxnResult:
    """The outcomes of one transaction."""

    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")


@dataclass(slots=True)
class AddPartitionsToTxnResponse(Message):
    """The outcome by partition. Newer errors: PRODUCER_FENCED in v2, TRANSACTION_ABORTABLE in v5 (KIP-890)."""

    API_KEY = ApiKey.ADD_PARTITIONS_TO_TXN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    throttle_time_ms: int = int32()
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")
