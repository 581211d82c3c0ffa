"""Batches of the metadata log: made from proposals, checked when fetched, opened when committed.

May touch:  its arguments.            Must not touch: asyncio, files, what a record means.
Invariants: the metadata log holds Kafka v2 batches and nothing else; a batch is one proposal, atomic; a fetched batch is
            believed only after its checksum.
Read next:  node.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas_quorum.driver.control_batches import control_batch, voter_sets_in, voters_records
from barnabas_quorum.raft.journal import StoredBatch
from barnabas_quorum.raft.messages import CommittedBatch, EpochStart, FetchReply, LeaderChange, Voters
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.records.batch import (
    HEADER_BYTES,
    MAGIC,
    CorruptBatch,
    Record,
    build_batch,
    crc_is_valid,
    iterate_batches,
    iterate_records,
    read_header,
)
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.control import (
    ControlRecordType,
    LeaderChangeMessage,
    Voter,
    encode_control_key,
    encode_leader_change,
)

logger = logging.getLogger(__name__)

UNOPENED = b"\x00"
"""Stands for a record of a batch that cannot be opened; no record begins like this (field number 0)."""


def data_batch(
    records: Sequence[bytes],
    *,
    base_offset: Offset,
    epoch: Epoch,
    timestamp_ms: int,
    compression: CompressionType = CompressionType.NONE,
) -> StoredBatch:
    """One batch of metadata records, values without keys. Raises ValueError when there are none."""
    data = build_batch(
        [Record(base_offset + index, timestamp_ms, None, value) for index, value in enumerate(records)],
        leader_epoch=epoch,
        compression=compression,
    )
    return StoredBatch(base_offset, Offset(base_offset + len(records)), epoch, data)


def leader_change_batch(change: LeaderChange, *, base_offset: Offset, epoch: Epoch, timestamp_ms: int) -> StoredBatch:
    """The control batch that opens an epoch."""
    value = encode_leader_change(
        LeaderChangeMessage(
            leader_id=change.leader.id,
            voters=[Voter(key.id) for key in change.voters],
            granting_voters=[Voter(key.id) for key in change.granting],
        )
    )
    record = Record(base_offset, timestamp_ms, encode_control_key(ControlRecordType.LEADER_CHANGE), value)
    data = build_batch([record], leader_epoch=epoch, is_control=True)
    return StoredBatch(base_offset, Offset(base_offset + 1), epoch, data)


def voters_batch(change: Voters, *, base_offset: Offset, epoch: Epoch, timestamp_ms: int) -> StoredBatch:
    """The control batch that changes the voter set."""
    records = voters_records(change.voter_set, writes_version=change.writes_version)
    data = control_batch(records, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)
    return StoredBatch(base_offset, Offset(base_offset + len(records)), epoch, data)


def split_batches(data: bytes) -> list[StoredBatch]:
    """Whole batches with their places. Raises CorruptBatch for a wrong checksum or a batch that is cut off."""
    batches: list[StoredBatch] = []
    end = 0
    for position, header in iterate_batches(data):
        end = position + header.size_bytes
        if header.magic != MAGIC or header.last_offset_delta < 0 or not crc_is_valid(data, position, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} is damaged")
        if batches and header.base_offset != batches[-1].end_offset:
            raise CorruptBatch(
                f"a batch at offset {header.base_offset} follows one that ends at {batches[-1].end_offset}"
            )
        batches.append(
            StoredBatch(header.base_offset, header.next_offset, header.partition_leader_epoch, data[position:end])
        )
    if end != len(data):
        raise CorruptBatch(f"{len(data) - end} bytes are left after the last whole batch")
    return batches


def take_fetched(reply: FetchReply) -> None:
    """Replace the bytes of a fetch reply by batches, and say what they hold.

    Damaged bytes leave a reply that continues no log, so that the core refuses it and fetches again.
    """
    data = reply.payload
    reply.payload = None
    if not data:
        return
    try:
        batches = split_batches(data)
        voter_sets = [
            found for batch in batches if read_header(batch.data).is_control for found in voter_sets_in(batch.data)
        ]
    except (CorruptBatch, MalformedMessage) as error:
        logger.warning(
            "the leader %s sent damaged records from offset %d on: %s", reply.source, reply.base_offset, error
        )
        reply.end_offset = Offset(reply.base_offset + 1)
        return
    reply.payload = batches
    reply.voter_sets = tuple(voter_sets)
    reply.end_offset = batches[-1].end_offset
    reply.epochs = tuple(EpochStart(batch.epoch, batch.base_offset) for batch in batches)


def open_batch(batch: StoredBatch) -> CommittedBatch | None:
    """The records of a data batch; None for a control batch.

    One that came as it was written and cannot be opened all the same is a fault of whoever wrote it, equal on all nodes: its
    records are bad ones, which a sign-off passes over. Raises CorruptBatch, which ends the node, when the disk gave back other
    bytes than were written: opening the log again cuts it there, and the rest comes from the leader (raft/damage.py).
    """
    header = read_header(batch.data)
    if not crc_is_valid(batch.data, 0, header):
        raise CorruptBatch(
            f"the metadata log of this node is damaged at offset {header.base_offset}: the batch there has a wrong checksum. "
            "Start the node again: it cuts its log there and fetches what is missing. Should it come back, replace the disk"
        )
    if header.is_control:
        return None
    count = header.next_offset - header.base_offset
    try:
        records = tuple(record.value or b"" for record in iterate_records(batch.data))
        fault = "" if len(records) == count else f"it holds {len(records)} records and says {count}"
    except KafkaError as error:
        fault = str(error)
    if fault:
        logger.error("the metadata batch at offset %d cannot be opened: %s", header.base_offset, fault)
        if count > len(batch.data):
            raise CorruptBatch(
                f"the metadata batch at offset {header.base_offset} says it holds {count} records: {fault}"
            )
        # The whole batch as its first record, so that a digest names it; no decoder takes either for a record.
        records = (UNOPENED + batch.data[HEADER_BYTES:], *[UNOPENED] * (count - 1))
    return CommittedBatch(batch.base_offset, batch.epoch, header.max_timestamp_ms, records)
