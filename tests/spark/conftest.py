"""A cluster, a Spark session and topics for the tests of the source."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_wire.records.batch import Record, build_batch
from barnabas_wire.records.compression import CompressionType
from tests.spark.jvm import Jvm
from tests.support.clusters import ForkedCluster
from tests.support.topics import wait_until_known

_numbers = itertools.count(1)


class Topics:
    """Makes, fills and removes topics of one cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.wire = BlockingCluster(cluster.bootstrap_servers, client_id="test-producer")

    def admin(self) -> AdminClient:
        """The gRPC admin client."""
        return AdminClient(self.cluster.admin_addresses, timeout_s=20.0)

    def create(self, partitions: int = 1, *, name: str = "", **configs: str) -> str:
        """A topic whose name no other test has, or `name`; config keys with _ for the dot. Old timestamps are kept."""
        name = name or f"spark-{next(_numbers)}"
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        with self.admin() as admin:
            (outcome,) = admin.create_topics([name], partitions=partitions, replication_factor=3, configs=settings)
        assert not outcome.error.code, outcome.error.message
        wait_until_known(self.cluster, name, outcome.id)
        return name

    def delete(self, name: str) -> None:
        """Remove a topic; its name is free again when this returns."""
        with self.admin() as admin:
            (outcome,) = admin.delete_topics([name])
        assert not outcome.error.code, outcome.error.message

    def delete_records(self, topic: str, *, before: int, partition: int = 0) -> None:
        """Remove the records of one partition below an offset."""
        asked = DeleteRecordsTopic(
            name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)]
        )
        leader = self.wire.metadata([topic]).leader(TopicPartition(topic, partition))
        answer = self.wire.call(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), broker=leader)
        assert answer.topics[0].partitions[0].error_code == 0

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        compression: CompressionType = CompressionType.NONE,
    ) -> int:
        """Append one batch; returns the offset of its first record. Offsets of the records count from 0."""
        return self.wire.produce(TopicPartition(topic, partition), build_batch(records, compression=compression))

    def fill(self, topic: str, values: Sequence[bytes], *, partition: int = 0, batch: int = 50) -> None:
        """Append values, `batch` of them in each batch."""
        for first in range(0, len(values), batch):
            share = values[first : first + batch]
            self.produce(
                topic, [Record(at, 1000 + at, None, value) for at, value in enumerate(share)], partition=partition
            )


@pytest.fixture(scope="session")
def spark_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    """Started before the cluster, so that both start at the same time."""
    jvm = Jvm(tmp_path_factory.mktemp("spark"))
    yield jvm
    jvm.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes of these tests' own: some of them are killed."""
    with ForkedCluster(tmp_path_factory.mktemp("spark-cluster"), nodes=3, base_port=find_base_port()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(spark_jvm: Jvm, cluster: LocalCluster) -> SparkSession:
    """The session; JVM and cluster have started side by side."""
    return spark_jvm.connect()


@pytest.fixture(scope="session")
def topics(cluster: LocalCluster) -> Iterator[Topics]:
    """Topics on the cluster."""
    made = Topics(cluster)
    yield made
    made.wire.close()


@pytest.fixture
def options(cluster: LocalCluster) -> Callable[..., dict[str, str]]:
    """Options of the source, with the address of the cluster."""

    def make(**given: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": cluster.bootstrap_servers, **given}

    return make


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory in memory where there is one: a micro-batch writes many small files."""
    shared = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="barnabas-test-", dir=shared if shared.is_dir() else None))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
