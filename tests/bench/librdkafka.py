"""An unmodified client as a process of its own: confluent-kafka produces or consumes and prints what it saw as JSON.

May touch:  the Kafka listeners.      Must not touch: broker code.
Invariants: a produce run fails when one record is not acknowledged; a consume run when one is missing.
Read next:  __main__.py.

    python -m tests.bench.librdkafka produce BOOTSTRAP TOPIC RECORD_BYTES BATCH_BYTES RECORDS
    python -m tests.bench.librdkafka consume BOOTSTRAP TOPIC RECORDS

Latency is from produce() to the delivery report, so at full speed it is mostly the client's own queue.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

SAMPLE_EVERY = 50
"""One record in so many has its latency taken: a callback with a clock per record would halve the client's speed."""


def produce(bootstrap: str, topic: str, record_bytes: int, batch_bytes: int, records: int) -> dict[str, Any]:
    """acks=all to all partitions.

    Not idempotent: librdkafka 2.16 then keeps one request per partition in flight (seen in its debug log), and a run with
    16 KiB batches would measure its round trips.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": False,
            "batch.size": batch_bytes,
            "batch.num.messages": 1_000_000,
            "linger.ms": 5 if batch_bytes <= 65536 else 50,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "sticky.partitioning.linger.ms": 0,
            # On loopback a 16 KiB request is smaller than one segment: Nagle would wait for an ACK before each.
            "socket.nagle.disable": True,
        }
    )
    producer.list_topics(topic, timeout=20)
    value = os.urandom(record_bytes)
    latencies: list[float] = []
    failures: list[str] = []

    def failed(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    def reported(sent: float, error: KafkaError | None, message: Message) -> None:
        latencies.append(time.perf_counter() - sent)
        failed(error, message)

    started = time.perf_counter()
    for index in range(records):
        if index % SAMPLE_EVERY == 0:
            callback: Callable[..., None] = partial(reported, time.perf_counter())
        else:
            callback = failed
        while True:
            try:
                producer.produce(topic, value, on_delivery=callback)
                break
            except BufferError:
                producer.poll(0.05)
        if index % 1000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    seconds = time.perf_counter() - started
    if failures or left:
        raise SystemExit(f"{len(failures)} records failed ({failures[:3]}), {left} not reported")
    return {"seconds": seconds, "records": records, "bytes": records * record_bytes, "latencies_s": latencies}


def consume(bootstrap: str, topic: str, records: int) -> dict[str, Any]:
    """Every partition from its start, without a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,  # by default a client whose queue is full pauses for a second
        }
    )
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    seen = 0
    seen_bytes = 0
    started = time.perf_counter()
    while seen < records:
        messages = consumer.consume(min(10_000, records - seen), 10)
        if not messages:
            raise SystemExit(f"only {seen} of {records} records came")
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            seen_bytes += len(message.value())
        seen += len(messages)
    seconds = time.perf_counter() - started
    consumer.close()
    return {"seconds": seconds, "records": seen, "bytes": seen_bytes, "latencies_s": []}


def main(arguments: list[str]) -> None:
    """Run and print."""
    if arguments[0] == "produce":
        result = produce(arguments[1], arguments[2], int(arguments[3]), int(arguments[4]), int(arguments[5]))
    else:
        result = consume(arguments[1], arguments[2], int(arguments[3]))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result["client_cpu_s"] = usage.ru_utime + usage.ru_stime
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
