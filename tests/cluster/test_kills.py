"""Leaders and the active controller are killed under load: nothing acknowledged is lost, duplicated or moved.

One cluster is killed for both: two producers send at the same time, one with acks=all and one with acks=1, each to a topic of its
own. The topics have the same replicas in the same order, so that a node that is killed leads partitions of both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient as KafkaAdminClient
from confluent_kafka.admin import NewTopic

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.rpc.admin_pb2 import Topic
from tests.cluster.workload import (
    UniqueProducer,
    active_controller,
    leaders,
    replica_bytes,
    wait_until_in_sync,
)
from tests.support.clusters import ForkedCluster
from tests.support.topics import wait_until_known

pytestmark = [pytest.mark.cluster]

RECORDS = 100_000
PARTITIONS = 3
REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
KILLS = 4
"""Of a leader, but for the last, which is of the active controller. Each interrupts the sending of an equal share of the records."""
PER_SECOND = 8_000
AMID_S = 0.5
"""How long after the start of a share its kill comes: the share takes several s."""
DEAD_S_MAX = 2.0
"""A killed node starts again when somebody else leads, or after this long."""


class Killed(NamedTuple):
    """What was left when everything was sent: the cluster runs again."""

    cluster: LocalCluster
    safe: UniqueProducer
    """acks=all."""
    risky: UniqueProducer
    """acks=1."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """Three combined nodes of these tests' own: they are broken on purpose."""
    with ForkedCluster(tmp_path_factory.mktemp("killed"), nodes=3, base_port=find_base_port()) as cluster:
        create_topics(cluster, "unique", "risky")
        safe = UniqueProducer(cluster.bootstrap_servers, "unique", partitions=PARTITIONS)
        risky = UniqueProducer(cluster.bootstrap_servers, "risky", acks="1", partitions=PARTITIONS)
        run_kills(cluster, safe, risky)
        yield Killed(cluster, safe, risky)


def create_topics(cluster: LocalCluster, *names: str) -> None:
    """RF 3, min.insync.replicas 2, replicas as in REPLICAS."""
    kafka = KafkaAdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {"min.insync.replicas": "2"}
    wanted = [NewTopic(name, PARTITIONS, replica_assignment=REPLICAS, config=config) for name in names]
    for made in kafka.create_topics(wanted).values():
        made.result(30)

    def described() -> list[Topic]:
        with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
            return list(admin.describe_topics(names))

    cluster.wait_until(lambda: all(topic.id for topic in described()), what="the topics being described")
    for topic in described():
        wait_until_known(cluster, topic.name, topic.id)


def kill_under_load(cluster: LocalCluster, node_id: int, *producers: UniqueProducer) -> None:
    """SIGKILL amid the sending of each producer's share, wait until others lead what it led, start it again, wait until all are
    in sync and every record has its report."""

    def led_by_it(producer: UniqueProducer) -> set[int]:
        return {partition for partition, leader in leaders(cluster, producer.topic).items() if leader == node_id}

    led = {producer.topic: led_by_it(producer) for producer in producers}
    killed = threading.Event()

    def send(producer: UniqueProducer) -> None:
        producer.send(RECORDS // KILLS // 2, per_second=PER_SECOND)
        killed.wait()  # on a busy machine the kill comes late; half of the records come after it in any case
        producer.send(RECORDS // KILLS // 2, per_second=PER_SECOND)

    senders = [threading.Thread(target=send, args=(producer,)) for producer in producers]
    for sender in senders:
        sender.start()
    try:
        time.sleep(AMID_S)
        cluster.kill(node_id)
        for producer in producers:
            producer.mark_kill(led[producer.topic])
        killed.set()
        deadline = time.monotonic() + DEAD_S_MAX
        while any(led_by_it(producer) for producer in producers) and time.monotonic() < deadline:
            time.sleep(0.05)
        cluster.start_node(node_id)
        wait_until_in_sync(cluster)
    finally:
        killed.set()
        for sender in senders:
            sender.join(120)
    for producer in producers:
        producer.flush()


def run_kills(cluster: LocalCluster, *producers: UniqueProducer) -> None:
    """Kill the leader of every topic's partition 0 three times and the active controller once, while all producers send."""
    led: set[int] = set()

    def have_one_leader() -> bool:
        nonlocal led
        led = {leaders(cluster, producer.topic)[0] for producer in producers}
        return len(led) == 1 and led <= cluster.nodes.keys()

    for _ in range(KILLS - 1):
        cluster.wait_until(have_one_leader, what="partition 0 of every topic being led by one node")
        kill_under_load(cluster, led.pop(), *producers)
    for producer in producers:
        assert len(producer.gaps) == KILLS - 1, "each of these kills interrupted the sending"
    kill_under_load(cluster, active_controller(cluster), *producers)


def assert_replicas_are_equal(cluster: LocalCluster, topic: str) -> None:
    for partition in range(PARTITIONS):
        replicas = replica_bytes(cluster, topic, partition)
        assert len(replicas) == 3
        assert len(set(replicas.values())) == 1, (
            f"replicas of {topic}-{partition} differ: {[len(b) for b in replicas.values()]}"
        )


def test_acks_all_loses_and_duplicates_nothing_while_leaders_and_the_controller_are_killed(killed: Killed) -> None:
    producer = killed.safe
    assert not producer.failed
    assert len(producer.acknowledged) == RECORDS
    verdict = producer.judge(killed.cluster.bootstrap_servers)
    print(verdict, "gaps", [f"{gap:.2f}" for gap in producer.gaps])
    assert verdict.is_clean, str(verdict)
    assert_replicas_are_equal(killed.cluster, producer.topic)


def test_acks_1_may_lose_and_the_checker_says_how_many(killed: Killed) -> None:
    producer = killed.risky
    verdict = producer.judge(killed.cluster.bootstrap_servers)
    print("acks=1:", verdict)
    assert not verdict.invented
    assert verdict.in_log >= RECORDS * 0.5
    assert_replicas_are_equal(killed.cluster, producer.topic)
