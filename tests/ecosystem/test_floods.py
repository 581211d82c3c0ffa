"""Floods beside an honest producer: thousands that never end a request, some that never read, some that send bombs.

The short form is a tenth of the full one, and its bounds of time are wide, for others run beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.cluster.floods import PLAIN_TOPIC, RECOMPRESSED_TOPIC
from tests.cluster.test_hostile import honest_latencies
from tests.ecosystem.java import IS_FULL
from tests.support.clusters import ForkedCluster

pytestmark = [pytest.mark.ecosystem]

SLOW, DEAF, BOMBERS = (2_000, 200, 4) if IS_FULL else (300, 30, 1)
FLOOD_S = 40.0 if IS_FULL else 2.5
RECORDS = 2_000 if IS_FULL else 200
MEMORY_GROWTH_BYTES_MAX = 256 << 20
P99_FACTOR_MAX = 3.0 if IS_FULL else 20.0
NOISE_S = 0.005
"""Below it a p99 says nothing: three times one millisecond is a turn of somebody else."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with ForkedCluster(tmp_path, nodes=1, base_port=find_base_port()) as running:
        yield running


def test_an_honest_producer_goes_on_and_memory_is_bounded(cluster: LocalCluster) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics([PLAIN_TOPIC, PLAIN_TOPIC + "-bombed"], partitions=1, replication_factor=1)
        admin.create_topics(
            [RECOMPRESSED_TOPIC], partitions=1, replication_factor=1, configs={"compression.type": "lz4"}
        )
    node = cluster.nodes[1]
    assert node.process is not None and node.kafka_port is not None
    process = psutil.Process(node.process.pid)
    before = honest_latencies(cluster.bootstrap_servers, RECORDS)
    memory = process.memory_info().rss
    peak = memory
    is_over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.wait(0.02):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    flood = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.floods", str(node.kafka_port), *map(str, (FLOOD_S, SLOW, DEAF, BOMBERS))],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert flood.stdout is not None
        assert flood.stdout.readline() == "begun\n"
        began = time.monotonic()
        during = honest_latencies(cluster.bootstrap_servers, RECORDS)
        honest_s = time.monotonic() - began
        counts = json.loads(flood.stdout.readline())
        assert flood.wait(30) == 0
    finally:
        flood.kill()
        flood.wait()
        is_over.set()
        watcher.join()

    p99_before, p99_during = before[int(len(before) * 0.99)], during[int(len(during) * 0.99)]
    print(
        f"memory +{(peak - memory) / 2**20:.1f} MiB, honest p99 {p99_before * 1000:.2f} -> {p99_during * 1000:.2f} ms "
        f"over {honest_s:.1f} s,",
        counts,
    )
    assert counts["slow opened"] >= SLOW and counts["deaf opened"] >= DEAF, "the flood reached the node"
    assert counts["bomb opened"] >= BOMBERS
    assert peak - memory <= MEMORY_GROWTH_BYTES_MAX
    assert p99_during <= P99_FACTOR_MAX * max(p99_before, NOISE_S)
    assert node.is_running and cluster.is_ready(1)
