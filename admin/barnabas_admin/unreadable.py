"""What a reader sticks at: the first batch from an offset on whose records nobody can read, and why.

May touch:  barnabas_wire.client.     Must not touch: printing, groups, the log.
Invariants: a batch is called unreadable only where its whole bytes are here and prove it; nothing is read beyond LOOK_BYTES_MAX.
Read next:  barnabas_wire/records/inspection.py; commands/group_skip.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import MAGIC, BatchHeader, CorruptBatch, crc_is_valid, iterate_batches
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.inspection import inspect_batch

LOOK_BYTES_MAX = 8 * 1024 * 1024
"""How far behind an offset an unreadable batch is looked for."""
SECTION_BYTES_MAX = 64 * 1024 * 1024
"""Largest records section that a batch may decompress to."""


class Unreadable(NamedTuple):
    """A batch and what is wrong with it."""

    header: BatchHeader
    reason: str

    def as_fields(self) -> dict[str, Any]:
        """For people and for JSON."""
        header = self.header
        codec = header.attributes & 0x07
        return {
            "first_offset": header.base_offset,
            "last_offset": header.last_offset,
            "next_offset": header.next_offset,
            "size_bytes": header.size_bytes,
            "record_count": header.record_count,
            "codec": CompressionType(codec).name.lower() if codec <= max(CompressionType) else str(codec),
            "attributes": header.attributes,
            "leader_epoch": header.partition_leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "base_timestamp_ms": header.base_timestamp_ms,
            "max_timestamp_ms": header.max_timestamp_ms,
            "crc": header.crc,
            "reason": self.reason,
        }


async def first_unreadable(client: ClusterClient, partition: TopicPartition, offset: int) -> Unreadable | None:
    """The first unreadable batch that ends behind `offset`, within LOOK_BYTES_MAX; None where there is none.

    Raises KafkaError, OFFSET_OUT_OF_RANGE among them; OSError.
    """
    looked = 0
    while looked < LOOK_BYTES_MAX:
        fetched = await client.fetch(partition, offset, wait_ms_max=0)
        following = offset
        for header, batch in _whole_batches(bytes(fetched.records)):
            following = header.next_offset
            reason = _why_unreadable(header, batch) if following > offset else None
            if reason is not None:
                return Unreadable(header, reason)
            looked += len(batch)
        if following <= offset:
            return None
        offset = following
    return None


def _whole_batches(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    for position, header in iterate_batches(data):
        yield header, data[position : position + header.size_bytes]


def _why_unreadable(header: BatchHeader, batch: bytes) -> str | None:
    if header.magic != MAGIC:
        return f"its format v{header.magic} does not exist"
    if not crc_is_valid(batch, 0, header):
        return "its checksum is wrong"
    try:
        inspect_batch(batch, header, bytes_max=SECTION_BYTES_MAX)
    except (KafkaError, CorruptBatch) as error:
        return error.message
    return None
