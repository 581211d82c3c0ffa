"""The coordinator of a living group is killed: members go on, what they committed is kept."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.client.blocking import BlockingConnection
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from tests.compat.samples import DEADLINE_S, until

pytestmark = [pytest.mark.cluster]

GROUP = "survivors"
TOPIC = "events"
PARTITIONS = 4
ROUNDS = 6
RECORDS_PER_ROUND = 200


def coordinator(cluster: LocalCluster) -> int:
    """Node id of the group's coordinator, asked of any node that answers."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for node in cluster.brokers:
            if not node.is_running:
                continue
            assert node.kafka_port is not None
            connection = BlockingConnection("127.0.0.1", node.kafka_port, client_id="failover", timeout_s=5.0)
            try:
                answer = connection.call(FindCoordinatorRequest(key=GROUP), version=2)
            finally:
                connection.close()
            if answer.error_code == 0:
                return int(answer.node_id)
        time.sleep(0.1)
    raise AssertionError("no node names a coordinator")


class Member:
    """A member that commits after every batch it read, and remembers what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 20_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self.consumer.subscribe([TOPIC])
        self.values: list[bytes] = []
        self.acknowledged: dict[int, int] = {}

    def step(self) -> None:
        """Read what is there and commit it; a commit that fails is tried again with the next batch."""
        messages = self.consumer.consume(500, timeout=0.1)
        for message in messages:
            error = message.error()
            assert error is None or error.retriable() or error.code() < 0, error
            if error is None:
                self.values.append(message.value())
        if not messages:
            return
        try:
            committed = self.consumer.commit(asynchronous=False)
        except KafkaException as failure:
            error = failure.args[0]
            assert error.code() != KafkaError.OFFSET_OUT_OF_RANGE
            return
        for partition in committed or []:
            if partition.error is None:
                self.acknowledged[partition.partition] = partition.offset


def test_a_group_outlives_its_coordinator_and_keeps_what_it_committed(cluster: LocalCluster) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics([TOPIC], partitions=PARTITIONS, replication_factor=3)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
    )
    members = [Member(cluster.bootstrap_servers) for _ in range(2)]
    sent: list[bytes] = []

    def all_read() -> bool:
        return len({value for member in members for value in member.values}) >= len(sent)

    def step() -> None:
        for member in members:
            member.step()

    victim = -1
    at_kill: dict[int, int] = {}
    for round_number in range(ROUNDS):
        if round_number == 2:
            victim = coordinator(cluster)
            at_kill = _latest(members)
            cluster.kill(victim)
        if round_number == 4:
            cluster.start_node(victim)
        for number in range(RECORDS_PER_ROUND):
            value = b"%d-%d" % (round_number, number)
            sent.append(value)
            producer.produce(TOPIC, value, key=value)
        assert producer.flush(DEADLINE_S) == 0
        until(all_read, step)

    acknowledged = _latest(members)
    assert sum(acknowledged.values()) > sum(at_kill.values()) > 0
    checker = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP})
    kept = checker.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], timeout=DEADLINE_S)
    checker.close()
    for partition in kept:
        assert partition.offset >= acknowledged.get(partition.partition, 0)
    read = Counter(value for member in members for value in member.values)
    assert set(read) == set(sent)
    for member in members:
        member.consumer.close()
    cluster.wait_until_healthy()


def _latest(members: list[Member]) -> dict[int, int]:
    """The highest acknowledged commit of each partition."""
    latest: dict[int, int] = {}
    for member in members:
        for partition, offset in member.acknowledged.items():
            latest[partition] = max(latest.get(partition, 0), offset)
    return latest
