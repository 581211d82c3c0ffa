"""Apache Kafka beside Barnabas, both as a single node, for the tests that compare them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.records.batch import Record, build_batch
from barnabas_wire.records.compression import CompressionType
from tests.compat.samples import until
from tests.oracle import apache, history
from tests.oracle.answers import Side
from tests.oracle.cases import T0
from tests.oracle.cases.produce import init_producer_id, produce
from tests.support.clusters import ForkedCluster

SHARED = {
    # what both are told, so that a difference is never one of configuration
    "default.replication.factor": "1",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "log.retention.ms": "-1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}


TOPIC = "dumped"
GROUP = "dumping"
RECORDS = 4000
BATCH_RECORDS = 20
APACHE_PORT_OFFSET = 5
"""Kafka's two ports lie in the block of a cluster's broker ports, of which a single node needs one."""


class Written(NamedTuple):
    """The files of a node that was stopped cleanly, and what is in them."""

    properties_file: Path
    data: Path
    cluster_id: str
    producer_id: int
    values: list[str]
    """Of TOPIC's records, in order."""


class Pair(NamedTuple):
    """The two brokers, after a restart that was no clean one; history.py says what they had written before."""

    apache: Side
    ours: Side
    apache_files: dict[str, dict[str, bytes]]
    """What Kafka had left on disk, by topic and file name, before it was started again."""
    our_files: dict[str, dict[str, bytes]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is an oracle test."""
    for item in items:
        if __package__ in item.nodeid.replace("/", "."):
            item.add_marker(pytest.mark.oracle)


@pytest.fixture(scope="package")
def jars() -> None:
    """Skips when Apache Kafka cannot be run here."""
    reason = apache.missing()
    if reason is not None:
        pytest.skip(reason)


@contextmanager
def both_running(theirs: apache.ApacheBroker, ours: LocalCluster) -> Iterator[None]:
    """Both brokers, started at the same time and stopped cleanly."""
    ours.launch()
    try:
        with theirs:
            ours.wait_until_healthy()
            yield
    finally:
        ours.stop()


@pytest.fixture(scope="package")
def pair(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both brokers in their second incarnation."""
    directory = tmp_path_factory.mktemp("oracle")
    base_port = find_base_port()
    theirs = apache.ApacheBroker(directory / "apache", port=base_port + APACHE_PORT_OFFSET, overrides=SHARED)
    # As Kafka, which opens every batch.
    overrides = SHARED | {"validate.batches": "all"}
    ours = ForkedCluster(directory / "barnabas", nodes=1, base_port=base_port, overrides=overrides)
    sides = Side("apache", apache.HOST, theirs.port), Side("barnabas", apache.HOST, base_port)
    with both_running(theirs, ours), ThreadPoolExecutor() as at_once:
        list(at_once.map(history.write, sides))
        for side in sides:
            side.close()
    directories = theirs.data, ours.nodes[1].data_directory
    files = [{topic: history.files_of(data, topic) for topic in history.TOPICS} for data in directories]
    history.exchange(*directories)
    for data in directories:
        history.tear(data)
    with both_running(theirs, ours):
        for side in sides:
            for topic in history.TOPICS:
                side.find_topic(topic)
        yield Pair(*sides, *files)
        for side in sides:
            side.close()


@pytest.fixture(scope="package")
def cluster(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes, in which a new group need not wait for more members, a transaction can be made to hang, and clients may push metrics."""
    overrides = {
        "group.initial.rebalance.delay.ms": "0",
        "transaction.partition.verification.enable": "false",
        "telemetry.receiver": "true",
    }
    with ForkedCluster(
        tmp_path_factory.mktemp("console"), nodes=3, base_port=find_base_port(), overrides=overrides
    ) as running:
        yield running


@pytest.fixture(scope="package")
def written(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Small segments of batches of every compression from an idempotent producer, read by a group to the end."""
    random = Random(7)
    values = [random.randbytes(450).hex() for _ in range(RECORDS)]
    base_port = find_base_port()
    directory = tmp_path_factory.mktemp("written")
    with ForkedCluster(directory, nodes=1, base_port=base_port, overrides=SHARED) as cluster:
        side = Side("barnabas", apache.HOST, base_port)
        topic = side.topic(TOPIC, segment_bytes=str(1 << 20))
        producer_id = init_producer_id(side).producer_id
        for number, first in enumerate(range(0, RECORDS, BATCH_RECORDS)):
            chunk = values[first : first + BATCH_RECORDS]
            batch = build_batch(
                [Record(index, T0 + first + index, None, value.encode()) for index, value in enumerate(chunk)],
                compression=list(CompressionType)[number % len(CompressionType)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=first,
            )
            assert produce(side, topic, batch).error_code == 0
        side.close()
        _read_to_the_end(cluster.bootstrap_servers)
        node = cluster.nodes[1]
    return Written(node.properties_file, node.data_directory, cluster.cluster_id, producer_id, values)


def _read_to_the_end(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    seen: list[int] = []
    until(
        lambda: len(seen) == RECORDS,
        lambda: seen.extend(message.offset() or 0 for message in consumer.consume(RECORDS, 0.2)),
    )
    consumer.commit(asynchronous=False)
    consumer.close()
