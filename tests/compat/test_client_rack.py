"""A consumer with client.rack reads from the replica in its rack (KIP-392): librdkafka and aiokafka, judged by the brokers' counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.support.clusters import ForkedCluster
from tests.support.topics import wait_until_known

OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
DEADLINE_S = 40.0


class RackedCluster(ForkedCluster):
    """Every node in a rack of its own, named by its id."""

    def properties(self, node_id: int) -> dict[str, str]:
        return super().properties(node_id) | {"broker.rack": f"rack-{node_id}"}


@pytest.fixture(scope="module")
def racked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("racked")
    with RackedCluster(directory, nodes=3, base_port=find_base_port(), overrides=OVERRIDES) as running:
        yield running


class Racked:
    """A topic of one partition, a follower in whose rack the consumer is, and what was sent and received."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
            (made,) = admin.create_topics([topic], partitions=1, replication_factor=3)
        wait_until_known(cluster, topic, made.id)
        self.producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        (partition,) = self.producer.list_topics(topic, timeout=10).topics[topic].partitions.values()
        self.leader: int = partition.leader
        self.follower = next(node.id for node in cluster.brokers if node.id != self.leader)
        self.rack = f"rack-{self.follower}"
        self.sent: list[bytes] = []
        self.received: list[bytes | None] = []
        self._end_s = time.monotonic() + DEADLINE_S

    def goes_on(self) -> bool:
        """Send one more record; returns false once the consumer has received all of them, or the time is over."""
        if time.monotonic() > self._end_s:
            return False
        if len(self.sent) < 100:
            self.sent.append(b"%d" % len(self.sent))
            self.producer.produce(self.topic, self.sent[-1])
            self.producer.flush(10)
            return True
        return len(self.received) < len(self.sent)

    def bytes_read(self, node_id: int) -> float:
        """Bytes of this topic that clients read from the broker, by its own metrics."""
        _, page = self.cluster.http_get(node_id, "/metrics")
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == "barnabas_topic_bytes_total"
            and (sample.labels["topic"], sample.labels["direction"]) == (self.topic, "out")
        )

    def check(self) -> None:
        """All records came in order, most bytes from the follower: the leader may serve the first fetches."""
        assert self.received == self.sent
        leader, follower = self.bytes_read(self.leader), self.bytes_read(self.follower)
        assert leader < follower / 4, (
            f"{leader} bytes came from the leader {self.leader}, {follower} from {self.follower}"
        )


def test_librdkafka_reads_from_the_follower_in_its_rack_also_what_is_written_later(racked: LocalCluster) -> None:
    topic = Racked(racked, "librdkafka")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": racked.bootstrap_servers,
            "group.id": "librdkafka",
            "client.rack": topic.rack,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic.topic, 0, 0)])
    while topic.goes_on():
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            topic.received.append(message.value())
    consumer.close()
    topic.check()


async def test_aiokafka_reads_from_the_follower_in_its_rack_also_what_is_written_later(racked: LocalCluster) -> None:
    topic = await asyncio.to_thread(Racked, racked, "aiokafka")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=racked.bootstrap_servers, client_rack=topic.rack, auto_offset_reset="earliest"
    )
    await asyncio.wait_for(consumer.start(), DEADLINE_S)
    try:
        consumer.assign([TopicPartition(topic.topic, 0)])
        while await asyncio.to_thread(topic.goes_on):
            for records in (await consumer.getmany(timeout_ms=50)).values():
                topic.received += [record.value for record in records]
    finally:
        await consumer.stop()
    await asyncio.to_thread(topic.check)
