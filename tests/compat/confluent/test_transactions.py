"""Transactions of confluent-kafka (librdkafka, transaction.version 1): read committed or not at all, with the offsets."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas_admin.local_cluster import LocalCluster
from tests.compat.samples import DEADLINE_S

pytestmark = [pytest.mark.cluster]

IS_FULL = bool(os.environ.get("BARNABAS_ECOSYSTEM_FULL"))
PARTITIONS = 2
COPIED = 600


def transactional(bootstrap: str, name: str, **settings: Any) -> Producer:
    """A producer that has taken its transactional id."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1} | settings)
    producer.init_transactions(DEADLINE_S)
    return producer


def committed_reader(bootstrap: str, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        | settings
    )


def read_all(bootstrap: str, topic: str) -> list[str]:
    """Every value that a reader of committed data finds, up to the last stable offset of each partition."""
    consumer = committed_reader(bootstrap, f"reader-{time.monotonic_ns()}", **{"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} was not read to its end"
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            value = message.value()
            assert value is not None
            found.append(value.decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return found


def test_what_is_committed_is_read_and_what_is_aborted_is_not(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(PARTITIONS)
    producer = transactional(bootstrap, topic)
    expected = set()
    for number in range(8):
        producer.begin_transaction()
        values = {f"{number}.{place}" for place in range(10)}
        for place, value in enumerate(sorted(values)):
            producer.produce(topic, value, partition=place % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0  # an abort would drop what is not sent yet
        if number % 3:
            producer.commit_transaction(DEADLINE_S)
            expected |= values
        else:
            producer.abort_transaction(DEADLINE_S)
    assert Counter(read_all(bootstrap, topic)) == Counter(expected)


def test_offsets_count_with_the_transaction(bootstrap: str, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic(PARTITIONS)
    producer = transactional(bootstrap, topic)
    consumer = committed_reader(bootstrap, group)
    asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    for offset, is_commit in ((5, False), (7, True), (9, False)):
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=0)
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, number, offset + number) for number in range(PARTITIONS)],
            consumer.consumer_group_metadata(),
            DEADLINE_S,
        )
        (producer.commit_transaction if is_commit else producer.abort_transaction)(DEADLINE_S)
    assert [found.offset for found in consumer.committed(asked, DEADLINE_S)] == [7, 8]
    consumer.close()


def test_a_second_producer_fences_the_first_and_its_open_transaction_is_not_read(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(PARTITIONS)
    first = transactional(bootstrap, topic)
    first.begin_transaction()
    first.produce(topic, b"first", partition=0)
    first.flush(DEADLINE_S)
    second = transactional(bootstrap, topic)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(DEADLINE_S)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"second", partition=0)
    second.commit_transaction(DEADLINE_S)
    assert read_all(bootstrap, topic) == ["second"]


@pytest.mark.skipif(not IS_FULL, reason="make ecosystem; make test has the copy of tests/cluster/test_exactly_once.py")
def test_a_copy_is_exact_while_brokers_are_killed(
    cluster: LocalCluster, bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    source, target = make_topic(PARTITIONS), make_topic(PARTITIONS)
    plain = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(COPIED):
        plain.produce(source, f"{number}", partition=number % PARTITIONS)
    assert plain.flush(DEADLINE_S) == 0
    deadline = time.monotonic() + 2 * DEADLINE_S
    killed = 0
    copied = 0
    while copied < COPIED:  # one incarnation of the copier after another; each goes on where the last commit says
        producer = transactional(bootstrap, target)
        consumer = committed_reader(bootstrap, group)
        consumer.subscribe([source])
        try:
            for _ in range(4):
                batch = consumer.consume(30, timeout=1.0)
                if not batch:
                    continue
                producer.begin_transaction()
                for message in batch:
                    partition = message.partition()
                    assert partition is not None
                    producer.produce(target, message.value(), partition=partition)
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), DEADLINE_S
                )
                if killed < len(cluster.brokers) and copied >= COPIED * killed // 4:
                    node = cluster.brokers[killed]
                    killed += 1
                    cluster.kill(node.id)
                    cluster.start_node(node.id)
                producer.commit_transaction(DEADLINE_S)
                copied += len(batch)
        except KafkaException as error:
            assert time.monotonic() < deadline, error
        finally:
            consumer.close()
        found = committed_reader(bootstrap, group)
        asked = [TopicPartition(source, number) for number in range(PARTITIONS)]
        copied = sum(max(0, place.offset) for place in found.committed(asked, DEADLINE_S))
        found.close()
        assert time.monotonic() < deadline, f"{copied} of {COPIED} are copied"
    cluster.heal()
    assert killed == len(cluster.brokers)
    assert Counter(read_all(bootstrap, target)) == Counter(str(number) for number in range(COPIED))
