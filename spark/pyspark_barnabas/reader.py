"""What runs in a Spark task: fetch one offset range from the partition's leader and yield it as Arrow.

May touch:  the blocking wire client (plain sockets), the decoder.   Must not touch: gRPC, Spark's driver.
Invariants: a range is read whole or the task fails; offsets that hold no record (control batches) are passed over; what
    is missing below the log's start is data loss, and failOnDataLoss decides.
Read next:  decoder.py.

Not obvious: pyspark imports this after fork, and workers live on from task to task, so connections are kept per process id
and never on the reader, which Spark pickles.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from pyspark_barnabas.offsets import Offsets, SourcePartition
from pyspark_barnabas.options import EARLIEST, SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FETCH_BYTES = 8 * 1024 * 1024
"""Bytes of one fetch: some 64 k rows of 100 bytes, so that one fetch makes about one Arrow batch."""
FETCH_WAIT_MS = 500
"""How long a leader may hold a fetch for records that must be there."""


class DataLossError(RuntimeError):
    """Offsets that the query was to read are gone."""


class Range(Protocol):
    """Offsets start … end − 1 of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class SourceClient:
    """The cluster as the source sees it: partitions, offsets, records."""

    def __init__(self, bootstrap_servers: Sequence[str]) -> None:
        self._cluster = BlockingCluster(bootstrap_servers, client_id="pyspark-barnabas")

    def partitions(self, topics: Sequence[str]) -> list[SourcePartition]:
        """All partitions of the topics; raises KafkaError UNKNOWN_TOPIC_OR_PARTITION that names the one missing."""
        found = self._cluster.partitions(topics)
        return [SourcePartition(topic, index) for topic in topics for index in sorted(found[topic])]

    def list_offsets(self, wanted: Mapping[SourcePartition, int]) -> Offsets:
        """Offsets for sentinels (-1 latest, -2 earliest), asked of each leader."""
        found = self._cluster.list_offsets({TopicPartition(*key): spec for key, spec in wanted.items()})
        return {key: found[TopicPartition(*key)] for key in wanted}

    def fetch(self, partition: SourcePartition, offset: int) -> memoryview:
        """Whole batches from the one that holds `offset`; empty when the wait ran out."""
        fetched = self._cluster.fetch(
            TopicPartition(*partition), offset, bytes_max=FETCH_BYTES, wait_ms_max=FETCH_WAIT_MS
        )
        return memoryview(fetched.records)


_clients: dict[tuple[int, tuple[str, ...]], SourceClient] = {}
"""Per process and cluster: a forked child must not share its parent's sockets."""


def connected(options: SourceOptions) -> SourceClient:
    """This process's client of the cluster; connections are made at first use."""
    key = (os.getpid(), options.bootstrap_servers)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = SourceClient(options.bootstrap_servers)
    return client


def read_range(wanted: Range, options: SourceOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield every record of the range.

    Raises DataLossError when part of it is gone and failOnDataLoss is true, KafkaError REQUEST_TIMED_OUT when nothing came
    within kafkaConsumer.pollTimeoutMs.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from pyspark_barnabas.decoder import RecordDecoder

    client = connected(options)
    part = SourcePartition(wanted.topic, wanted.partition)
    decoder = RecordDecoder(
        topic=part.topic,
        partition=part.partition,
        schema=to_arrow_schema(schema, timezone="UTC", prefers_large_types=False),
    )
    at = wanted.start
    silent_since = time.monotonic()
    while at < wanted.end:
        try:
            records = client.fetch(part, at)
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            earliest = client.list_offsets({part: EARLIEST})[part]
            if options.is_data_loss_fatal or earliest <= at:
                raise DataLossError(
                    f"{part} was to be read from offset {at} to {wanted.end}, but its log begins at {earliest}"
                    + (
                        ": retention removed the rest. Set failOnDataLoss=false to go on"
                        if earliest > at
                        else " and ends before"
                    )
                ) from error
            at = min(earliest, wanted.end)
            continue
        decoded = decoder.decode(records, start=at, end=wanted.end)
        yield from decoded.batches
        if decoded.next_offset > at:
            at = decoded.next_offset
            silent_since = time.monotonic()
        elif (time.monotonic() - silent_since) * 1000 > options.poll_timeout_ms:
            raise KafkaError.of(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{part} gave nothing at offset {at} (up to {wanted.end}) for {options.poll_timeout_ms} ms",
            )
