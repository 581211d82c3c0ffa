"""A bit flips in a sealed segment of a broker that was stopped cleanly: it is found and repaired by itself, and told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.support.clusters import ForkedCluster

pytestmark = [pytest.mark.cluster]

VICTIM = 2
REPAIRED_WITHIN_S = 60.0
"""From the start of the broker on: these directories are read in less than a second."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with ForkedCluster(tmp_path / "cluster", nodes=3, base_port=find_base_port()) as running:
        yield running


def segments(cluster: LocalCluster, node_id: int) -> list[Path]:
    (node,) = [node for node in cluster.brokers if node.id == node_id]
    return sorted((node.data_directory / "t-0").glob("*.log"))


def content(cluster: LocalCluster, node_id: int) -> bytes:
    return b"".join(path.read_bytes() for path in segments(cluster, node_id))


def metric(cluster: LocalCluster, node_id: int, name: str) -> float:
    _, page = cluster.http_get(node_id, "/metrics")
    return sum(float(found) for found in re.findall(rf"^barnabas_{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE))


def in_sync(cluster: LocalCluster) -> set[int]:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        return set(admin.describe_topics(["t"])[0].partitions[0].isr)


@pytest.mark.parametrize("is_high_watermark_known", [True, False])
def test_a_flipped_bit_is_found_and_repaired_though_the_broker_stopped_cleanly(
    cluster: LocalCluster, is_high_watermark_known: bool
) -> None:
    """Where the high watermark is not known, or is one of before the last writes, the log is cut and fetched anew."""
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["t"], partitions=1, replication_factor=3, configs={"segment.bytes": str(1 << 20)})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "batch.size": 16_000})
    for number in range(3_000):
        producer.produce("t", b"%06d" % number + b"v" * 1_000, partition=0)
    assert producer.flush(60.0) == 0
    cluster.wait_until(lambda: len(in_sync(cluster)) == 3, what="all replicas to be in sync")

    cluster.stop_node(VICTIM)
    whole = content(cluster, VICTIM)
    sealed = segments(cluster, VICTIM)
    assert len(sealed) > 1 and content(cluster, 1) == content(cluster, 3) == whole
    with sealed[0].open("r+b") as file:
        file.seek(sealed[0].stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 8]))
    assert content(cluster, VICTIM) != whole
    if not is_high_watermark_known:
        (checkpoint,) = cluster.nodes[VICTIM].data_directory.glob("replication-offset-checkpoint")
        checkpoint.unlink()
    cluster.start_node(VICTIM)
    cluster.wait_until(
        lambda: cluster.is_ready(VICTIM) and metric(cluster, VICTIM, "log_damage_repaired_total") == 1,
        timeout_s=REPAIRED_WITHIN_S,
        what="the damaged range to be found and repaired",
    )
    assert metric(cluster, VICTIM, "log_damaged_ranges") == 0
    cluster.wait_until(lambda: in_sync(cluster) == {1, 2, 3}, what="the repaired replica to be in sync")
    assert content(cluster, VICTIM) == whole
