"""Leaders and the active controller are killed under load: nothing acknowledged is lost, duplicated or moved."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster, find_base_port
from tests.cluster.topics import wait_until_known
from tests.cluster.workload import (
    UniqueProducer,
    active_controller,
    leaders,
    replica_bytes,
    wait_until_in_sync,
)

pytestmark = [pytest.mark.cluster]

RECORDS = 100_000
PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three combined nodes of its own for each test: they are broken on purpose."""
    with LocalCluster(tmp_path, nodes=3, base_port=find_base_port()) as running:
        yield running


def create_topic(cluster: LocalCluster, name: str) -> None:
    """RF 3, min.insync.replicas 2."""
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        configs = {"min.insync.replicas": "2"}
        (made,) = admin.create_topics([name], partitions=PARTITIONS, replication_factor=3, configs=configs)
    wait_until_known(cluster, name, made.id)


def kill_and_restart(cluster: LocalCluster, node_id: int, producer: UniqueProducer, led: set[int]) -> None:
    """SIGKILL, wait until somebody else leads, start again, wait until all are in sync."""
    cluster.kill(node_id)
    producer.mark_kill(led)
    time.sleep(2.0)
    cluster.start_node(node_id)
    wait_until_in_sync(cluster)


def run_kills(cluster: LocalCluster, producer: UniqueProducer) -> None:
    """Kill the leader of partition 0 three times and the active controller once, while the producer sends."""
    sender = threading.Thread(target=producer.send, args=(RECORDS,), kwargs={"per_second": RECORDS / 25})
    sender.start()
    try:
        for _ in range(3):
            time.sleep(0.5)
            led = leaders(cluster, producer.topic)
            kill_and_restart(cluster, led[0], producer, {part for part, who in led.items() if who == led[0]})
        victim = active_controller(cluster)
        led = leaders(cluster, producer.topic)
        kill_and_restart(cluster, victim, producer, {part for part, who in led.items() if who == victim})
    finally:
        sender.join(120)
    producer.flush()


def test_acks_all_loses_and_duplicates_nothing_while_leaders_and_the_controller_are_killed(
    cluster: LocalCluster,
) -> None:
    create_topic(cluster, "unique")
    producer = UniqueProducer(cluster.bootstrap_servers, "unique", partitions=PARTITIONS)
    run_kills(cluster, producer)
    assert not producer.failed
    assert len(producer.acknowledged) == RECORDS
    verdict = producer.judge(cluster.bootstrap_servers)
    print(verdict, "gaps", [f"{gap:.2f}" for gap in producer.gaps])
    assert verdict.is_clean, str(verdict)
    wait_until_in_sync(cluster)
    for partition in range(PARTITIONS):
        replicas = replica_bytes(cluster, "unique", partition)
        assert len(replicas) == 3
        assert len(set(replicas.values())) == 1, (
            f"replicas of unique-{partition} differ: {[len(b) for b in replicas.values()]}"
        )


def test_acks_1_may_lose_and_the_checker_says_how_many(cluster: LocalCluster) -> None:
    create_topic(cluster, "risky")
    producer = UniqueProducer(cluster.bootstrap_servers, "risky", acks="1", partitions=PARTITIONS)
    run_kills(cluster, producer)
    verdict = producer.judge(cluster.bootstrap_servers)
    print("acks=1:", verdict)
    assert not verdict.invented
    assert verdict.in_log >= RECORDS * 0.5
    wait_until_in_sync(cluster)
    for partition in range(PARTITIONS):
        replicas = replica_bytes(cluster, "risky", partition)
        assert len(replicas) == 3
        assert len(set(replicas.values())) == 1
