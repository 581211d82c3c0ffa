"""The records of `__share_group_state`, in Kafka's own bytes, so that Kafka's tools can read ours and we theirs.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: decode(encode(record)) == record, but for a state's count of updates, which a snapshot resets; bytes that
            have another layout raise CorruptRecord, nothing else.
Read next:  state.py (the rules), shard.py, which replays these.

Key (big endian): int16 type, 0 snapshot or 1 update, then string group id (int16 length + utf-8), 16 bytes topic id, int32 partition.
Value: null under a snapshot's key = tombstone (the state is forgotten). Otherwise int16 version 0, flexible (KIP-482), then
    snapshot: int32 snapshot epoch, int32 state epoch, int32 leader epoch, int64 start offset (-1: not decided), int64 create time ms,
              int64 write time ms, array of batches; tag 0 int32 count of complete deliveries (-1)
    update:   int32 snapshot epoch, int32 leader epoch (-1: as it was), int64 start offset (-1: as it was), array of batches; tag 0 as above
    batch:    int64 first offset, int64 last offset, int8 state, int16 deliveries; tag 10,000 int64 due time ms (0)
A tag is left out at its default. Tag 10,000 is ours, and Kafka's readers skip it; other tags are skipped here.
A crash may leave nothing here that the batch's CRC does not catch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from barnabas_coordination.errors import CorruptRecord
from barnabas_coordination.record_bytes import number_of, pack, unpack
from barnabas_coordination.share_state.messages import NO_COUNT, DeliveryState, ShareKey, StateBatch
from barnabas_coordination.share_state.state import KeptState, ShareRecord, ShareSnapshot, ShareUpdate
from barnabas_wire.kafka.ids import Epoch, Offset, Uuid
from barnabas_wire.kafka.messages.read_share_group_state import StateBatch as StateBatchMessage
from barnabas_wire.kafka.schema import NEVER_FLEXIBLE, Message, array, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass

SNAPSHOT: Final = 0
UPDATE: Final = 1
KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0
_STATES: Final = {state.value: state for state in DeliveryState}


@dataclass(slots=True)
class _Key(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, NEVER_FLEXIBLE

    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


@dataclass(slots=True)
class _SnapshotValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=NO_COUNT, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatchMessage] = array(StateBatchMessage)


@dataclass(slots=True)
class _UpdateValue(Message):
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=NO_COUNT, tag=0)
    state_batches: list[StateBatchMessage] = array(StateBatchMessage)


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Record -> key and value bytes. Raises KafkaError INVALID_REQUEST for what does not fit its field."""
    if isinstance(record, ShareUpdate):
        update = _UpdateValue(
            snapshot_epoch=record.snapshot_epoch,
            leader_epoch=record.leader_epoch,
            start_offset=record.start_offset,
            delivery_complete_count=record.complete_count,
            state_batches=to_messages(record.batches),
        )
        return pack(_Key(*record.key), KEY_VERSION, prefix=UPDATE), pack(update, VALUE_VERSION)
    key = pack(_Key(*record.key), KEY_VERSION, prefix=SNAPSHOT)
    state = record.state
    if state is None:
        return key, None
    snapshot = _SnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=to_messages(state.batches),
    )
    return key, pack(snapshot, VALUE_VERSION)


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """Key and value bytes -> record; None for a type of record that this version does not know. Raises CorruptRecord."""
    kind = number_of(key)
    if kind not in (SNAPSHOT, UPDATE):
        return None
    named = unpack(_Key, key, version=KEY_VERSION)
    share_key = ShareKey(named.group_id, named.topic_id, named.partition)
    if value is None:
        # Kafka writes none under an update's key; where one is, the snapshot before it stays.
        return ShareSnapshot(share_key, None) if kind == SNAPSHOT else None
    try:
        if kind == UPDATE:
            update = unpack(_UpdateValue, value)
            return ShareUpdate(
                share_key,
                update.snapshot_epoch,
                Epoch(update.leader_epoch),
                Offset(update.start_offset),
                update.delivery_complete_count,
                from_messages(update.state_batches),
            )
        snapshot = unpack(_SnapshotValue, value)
        state = KeptState(
            snapshot_epoch=snapshot.snapshot_epoch,
            state_epoch=Epoch(snapshot.state_epoch),
            leader_epoch=Epoch(snapshot.leader_epoch),
            start_offset=Offset(snapshot.start_offset),
            complete_count=snapshot.delivery_complete_count,
            created_ms=snapshot.create_timestamp,
            written_ms=snapshot.write_timestamp,
            batches=from_messages(snapshot.state_batches),
        )
        return ShareSnapshot(share_key, state)
    except ValueError as error:
        raise CorruptRecord(str(error)) from error


def to_messages(batches: Iterable[StateBatch]) -> list[StateBatchMessage]:
    """Batches as the wire and the log have them."""
    return [StateBatchMessage(*batch) for batch in batches]


def from_messages(messages: Iterable[Any]) -> tuple[StateBatch, ...]:
    """The same back, with one call for each: there may be tens of thousands. Raises ValueError for a state that is not known."""
    try:
        return tuple(
            [
                StateBatch(
                    message.first_offset,
                    message.last_offset,
                    _STATES[message.delivery_state],
                    message.delivery_count,
                    message.due_ms,
                )
                for message in messages
            ]
        )
    except KeyError as error:
        raise ValueError(f"{error} is no state of an offset that this version knows") from None
