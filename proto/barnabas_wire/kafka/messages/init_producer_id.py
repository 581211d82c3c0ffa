"""InitProducerId (key 22): a producer id and epoch for idempotence.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, boolean, int16, int32, int64, string


@dataclass(slots=True)
class InitProducerIdRequest(Message):
    """InitProducerId request.

    Version 1 is the same as version 0. Version 2 is the first flexible version. Version 3 adds ProducerId and
    ProducerEpoch, allowing producers to try to resume after an INVALID_PRODUCER_EPOCH error Version 4 adds the
    support for new error code PRODUCER_FENCED. Version 5 adds support for new error code TRANSACTION_ABORTABLE
    (KIP-890). Version 6 adds support for 2PC (KIP-939).
    """

    API_KEY = ApiKey.INIT_PRODUCER_ID
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 2

    # The transactional id, or null if the producer is not transactional
    transactional_id: str | None = string(nullable="0+")
    # The time in ms to wait before aborting idle transactions sent by this producer. This is only relevant if a
    # TransactionalId has been defined
    transaction_timeout_ms: int = int32()
    # The producer id. This is used to disambiguate requests if a transactional id is reused following its expiration
    producer_id: int = int64("3+", default=-1)
    # The producer's current epoch. This will be checked against the producer epoch on the broker, and the request
    # will return an error if they do not match
    producer_epoch: int = int16("3+", default=-1)
    # True if the client wants to enable two-phase commit (2PC) protocol for transactions
    enable2_pc: bool = boolean("6+")
    # True if the client wants to keep the currently ongoing transaction instead of aborting it
    keep_prepared_txn: bool = boolean("6+")


@dataclass(slots=True)
class InitProducerIdResponse(Message):
    """InitProducerId response.

    Starting in version 1, on quota violation, brokers send out responses before throttling. Version 2 is the first
    flexible version. Version 3 is the same as version 2. Version 4 adds the support for new error code
    PRODUCER_FENCED. Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890). Version 6 adds
    support for 2PC (KIP-939).
    """

    API_KEY = ApiKey.INIT_PRODUCER_ID
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 2

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The error code, or 0 if there was no error
    producer_id: int = int64(default=-1)  # The current producer id
    producer_epoch: int = int16()  # The current epoch associated with the producer id
    # The producer id for ongoing transaction when KeepPreparedTxn is used, -1 if there is no transaction ongoing
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    # The epoch associated with the producer id for ongoing transaction when KeepPreparedTxn is used, -1 if there is
    # no transaction ongoing
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
