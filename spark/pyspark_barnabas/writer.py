"""What runs in a Spark task of a write: Arrow in, batches out to the partitions' leaders, acknowledged before the task ends.

May touch:  the blocking wire client and producer, the encoder.   Must not touch: gRPC, Spark's driver.
Invariants: when `write_rows` returns, every row is acknowledged as kafka.acks says; at once no more is held than a window of rows,
    what it encodes to and kafka.buffer.memory; a producer that failed is never used again.
Read next:  encoder.py, barnabas_wire/client/producer.py.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.client.producer import BlockingProducer, ProducerIdentity, init_producer
from barnabas_wire.client.properties import client_security
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from pyspark_barnabas.in_words import InWords
from pyspark_barnabas.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_SHARE = 2
"""Rows are encoded when they fill a half of kafka.buffer.memory: enough for whole batches of many partitions."""


IDLE_MAX = 4
"""Sinks of one process whose connections stay open between tasks."""


class SinkError(InWords, RuntimeError):
    """A write that the cluster or the rows do not allow, in words."""


class Written(NamedTuple):
    """What a task wrote."""

    records: int
    bytes: int


def write_rows(
    rows: Iterable[pa.RecordBatch], options: SinkOptions, producer: BlockingProducer, cluster: BlockingCluster
) -> Written:
    """Write every row and wait until all are acknowledged. Raises SinkError."""
    try:
        from pyspark_barnabas.encoder import RecordEncoder
    except ImportError as error:
        raise ImportError(
            f"format barnabas encodes in Spark's Python workers, and theirs lacks a library ({error}): "
            "pip install 'barnabas[spark]' there"
        ) from error
    from pyspark_barnabas.reader import spare_the_collector

    spare_the_collector()
    counts: dict[str, int] = {}

    def partition_count(topic: str) -> int:
        if topic not in counts:
            view = cluster.metadata([topic], creates_topics=True)
            counts[topic] = len(view.topics[topic])
        return counts[topic]

    encoder = RecordEncoder(
        topic=options.topic,
        partition_count=partition_count,
        batch_bytes=min(options.batch_bytes, options.request_bytes_max),
        record_bytes_max=options.request_bytes_max,
        compression=options.compression,
        compression_level=options.compression_level,
        ignores_keys=options.ignores_keys,
        sticky_bytes=options.batch_bytes,
        seed=random.randrange(1 << 16),
    )
    records = size = 0
    try:
        for window in _windows(rows, options.buffer_bytes // WINDOW_SHARE):
            columns = _columns(window)
            count = sum(batch.num_rows for batch in window)
            for partition, section in encoder.encode(columns, count, bytes_max=producer.batch_bytes_max):
                producer.send(partition, section)
                size += len(section.payload)
            producer.poll()
            records += count
        producer.flush()
    except (KafkaError, OSError, ValueError) as error:
        raise SinkError(words(error, options)) from error
    return Written(records, size)


def _windows(rows: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[list[pa.RecordBatch]]:
    """Rows in groups of about bytes_max; a batch that is larger comes in pieces."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for whole in rows:
        pieces = max(1, -(-whole.nbytes // max(bytes_max, 1)))
        step = max(1, -(-whole.num_rows // pieces))
        for start in range(0, whole.num_rows, step):
            piece = whole if pieces == 1 else whole.slice(start, step)
            if held and held_bytes + piece.nbytes > bytes_max:
                yield held
                held, held_bytes = [], 0
            held.append(piece)
            held_bytes += piece.nbytes
    if held:
        yield held


def _columns(window: list[pa.RecordBatch]) -> Mapping[str, pa.Array]:
    import pyarrow as pa

    wanted = [name for name in window[0].schema.names if name in COLUMNS]
    if len(window) == 1:
        return {name: window[0].column(name) for name in wanted}
    return {name: pa.concat_arrays([batch.column(name) for batch in window]) for name in wanted}


COLUMNS = ("value", "key", "topic", "partition", "headers")
"""What is written of a row; other columns are left out, as by Spark's Kafka sink."""


def words(error: BaseException, options: SinkOptions) -> str:
    """What went wrong, with the address of the cluster."""
    servers = ",".join(options.bootstrap_servers)
    if isinstance(error, KafkaError):
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return (
                f"{error.message}: there is none at kafka.bootstrap.servers={servers}; create it, or correct its name"
            )
        return f"kafka.bootstrap.servers={servers}: {error.code.name} {error.message}".rstrip()
    if isinstance(error, OSError):
        return f"no broker of kafka.bootstrap.servers={servers} took the records: {str(error) or type(error).__name__}"
    return str(error)


def connect(options: SinkOptions, *, timeout_s: float | None = None) -> BlockingCluster:
    """A client of the cluster; connections are made at first use."""
    return BlockingCluster(
        options.bootstrap_servers,
        client_id=options.client_id,
        timeout_s=options.block_ms_max / 1000 if timeout_s is None else timeout_s,
        security=client_security(dict(options.security)),
    )


_idle: dict[tuple[int, SinkOptions], tuple[BlockingCluster, BlockingProducer]] = {}
"""Per process and options, what the last task left in good order: workers live on, and tasks are many."""


def write_idempotently(rows: Iterable[pa.RecordBatch], options: SinkOptions) -> Written:
    """Write with a producer of this process: each record once as long as the task is not run again. Raises SinkError."""
    key = (os.getpid(), options)
    cluster, producer = _idle.pop(key, (None, None))
    if cluster is None or producer is None:
        cluster = connect(options)
        try:
            identity = init_producer(cluster) if options.is_idempotent else ProducerIdentity()
        except (KafkaError, OSError) as error:
            raise SinkError(words(error, options)) from error
        producer = make_producer(cluster, options, identity)
    try:
        written = write_rows(rows, options, producer, cluster)
    except BaseException:
        producer.close()
        cluster.close()
        raise
    while len(_idle) >= IDLE_MAX:
        for left in _idle.pop(next(iter(_idle))):
            left.close()
    _idle[key] = cluster, producer
    return written


def make_producer(
    cluster: BlockingCluster, options: SinkOptions, identity: ProducerIdentity, transactional_id: str | None = None
) -> BlockingProducer:
    """A producer as the options ask for."""
    return BlockingProducer(
        cluster,
        identity=identity,
        transactional_id=transactional_id,
        acks=options.acks,
        in_flight_max=options.in_flight_max,
        request_bytes_max=options.request_bytes_max,
        buffered_bytes_max=options.buffer_bytes,
        request_timeout_s=options.request_timeout_ms / 1000,
        delivery_timeout_s=options.delivery_timeout_ms / 1000,
    )
