"""EndTxn (key 26): commit or abort a transaction."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, boolean, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class EndTxnRequest(Message):
    """End the ongoing transaction. From v5 on the producer continues with the id and epoch of the answer (KIP-890)."""

    API_KEY = ApiKey.END_TXN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()  # False: abort


@dataclass(slots=True)
class EndTxnResponse(Message):
    """The outcome is decided; the markers follow. Newer errors: PRODUCER_FENCED in v2, TRANSACTION_ABORTABLE in v4."""

    API_KEY = ApiKey.END_TXN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)  # another one where the epochs of the former are used up
    producer_epoch: int = int16("5+", default=-1)
