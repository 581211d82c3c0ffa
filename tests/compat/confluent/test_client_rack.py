"""A consumer with client.rack reads from the replica in its rack (KIP-392)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster, find_base_port
from tests.support.topics import wait_until_known

OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


class RackedCluster(LocalCluster):
    """Every node in a rack of its own, named by its id."""

    def properties(self, node_id: int) -> dict[str, str]:
        return super().properties(node_id) | {"broker.rack": f"rack-{node_id}"}


@pytest.fixture
def racked(tmp_path: Path) -> Iterator[LocalCluster]:
    with RackedCluster(tmp_path, nodes=3, base_port=find_base_port(), overrides=OVERRIDES) as running:
        yield running


def test_it_reads_from_the_follower_in_its_rack_also_what_is_written_later(racked: LocalCluster) -> None:
    with AdminClient(racked.admin_addresses, timeout_s=10.0) as admin:
        (made,) = admin.create_topics(["racked"], partitions=1, replication_factor=3)
    wait_until_known(racked, "racked", made.id)
    producer = confluent_kafka.Producer({"bootstrap.servers": racked.bootstrap_servers})
    leader = next(iter(producer.list_topics("racked", timeout=10).topics["racked"].partitions.values())).leader
    follower = next(node.id for node in racked.brokers if node.id != leader)
    read_from: set[int] = set()

    def look(statistics: str) -> None:
        found = json.loads(statistics)["topics"].get("racked", {}).get("partitions", {}).get("0")
        if found is not None:
            read_from.add(found["broker"])

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": racked.bootstrap_servers,
            "group.id": "racked",
            "client.rack": f"rack-{follower}",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 100,
            "stats_cb": look,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("racked", 0, 0)])
    sent: list[bytes] = []
    values: list[bytes | None] = []
    deadline_s = time.monotonic() + 40
    while (follower not in read_from or len(values) < len(sent)) and time.monotonic() < deadline_s:
        if len(sent) < 500:
            sent.append(b"%d" % len(sent))
            producer.produce("racked", sent[-1])
            producer.flush(10)
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    assert values == sent
    assert follower in read_from, f"read from {read_from}, the leader is {leader}"
