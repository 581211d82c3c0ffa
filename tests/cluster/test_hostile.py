"""200 hostile connections beside an honest producer: each closes its own connection and nothing else."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.cluster.hostile import attacks, run_attack
from tests.support.clusters import ForkedCluster

pytestmark = [pytest.mark.cluster]

CONNECTIONS = 200
AT_ONCE = 200
MEMORY_GROWTH_BYTES_MAX = 64 << 20
HONEST_RECORDS = 400


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One node is enough: the attack is on one listener."""
    with ForkedCluster(tmp_path, nodes=1, base_port=find_base_port()) as running:
        yield running


def honest_latencies(bootstrap: str, records: int) -> list[float]:
    """Seconds from produce to acknowledgement, one record at a time, over one connection."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    found: list[float] = []
    for index in range(records + 20):
        begun = time.perf_counter()
        reports: list[object] = []
        producer.produce("honest", b"x" * 100, on_delivery=lambda error, _, reports=reports: reports.append(error))
        while not reports:
            producer.poll(1.0)
        assert reports == [None], f"an honest record failed: {reports}"
        if index >= 20:  # the first ones find their way
            found.append(time.perf_counter() - begun)
    return sorted(found)


@pytest.mark.attack("A6", "hostile connections close themselves and nothing else")
def test_hostile_connections_close_themselves_and_nothing_else(cluster: LocalCluster) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["honest"], partitions=1, replication_factor=1)
    node = cluster.nodes[1]
    assert node.process is not None and node.kafka_port is not None
    port = node.kafka_port
    process = psutil.Process(node.process.pid)
    before = honest_latencies(cluster.bootstrap_servers, HONEST_RECORDS)
    memory = process.memory_info().rss

    endings: Counter[tuple[str, str]] = Counter()
    supply = itertools.islice(attacks(seed=1), CONNECTIONS)
    lock = threading.Lock()

    def attack_until_done() -> None:
        while True:
            with lock:
                item = next(supply, None)
            if item is None:
                return
            ending = run_attack(port, item[1])
            with lock:
                endings[item[0], ending] += 1

    attackers = [threading.Thread(target=attack_until_done) for _ in range(AT_ONCE)]
    for thread in attackers:
        thread.start()
    during = honest_latencies(cluster.bootstrap_servers, HONEST_RECORDS)
    for thread in attackers:
        thread.join(100)

    growth = process.memory_info().rss - memory
    p99_before, p99_during = before[int(len(before) * 0.99)], during[int(len(during) * 0.99)]
    print(
        f"memory +{growth / 2**20:.1f} MiB, honest p99 {p99_before * 1000:.2f} -> {p99_during * 1000:.2f} ms",
        dict(endings),
    )
    assert sum(endings.values()) == CONNECTIONS
    assert not [name for name, ending in endings if ending == "not closed"]
    assert node.is_running
    assert growth <= MEMORY_GROWTH_BYTES_MAX
    assert cluster.is_ready(1)
