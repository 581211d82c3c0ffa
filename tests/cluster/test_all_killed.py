"""Every node is killed at once and started again: clients that live through it go on by themselves.

A broker that served before it knew the cluster named no brokers, no controller and no topics, and librdkafka believed it for
good. So one client asks every broker for Metadata without rest while the nodes start, and judges every answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.client.blocking import BlockingConnection
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.clusters import ForkedCluster
from tests.support.topics import wait_until_known

pytestmark = [pytest.mark.cluster]

TOPIC = "kept"
PARTITIONS = 3
METADATA_VERSION = 12
WITHIN_S = 60.0


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("all-killed")
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with ForkedCluster(directory, nodes=3, base_port=find_base_port(), overrides=overrides) as running:
        with AdminClient(running.admin_addresses, timeout_s=20.0) as admin:
            admin.create_topics([TOPIC], partitions=PARTITIONS, replication_factor=3)
            (topic,) = admin.describe_topics((TOPIC,))
        wait_until_known(running, TOPIC, topic.id)
        yield running


class Asker(threading.Thread):
    """Asks one broker for Metadata of the topic, on a connection of its own each time, and keeps what was wrong."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.answers = 0
        self.lies: list[str] = []
        self.is_over = threading.Event()
        self._port = port

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                answer = self._ask()
            except (OSError, EOFError):
                self.is_over.wait(0.01)
                continue
            self.answers += 1
            lie = find_lie(answer)
            if lie:
                self.lies.append(lie)

    def _ask(self) -> MetadataResponse:
        connection = BlockingConnection("127.0.0.1", self._port, client_id="asker")
        try:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
            answer: MetadataResponse = connection.call(wanted, version=METADATA_VERSION)
            return answer
        finally:
            connection.close()


def find_lie(answer: MetadataResponse) -> str:
    if not answer.brokers:
        return "no brokers"
    if answer.controller_id < 0:
        return "no controller"
    code = ErrorCode(answer.topics[0].error_code)
    return "" if code is ErrorCode.NONE else code.name


def produce(producer: Producer, count: int) -> int:
    """How many of so many records are acknowledged."""
    done: list[object] = []
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=lambda e, m: done.append(e))
    producer.flush(WITHIN_S)
    return sum(error is None for error in done)


def consume(consumer: Consumer, count: int) -> int:
    """How many of so many records are read."""
    read = 0
    deadline = time.monotonic() + WITHIN_S
    while read < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        read += message is not None and message.error() is None
    return read


@pytest.mark.timeout(240)
def test_clients_go_on_after_all_nodes_were_killed_and_no_broker_lies_while_it_starts(cluster: LocalCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = Producer(settings | {"acks": "all", "message.timeout.ms": 60_000})
    consumer = Consumer(settings | {"group.id": "survivors", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    try:
        assert produce(producer, 30) == 30
        assert consume(consumer, 30) == 30
        askers = [Asker(node.kafka_port) for node in cluster.brokers if node.kafka_port is not None]
        for node_id in cluster.nodes:
            cluster.kill(node_id)
        for asker in askers:
            asker.start()
        for node_id in cluster.nodes:
            cluster.start_node(node_id)
        try:
            acknowledged = produce(producer, 30)
            read = consume(consumer, 30)
            cluster.wait_until_healthy()
        finally:
            for asker in askers:
                asker.is_over.set()
            for asker in askers:
                asker.join(30)
        assert [asker.lies[:5] for asker in askers] == [[]] * len(askers)
        assert all(asker.answers for asker in askers)
        assert (acknowledged, read) == (30, 30)
    finally:
        consumer.close()
