"""What people run, and how they see that it does not work.

May touch:  confluent-kafka.          Must not touch: the admin service, the doctor.
Invariants: a program raises where it would fail its user; each ends within its own time.
Read next:  test_doctor.py.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

WAIT_S = 4.0


class DoesNotWork(Exception):
    """What the user of a program sees."""


def produce(config: Mapping[str, Any], topic: str, **more: Any) -> None:
    """Write one record with acks=all."""
    failures: list[object] = []
    quiet = {"message.timeout.ms": int(WAIT_S * 1000), "allow.auto.create.topics": False, "log_level": 0}
    producer = Producer(quiet | dict(config) | {"acks": "all"})
    producer.produce(topic, b"value", on_delivery=lambda error, _: failures.append(error) if error else None, **more)
    if producer.flush(WAIT_S + 2) or failures:
        raise DoesNotWork(str(failures or "not delivered"))


def consume(config: Mapping[str, Any], topic: str, **more: Any) -> None:
    """Read one record of a topic from its beginning."""
    quiet = {"group.id": "programs", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(quiet | dict(config) | more)
    try:
        consumer.subscribe([topic])
        ends_s = time.monotonic() + WAIT_S
        while time.monotonic() < ends_s:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                return
        raise DoesNotWork("no record")
    finally:
        consumer.close()


@contextlib.contextmanager
def polling(config: Mapping[str, Any], topic: str, members: int, **more: Any) -> Iterator[list[list[Any]]]:
    """So many members of one group, each polled by a thread of its own; yields what each has to read."""
    settings = {"auto.offset.reset": "earliest", "log_level": 0, **config, **more}
    consumers = [Consumer(settings | {"client.id": f"member-{number}"}) for number in range(members)]
    is_over = threading.Event()
    shares: list[list[Any]] = [[] for _ in consumers]

    def poll(consumer: Consumer) -> None:
        while not is_over.is_set():
            consumer.poll(0.1)

    threads = [threading.Thread(target=poll, args=(consumer,)) for consumer in consumers]
    for consumer, thread, share in zip(consumers, threads, shares, strict=True):
        # from another thread `assignment()` waits for what waits for the interpreter's lock
        consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions, share=share: share.extend(partitions),
            on_revoke=lambda _, partitions, share=share: share.clear(),
        )
        thread.start()
    try:
        yield shares
    finally:
        is_over.set()
        for consumer, thread in zip(consumers, threads, strict=True):
            thread.join()
            consumer.close()


def wait_for_share(share: list[Any]) -> None:
    """Wait until a member has something to read."""
    ends_s = time.monotonic() + WAIT_S
    while not share:
        if time.monotonic() > ends_s:
            raise DoesNotWork("nothing to read")
        time.sleep(0.1)


def commit(config: Mapping[str, Any], topic: str, offset: int, **more: Any) -> None:
    """Have a group without members stand at an offset of partition 0."""
    consumer = Consumer({**config, **more, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
