"""AddOffsetsToTxn (key 25): a group whose offsets a transaction is about to commit."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class AddOffsetsToTxnRequest(Message):
    """Add the partition of __consumer_offsets that a group belongs to. Clients of transaction.version 2 never send it."""

    API_KEY = ApiKey.ADD_OFFSETS_TO_TXN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 3

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@dataclass(slots=True)
class AddOffsetsToTxnResponse(Message):
    """Whether it was added. Newer errors: PRODUCER_FENCED in v2, TRANSACTION_ABORTABLE in v4 (KIP-890)."""

    API_KEY = ApiKey.ADD_OFFSETS_TO_TXN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 3

    throttle_time_ms: int = int32()
    error_code: int = int16()
