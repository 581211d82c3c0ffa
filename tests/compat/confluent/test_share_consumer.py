"""librdkafka's ShareConsumer against three nodes: workers that divide the records, give them back, lose their brokers.

Beside Apache Kafka, in full: tests/oracle/test_share_clients.py. What docs/queues.md shows: test_queues.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from barnabas_admin.local_cluster import LocalCluster
from tests.compat.samples import DEADLINE_S, until

RECORDS = 60


def set_group(bootstrap: str, group: str, **configs: str) -> None:
    """Group configs; keyword `delivery_count_limit` means share.delivery.count.limit."""
    entries = [
        ConfigEntry(f"share.{key.replace('_', '.')}", value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def write(bootstrap: str, topic: str, count: int = RECORDS) -> None:
    """Records 0 to count - 1, spread over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(DEADLINE_S) == 0


def worker(bootstrap: str, group: str, topic: str, **settings: Any) -> ShareConsumer:
    """A member that says what becomes of each record."""
    made = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        | settings
    )
    made.subscribe([topic])
    return made


def good(member: ShareConsumer, timeout_s: float = 0.3) -> list[Message]:
    """The records of one poll."""
    return [message for message in member.poll(timeout_s) if message.error() is None]


def test_workers_divide_the_records_and_each_is_done_once(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(2)
    set_group(bootstrap, group, auto_offset_reset="earliest")
    write(bootstrap, topic)
    done: Counter[bytes] = Counter()
    failed: list[Any] = []
    workers = [worker(bootstrap, group, topic, **{"max.poll.records": 5}) for _ in range(3)]

    def work() -> None:
        for member in workers:
            messages = good(member)
            for message in messages:
                is_first = message.delivery_count() == 1 and int(message.value()) % 10 == 0
                member.acknowledge(message, AcknowledgeType.RELEASE if is_first else AcknowledgeType.ACCEPT)
                done.update([] if is_first else [message.value()])
            failed.extend(error for error in member.commit_sync(timeout=DEADLINE_S).values() if error is not None)

    until(lambda: len(done) == RECORDS, work)
    for member in workers:
        member.close()
    assert set(done.values()) == {1} and not failed
    after = worker(bootstrap, group, topic)
    assert good(after, 3.0) == []
    after.close()


def test_what_is_accepted_stays_so_when_a_broker_dies(
    cluster: LocalCluster, bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    """Every node is killed once; what no answer came for may come again, the others not."""
    topic = make_topic(3)
    set_group(bootstrap, group, auto_offset_reset="earliest", delivery_count_limit="10")
    write(bootstrap, topic)
    accepted: set[bytes] = set()
    again: list[bytes] = []
    member = worker(bootstrap, group, topic, **{"max.poll.records": 4})

    def work() -> None:
        messages = good(member)
        again.extend(message.value() for message in messages if message.value() in accepted)
        for message in messages:
            member.acknowledge(message)
        told = {(each.topic, each.partition): error for each, error in member.commit_sync(timeout=10.0).items()}
        accepted.update(
            message.value() for message in messages if told.get((topic, message.partition()), "no answer") is None
        )

    for node_id in cluster.nodes:
        wanted = min(RECORDS, len(accepted) + 8)
        until(lambda wanted=wanted: len(accepted) >= wanted, work)  # type: ignore[misc]
        cluster.kill(node_id)
        time.sleep(0.2)
        cluster.start_node(node_id)
    until(lambda: len(accepted) == RECORDS, work)
    member.close()
    cluster.wait_until_healthy()
    assert not again
