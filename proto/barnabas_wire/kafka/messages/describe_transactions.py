"""DescribeTransactions (key 65): what the coordinator knows of transactional ids (KIP-664)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DescribeTransactionsRequest(Message):
    """Ask about some transactional ids; none gets an empty answer."""

    API_KEY = ApiKey.DESCRIBE_TRANSACTIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    transactional_ids: list[str] = array(string)


@dataclass(slots=True)
class TopicData:
    """A topic's partitions in the transaction; once it is ending, those whose marker is outstanding."""

    topic: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class TransactionState:
    """One transactional id, and the transaction that it runs."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()  # -1: no transaction is open
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@dataclass(slots=True)
class DescribeTransactionsResponse(Message):
    """One entry for each transactional id that was asked about."""

    API_KEY = ApiKey.DESCRIBE_TRANSACTIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
