"""Requests made once and sent many times: the client's CPU must not hide the broker's.

May touch:  barnabas_wire.            Must not touch: sockets.
Invariants: the batches are what a producer sends: magic 2, valid CRC, no producer id, distinct random values.
Read next:  blaster.py.
"""

from __future__ import annotations

import random
import struct
import time
from typing import NamedTuple

from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition, encode_fetch_request
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.kafka.schema import encode_request
from barnabas_wire.records.batch import Record, build_batch
from barnabas_wire.records.compression import CompressionType

PRODUCE_VERSION = 10
FETCH_VERSION = 12
CLIENT_ID = b"bench"
KIB = 1024
MIB = 1024 * 1024


class Load(NamedTuple):
    """Size of a record's value and about the size of a batch, in bytes."""

    record_bytes: int
    batch_bytes: int

    @property
    def name(self) -> str:
        """As the table shows it."""
        record = f"{self.record_bytes} B" if self.record_bytes < KIB else f"{self.record_bytes // KIB} KiB"
        batch = f"{self.batch_bytes // KIB} KiB" if self.batch_bytes < MIB else f"{self.batch_bytes // MIB} MiB"
        return f"{record} in {batch}"


class ProduceFrame(NamedTuple):
    """A whole produce request."""

    data: bytes
    batch_start: int
    """Where the batch begins in `data`."""
    batch_bytes: int
    record_count: int
    value_bytes: int
    """Sum of the values: what MB/s counts."""


def make_batch(
    load: Load, *, seed: int = 1, compression: CompressionType = CompressionType.NONE
) -> tuple[bytes, int, int]:
    """(batch, records, value bytes) of about load.batch_bytes at most, before compression.

    Values are random, so that nothing compresses them; where they are to be compressed, their second half is zeros.
    """
    random_ = random.Random(seed)
    now_ms = time.time_ns() // 1_000_000
    overhead = 12  # lengths, deltas, attributes and header count of a record, about
    count = max(1, (load.batch_bytes - 61) // (load.record_bytes + overhead))
    zeros = bytes(load.record_bytes // 2 if compression else 0)
    values = (random_.randbytes(load.record_bytes - len(zeros)) + zeros for _ in range(count))
    records = [Record(Offset(index), now_ms, None, value, ()) for index, value in enumerate(values)]
    return build_batch(records, leader_epoch=Epoch(-1), compression=compression), count, count * load.record_bytes


def make_produce(
    load: Load, topic: str, partition: int, *, acks: int, compression: CompressionType = CompressionType.NONE
) -> ProduceFrame:
    """One request with one batch."""
    batch, count, value_bytes = make_batch(load, compression=compression)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        ],
    )
    out = bytearray(_head(ApiKey.PRODUCE, PRODUCE_VERSION, 1))
    encode_request(request, PRODUCE_VERSION, out)
    struct.pack_into(">i", out, 0, len(out) - 4)
    data = bytes(out)
    return ProduceFrame(data, data.index(batch), len(batch), count, value_bytes)


def make_fetch(topic: str, partition: int, *, offset: int, max_bytes: int, max_wait_ms: int = 500) -> tuple[bytes, int]:
    """(request, where its int64 fetch offset stands), so that the next request is this one with another offset."""
    marker = 0x1122334455667788
    out = bytearray(_head(ApiKey.FETCH, FETCH_VERSION, 1))
    asked = FetchRequestPartition(topic, partition, fetch_offset=marker, max_bytes=max_bytes)
    encode_fetch_request(out, FETCH_VERSION, [asked], max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes)
    struct.pack_into(">i", out, 0, len(out) - 4)
    position = bytes(out).index(struct.pack(">q", marker))
    struct.pack_into(">q", out, position, offset)
    return bytes(out), position


def _head(api_key: int, version: int, correlation_id: int) -> bytes:
    return struct.pack(">ihhih", 0, api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID + b"\0"
