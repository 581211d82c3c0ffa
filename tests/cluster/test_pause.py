"""A stopped follower (SIGSTOP) leaves the ISR by lag, comes back when it runs again, and nothing acknowledged is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.cluster.workload import UniqueProducer, active_controller, replica_bytes, wait_until_in_sync
from tests.support.clusters import ForkedCluster
from tests.support.topics import wait_until_known

pytestmark = [pytest.mark.cluster]

LAG = {"replica.lag.time.max.ms": "2000", "broker.session.timeout.ms": "90000"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes that notice a lagging follower long before its session could end."""
    with ForkedCluster(tmp_path, nodes=3, base_port=find_base_port(), overrides=LAG) as running:
        yield running


def isr_and_fenced(cluster: LocalCluster, topic: str, *, ask: int) -> tuple[set[int], set[int]]:
    """ISR of partition 0, and the brokers that are fenced, as one living node knows them."""
    with AdminClient(f"127.0.0.1:{cluster.nodes[ask].admin_port}", timeout_s=30.0) as admin:
        isr = set(admin.describe_topics([topic])[0].partitions[0].isr)
        return isr, {broker.id for broker in admin.describe_cluster().brokers if broker.fenced}


def test_a_stopped_follower_leaves_the_isr_and_comes_back(cluster: LocalCluster) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        configs = {"min.insync.replicas": "2"}
        (made,) = admin.create_topics(["paused"], partitions=1, replication_factor=3, configs=configs)
        wait_until_known(cluster, "paused", made.id)
        leader = admin.describe_topics(["paused"])[0].partitions[0].leader
    follower = next(node for node in cluster.nodes if node not in (leader, active_controller(cluster)))
    producer = UniqueProducer(cluster.bootstrap_servers, "paused", partitions=1)
    is_over = threading.Event()

    def send_until_over() -> None:
        while not is_over.is_set():
            producer.send(40, per_second=400)

    sender = threading.Thread(target=send_until_over)
    sender.start()
    try:
        # Else it may be the stopped one that the producer has asked for its id: it waits for a minute, and nobody lags.
        cluster.wait_until(lambda: bool(producer.acknowledged), what="the first record to be taken")
        cluster.pause(follower)
        cluster.wait_until(
            lambda: isr_and_fenced(cluster, "paused", ask=leader)[0] == set(cluster.nodes) - {follower},
            timeout_s=60,
            what="the stopped follower to leave",
        )
        _, fenced = isr_and_fenced(cluster, "paused", ask=leader)
        assert follower not in fenced, "it left by lag, not because its session ended"
        cluster.resume(follower)
        cluster.wait_until(
            lambda: follower in isr_and_fenced(cluster, "paused", ask=leader)[0],
            timeout_s=60,
            what="the follower to come back",
        )
    finally:
        is_over.set()
        sender.join(60)
    producer.flush()
    assert not producer.failed
    assert len(producer.acknowledged) == producer.sent > 400, "it was sent all the while"
    verdict = producer.judge(cluster.bootstrap_servers)
    assert verdict.is_clean, str(verdict)
    wait_until_in_sync(cluster)
    assert len(set(replica_bytes(cluster, "paused", 0).values())) == 1
