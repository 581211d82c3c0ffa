"""InitProducerId (key 22): a producer id and epoch for idempotence."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, boolean, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class InitProducerIdRequest(Message):
    """Ask for a producer id; from v3 on also to continue with one after INVALID_PRODUCER_EPOCH.

    v6 is for two-phase commit (KIP-939).
    """

    API_KEY = ApiKey.INIT_PRODUCER_ID
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 2

    transactional_id: str | None = string(nullable="0+")  # null: idempotence without transactions
    transaction_timeout_ms: int = int32()  # then the coordinator aborts; no meaning without a transactional id
    # What the producer holds so far, -1 for none. The id shows whether the transactional id expired and was taken again
    # meanwhile; an epoch other than the broker's is an error.
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")  # two-phase commit
    keep_prepared_txn: bool = boolean("6+")  # leave an open transaction be; False: abort it


@dataclass(slots=True)
class InitProducerIdResponse(Message):
    """The id and epoch to use. v4 may say PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE (KIP-890).

    From v1 a broker over quota answers at once and throttles afterwards.
    """

    API_KEY = ApiKey.INIT_PRODUCER_ID
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 2

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    # Those of the transaction that keep_prepared_txn left open, -1 where there was none
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
