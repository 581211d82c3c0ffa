"""PrepareTxn (key 10000, our own): a transaction is written whole and waits for its decision.

Kafka's KIP-939 has no such request: there a producer that takes part in two-phase commit is freed of the time-out from its first
record on, and nothing at the broker distinguishes a transaction that is ready from one whose producer died half-way. Here the producer says
when it is ready. Unprepared transactions time out as ever; a prepared one ends by EndTxn alone, with the id and epoch that
prepared it, from whoever has them. ApiVersions offers this from barnabas.two.phase.version 1 on.
"""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class PrepareTxnRequest(Message):
    """Everything that belongs to the open transaction is acknowledged; asked again it is answered again."""

    API_KEY = ApiKey.PREPARE_TXN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()


@dataclass(slots=True)
class PrepareTxnResponse(Message):
    """The state is replicated. INVALID_TXN_STATE: nothing was written in the transaction."""

    API_KEY = ApiKey.PREPARE_TXN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
