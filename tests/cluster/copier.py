"""`python -m tests.cluster.copier`: read, process, write, with the offsets in the same transaction; for ever, until it is killed.

May touch:  the cluster as its client.        Must not touch: anything else.
Invariants: what it writes and the offsets it read up to become visible together, or neither; after an error it ends, and whoever
            started it starts another with the same transactional id.
Read next:  exactly_once.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

REQUEST_S = 30.0
STUCK_S = REQUEST_S + 5
BATCH = 50
GAVE_UP = 3


def producer_settings(bootstrap: str, transactional_id: str) -> dict[str, Any]:
    """Of a copier's producer."""
    return {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": 10_000,
        "log_level": 0,
    }


def consumer_settings(bootstrap: str, group: str, transactional_id: str) -> dict[str, Any]:
    """Of its consumer."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.instance.id": transactional_id,  # who is started again takes its place, without a rebalance
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "log_level": 0,
    }


@contextmanager
def unless_stuck(transactional_id: str, *, after_s: float = STUCK_S) -> Iterator[None]:
    """End the process, as an operator would, when what is inside takes longer than librdkafka was allowed.

    send_offsets_to_transaction waits for ever, whatever its time limit, where the group's coordinator has left the metadata meanwhile
    (librdkafka #5511 and #5456, open as of 2.16).
    """

    def end() -> None:
        print(f"{transactional_id}: stuck in librdkafka for {after_s:.0f} s", file=sys.stderr, flush=True)
        os._exit(GAVE_UP)

    watch = threading.Timer(after_s, end)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def copy(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    """Raises KafkaException."""
    producer = Producer(producer_settings(bootstrap, transactional_id))
    producer.init_transactions(REQUEST_S)
    consumer = Consumer(consumer_settings(bootstrap, group, transactional_id))
    consumer.subscribe([source])
    while True:
        messages = [each for each in consumer.consume(BATCH, 0.5) if each.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), message.key(), partition=message.partition())
        with unless_stuck(transactional_id):
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), REQUEST_S
            )
        producer.commit_transaction(REQUEST_S)


def main() -> int:
    """GAVE_UP after an error: the transaction is its coordinator's to end."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.copier")
    for name in ("bootstrap", "source", "target", "group", "transactional-id"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    try:
        copy(options.bootstrap, options.source, options.target, options.group, options.transactional_id)
    except KafkaException as error:
        print(f"{options.transactional_id}: {error}", file=sys.stderr, flush=True)
    return GAVE_UP


if __name__ == "__main__":
    sys.exit(main())
