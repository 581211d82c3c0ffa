"""`python -m tests.cluster.full_disk DIRECTORY`: one of three nodes on a small disk of its own, which fills up and has room again.

May touch:  a private mount namespace (unshare -m), real processes on loopback.   Must not touch: mounts outside of it.
Invariants: exit status 0 only if every step held; the small disk goes with the namespace.
Read next:  test_full_disk.py, which starts it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.support.clusters import ForkedCluster

SIZE = "64m"
RECORDS = 50
BALLAST_MIB_MAX = 1024


def main() -> int:
    """Mount, fill, free."""
    directory = Path(sys.argv[1])
    with ForkedCluster(
        directory, nodes=3, base_port=find_base_port(), overrides={"min.insync.replicas": "2"}
    ) as cluster:
        pass  # formatted, and stopped again
    small = cluster.nodes[1].directory
    aside = directory / "aside"
    subprocess.run(["cp", "-a", str(small), str(aside)], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(small)], check=True)
    subprocess.run(f"cp -a {aside}/. {small}/", shell=True, check=True)
    with ForkedCluster(directory, base_port=cluster.base_port, overrides={"min.insync.replicas": "2"}) as running:
        walk(running, small / "ballast")
    return 0


def walk(cluster: LocalCluster, ballast: Path) -> None:
    """The steps; raises where one does not hold."""
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["t"], partitions=6, replication_factor=3)
        wait = cluster.wait_until
        wait(lambda: any(p.leader == 1 for p in partitions(admin)), what="node 1 to lead")
        acknowledged = produce(cluster)
        fill(ballast)
        wait(lambda: all(p.leader != 1 and 1 not in p.isr for p in partitions(admin)), what="others to lead")
        assert "no_room" in admin.describe_health().reasons
        acknowledged += produce(cluster)
        assert list(cluster.find_deaths()) == [], "the full node lives"
        cluster.restart(1, is_clean=False)
        wait(lambda: cluster.is_ready(1), what="node 1 to start on its full disk")
        acknowledged += produce(cluster)
        ballast.unlink()
        wait(lambda: all(sorted(p.isr) == [1, 2, 3] for p in partitions(admin)), what="node 1 to be in sync again")
        wait(lambda: "no_room" not in admin.describe_health().reasons, what="the fault to clear")
        assert list(cluster.find_deaths()) == []
    assert consumed(cluster) >= acknowledged, "an acknowledged record is missing"
    print(f"{acknowledged} records acknowledged, all there")


def partitions(admin: AdminClient) -> list[Any]:
    """Of the topic."""
    return list(admin.describe_topics(["t"])[0].partitions)


def fill(ballast: Path) -> None:
    """Until nothing fits any more."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in range(BALLAST_MIB_MAX):
            file.write(bytes(1 << 20))


def produce(cluster: LocalCluster) -> int:
    """Records to all partitions; how many were acknowledged, which must be all."""
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "message.timeout.ms": 60_000})
    for number in range(RECORDS):
        producer.produce(
            "t",
            b"%d" % number,
            partition=number % 6,
            on_delivery=lambda error, _: errors.append(str(error)) if error else None,
        )
    left = producer.flush(90)
    assert not left and not errors, (left, errors[:3])
    return RECORDS


def consumed(cluster: LocalCluster) -> int:
    """Records that are in the topic."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    try:
        return sum(
            high - low
            for low, high in (
                consumer.get_watermark_offsets(TopicPartition("t", number), timeout=30) for number in range(6)
            )
        )
    finally:
        consumer.close()


if __name__ == "__main__":
    sys.exit(main())
