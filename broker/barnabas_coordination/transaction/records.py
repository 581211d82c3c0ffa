"""The records of `__transaction_state`, in Kafka's own bytes, so that Kafka's tools can read ours and we theirs.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: decode(encode(record)) == record but for what the version lacks; bytes that have another layout raise CorruptRecord,
            nothing else.
Read next:  shard.py, which replays these.

Key (big endian): int16 version 0, then string transactional id (int16 length + utf-8).
Value: null = tombstone (the id expired). Otherwise int16 version 0 or 1, then
    int64 producer id, int16 producer epoch, int32 time-out ms, int8 status, partitions, int64 last update ms, int64 start ms (-1)
    partitions: null while the status is EMPTY, else an array of: string topic, array of int32
Version 1 is flexible (KIP-482: compact strings and arrays, tagged fields): tag 0 previous producer id (int64), 1 next producer id
(int64), 2 the client's transaction version (int16), each left out at its default -1, -1, 0; other tags are skipped.
Status 8, PREPARED, is ours: Kafka's tools stop at it. It is written from barnabas.two.phase.version 1 on, which never goes back.
Written: version 1 once the cluster's transaction.version is 1 or more, else 0. The last producer epoch is in neither.
A crash may leave nothing here that the batch's CRC does not catch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas_coordination.errors import CorruptRecord
from barnabas_coordination.record_bytes import number_of, pack, unpack
from barnabas_coordination.transaction.state import NO_PRODUCER_ID, TransactionState, TransactionStatus
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.schema import NEVER_FLEXIBLE, Message, array, int8, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass

KEY_VERSION: Final = 0
FLEXIBLE_VALUE: Final = 1


class TransactionRecord(NamedTuple):
    """The state of a transactional id; None: it is forgotten."""

    transactional_id: str
    state: TransactionState | None


@dataclass(slots=True)
class _TransactionLogKey(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, NEVER_FLEXIBLE

    transactional_id: str = string()


@dataclass(slots=True)
class _PartitionsSchema:
    topic: str = string()
    partition_ids: list[int] = array(int32)


@dataclass(slots=True)
class _TransactionLogValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=NO_PRODUCER_ID, tag=0)
    next_producer_id: int = int64("1+", default=NO_PRODUCER_ID, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[_PartitionsSchema] | None = array(_PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


def encode(record: TransactionRecord, *, value_version: int) -> tuple[bytes, bytes | None]:
    """Record -> key and value bytes. Raises KafkaError INVALID_REQUEST for a string longer than 32,767 bytes."""
    key = pack(_TransactionLogKey(record.transactional_id), KEY_VERSION)
    return key, None if record.state is None else pack(_to_message(record.state), value_version)


def _to_message(state: TransactionState) -> _TransactionLogValue:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(state.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return _TransactionLogValue(
        producer_id=state.producer_id,
        previous_producer_id=state.previous_producer_id,
        next_producer_id=state.next_producer_id,
        producer_epoch=state.producer_epoch,
        transaction_timeout_ms=state.timeout_ms,
        transaction_status=state.status,
        transaction_partitions=None
        if state.status is TransactionStatus.EMPTY
        else [_PartitionsSchema(topic, partitions) for topic, partitions in by_topic.items()],
        transaction_last_update_timestamp_ms=state.update_ms,
        transaction_start_timestamp_ms=state.start_ms,
        client_transaction_version=state.client_version,
    )


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Key and value -> record; None for a key of a later version. Raises CorruptRecord."""
    if number_of(key) != KEY_VERSION:
        return None
    transactional_id = unpack(_TransactionLogKey, key).transactional_id
    try:
        return TransactionRecord(transactional_id, None if value is None else _to_state(value))
    except ValueError as error:
        raise CorruptRecord(str(error)) from error


def _to_state(data: bytes) -> TransactionState:
    value = unpack(_TransactionLogValue, data)
    return TransactionState(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        status=TransactionStatus(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
