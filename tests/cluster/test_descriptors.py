"""Nodes with few descriptors (`ulimit -n`): more partitions than descriptors are served, connections are refused before the logs
starve, nothing that was acknowledged is lost, and a limit that cannot do is refused in words."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas_admin import local_cluster
from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_node import server_command
from barnabas_admin.local_ports import find_base_port

pytestmark = [pytest.mark.cluster]

LIMIT = 1024
PARTITIONS = 400
"""With three files each they passed the limit."""
CONNECTIONS = 560


def limited(limit: int, *words: str) -> list[str]:
    """The command of a server that may have no more than `limit` descriptors, soft and hard."""
    return ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *server_command(*words)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setattr(local_cluster, "server_command", lambda *words: limited(LIMIT, *words))
    with LocalCluster(tmp_path / "cluster", nodes=3, base_port=find_base_port()) as running:
        yield running


def test_more_partitions_and_connections_than_descriptors_cost_no_node_and_no_record(cluster: LocalCluster) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=60.0) as admin:
        admin.create_topics(["t"], partitions=PARTITIONS, replication_factor=3)
    cluster.wait_until_healthy(timeout_s=60.0)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    write_everywhere(producer, b"before")
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(socket.create_connection(("127.0.0.1", cluster.nodes[1].kafka_port or 0), timeout=10.0))
        write_everywhere(producer, b"among idle connections")  # those that were there are kept
    del producer
    cluster.wait_until_healthy(timeout_s=60.0)
    expected = [[b"before", b"among idle connections"]] * PARTITIONS
    assert read_everywhere(cluster.bootstrap_servers, 2) == expected
    for node in cluster.nodes.values():
        errors = [line for line in node.stderr_file.read_text().splitlines() if " ERROR " in line]
        assert node.is_running and not errors, errors[:5]


def write_everywhere(producer: Producer, value: bytes) -> None:
    """One record to every partition, acknowledged by all replicas."""
    outcomes = list[object]()
    for partition in range(PARTITIONS):
        producer.produce("t", value, partition=partition, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(90.0) == 0 and outcomes == [None] * PARTITIONS, outcomes


def read_everywhere(servers: str, count: int) -> list[list[bytes]]:
    """The first `count` values of each partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    try:
        consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
        for message in consumer.consume(PARTITIONS * count, timeout=60.0):
            found[message.partition() or 0].append(message.value() or b"")
    finally:
        consumer.close()
    return found


def test_a_limit_that_leaves_nothing_for_the_logs_is_refused_in_words(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:9\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n"
    )
    done = subprocess.run(limited(100, "-c", str(properties)), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "ulimit -n" in done.stderr, done.stderr
