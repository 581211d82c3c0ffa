"""`kafka.client.rack`: a task reads from the replica in its rack, and from the leader when that one is gone (KIP-392)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from pyspark_barnabas.options import parse_options
from pyspark_barnabas.reader import read_range
from pyspark_barnabas.source import RangePartition, source_schema
from tests.support.clusters import ForkedCluster
from tests.support.topics import wait_until_known

pytestmark = pytest.mark.cluster

OVERRIDES = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
RECORDS, VALUE_BYTES = 2_000, 1_000


class RackedCluster(ForkedCluster):
    """Every node in a rack of its own, named by its id."""

    def properties(self, node_id: int) -> dict[str, str]:
        return super().properties(node_id) | {"broker.rack": f"rack-{node_id}"}


@pytest.fixture
def racked(tmp_path: Path) -> Iterator[LocalCluster]:
    with RackedCluster(tmp_path, nodes=3, base_port=find_base_port(), overrides=OVERRIDES) as running:
        yield running


def bytes_out(cluster: LocalCluster, topic: str) -> dict[int, float]:
    """Bytes of the topic that each node that lives has given to consumers."""
    found = {}
    for node in cluster.brokers:
        _, page = cluster.http_get(node.id, "/metrics")
        lines = [line for line in page.splitlines() if re.match(r"barnabas_topic_bytes_total\{", line)]
        ours = [line for line in lines if f'topic="{topic}"' in line and 'direction="out"' in line]
        found[node.id] = sum(float(line.rpartition(" ")[2]) for line in ours)
    return found


def test_the_bytes_come_from_the_replica_in_the_rack_and_from_the_leader_when_it_is_gone(racked: LocalCluster) -> None:
    with AdminClient(racked.admin_addresses, timeout_s=20.0) as admin:
        (made,) = admin.create_topics(["racked"], partitions=1, replication_factor=3)
    wait_until_known(racked, "racked", made.id)
    producer = Producer({"bootstrap.servers": racked.bootstrap_servers})
    for at in range(RECORDS):
        producer.produce("racked", b"%d" % at + bytes(VALUE_BYTES))
        producer.poll(0)
    assert producer.flush(30) == 0
    leader = producer.list_topics("racked", timeout=20).topics["racked"].partitions[0].leader
    follower = next(node.id for node in racked.brokers if node.id != leader)

    def read(rack: str) -> dict[int, float]:
        """The whole topic; bytes that each node gave for it."""
        before = bytes_out(racked, "racked")
        given = {"kafka.bootstrap.servers": racked.bootstrap_servers, "subscribe": "racked", "kafka.client.rack": rack}
        options = parse_options(given, is_stream=False)
        whole = RangePartition("racked", str(made.id), 0, 0, RECORDS)
        batches = list(read_range(whole, options, source_schema(given)))
        assert sum(batch.num_rows for batch in batches) == RECORDS
        after = bytes_out(racked, "racked")
        return {node: after[node] - before[node] for node in after if after[node] > before[node]}

    served = read(f"rack-{follower}")
    assert served[follower] > RECORDS * VALUE_BYTES and leader not in served, f"{served}, the leader is {leader}"
    assert set(read("rack-nowhere")) == {leader}
    racked.kill(follower)
    assert set(read(f"rack-{follower}")) == {leader}
