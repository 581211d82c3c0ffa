"""One of two log directories cannot be read at start: the broker serves the other, and makes nothing anew beside what is lost
from sight; it comes back whole with the disk, and without any directory it does not start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.support.clusters import ForkedCluster

pytestmark = [pytest.mark.cluster]

PARTITIONS = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One node with its metadata in one directory and its data in two others."""
    overrides = {
        "metadata.log.dir": str(tmp_path / "metadata"),
        "log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}",
        "broker.session.timeout.ms": "4000",
    }
    with ForkedCluster(tmp_path / "cluster", nodes=1, base_port=find_base_port(), overrides=overrides) as running:
        yield running


def logs_in(directory: Path) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in directory.glob("t-*") if path.name[2:].isdecimal()}


def leaders(cluster: LocalCluster) -> dict[int, int]:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        return {partition.partition: partition.leader for partition in admin.describe_topics(["t"])[0].partitions}


def consumed(cluster: LocalCluster, partition: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    try:
        consumer.assign([TopicPartition("t", partition, 0)])
        return [message.value() for message in consumer.consume(3, timeout=60.0)]
    finally:
        consumer.close()


def restart(cluster: LocalCluster) -> None:
    cluster.restart(1)
    cluster.wait_until(lambda: cluster.is_ready(1), what="the node to be ready")


def test_a_directory_that_cannot_be_read_costs_its_replicas_alone_and_gives_them_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    one, two, away = tmp_path / "one", tmp_path / "two", tmp_path / "away"
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["t"], partitions=PARTITIONS, replication_factor=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for partition in range(PARTITIONS):
        for number in range(3):
            producer.produce("t", b"%d" % number, partition=partition)
    assert producer.flush(60.0) == 0
    del producer
    kept, lost = logs_in(one), logs_in(two)
    assert kept and lost and kept | lost == set(range(PARTITIONS))

    cluster.stop_node(1)
    two.rename(away)
    two.symlink_to(two)  # not even root can read what is a loop
    restart(cluster)
    cluster.wait_until(lambda: all(leaders(cluster)[p] == 1 for p in kept), what="the other directory's to be led")
    assert {leaders(cluster)[partition] for partition in lost} == {-1}
    assert consumed(cluster, min(kept)) == [b"0", b"1", b"2"]
    assert logs_in(one) == kept, "nothing is made anew"
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["u"], partitions=1, replication_factor=1)
    cluster.wait_until(lambda: (one / "u-0").exists(), what="a new topic to be made in the directory that works")
    errors = [line for line in cluster.nodes[1].stderr_file.read_text().splitlines() if " ERROR " in line]
    assert any(str(two) in line and "offline" in line for line in errors), errors

    cluster.stop_node(1)
    two.unlink()
    away.rename(two)
    restart(cluster)
    cluster.wait_until(lambda: set(leaders(cluster).values()) == {1}, what="every partition to be led")
    for partition in lost:
        assert consumed(cluster, partition) == [b"0", b"1", b"2"], "it has what it had"

    cluster.stop_node(1)
    for directory in (one, two):
        directory.rename(f"{directory}.away")
        directory.symlink_to(directory)
    cluster.start_node(1)
    process = cluster.nodes[1].process
    assert process is not None and process.wait(60) != 0
    assert "no log directory works" in cluster.nodes[1].stderr_file.read_text()
