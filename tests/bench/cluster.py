"""A cluster of real `barnabas-server` processes for the benchmark, and what its metrics pages said between two moments.

May touch:  local_cluster, the Kafka admin client, /metrics.    Must not touch: broker code.
Invariants: every run has a topic of its own, and its files are gone before the next begins; a metric is read as the
            difference over the run.
Read next:  __main__.py.
"""

from __future__ import annotations

import itertools
import os
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port

OVERRIDES = {
    "log.segment.delete.delay.ms": "500",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "controller.quorum.election.timeout.ms": "500",  # as `barnabas dev` starts its nodes
}
TOPIC_TIMEOUT_S = 20.0


class Leader(NamedTuple):
    """Who leads a partition."""

    host: str
    port: int
    partition: int


class Snapshot(NamedTuple):
    """All counters of all nodes at one moment: (name, labels) -> sum."""

    values: Mapping[tuple[str, str], float]

    def quantile_ms(self, before: Snapshot, name: str, label: str, fraction: float) -> float:
        """Quantile of a histogram of seconds over the time since `before`: the upper bound of the bucket it falls in."""
        buckets = []
        for (key, labels), value in self.values.items():
            if key == f"{name}_bucket" and label in labels:
                upper = float(labels.partition('le="')[2].partition('"')[0])
                buckets.append((upper, value - before.values.get((key, labels), 0.0)))
        buckets.sort()
        total = buckets[-1][1] if buckets else 0.0
        for bound, count in buckets:
            if total and count >= fraction * total:
                return bound * 1000
        return 0.0

    def grown(self, before: Snapshot, name: str) -> float:
        """How much a counter has grown, over all nodes and labels."""
        return sum(
            value - before.values.get((key, labels), 0.0) for (key, labels), value in self.values.items() if key == name
        )


class BenchCluster:
    """Combined nodes; use as a context manager."""

    def __init__(self, directory: Path, *, nodes: int) -> None:
        self.directory = directory
        self.node_count = nodes
        self.start_s = 0.0
        self._cluster = LocalCluster(directory, nodes=nodes, base_port=find_base_port(), overrides=OVERRIDES)
        self._names = itertools.count(1)
        self._admin: AdminClient

    def __enter__(self) -> BenchCluster:
        started = time.perf_counter()
        self._cluster.start()
        self.start_s = time.perf_counter() - started
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.stop()

    @property
    def bootstrap(self) -> str:
        """host:port, comma-separated."""
        return self._cluster.bootstrap_servers

    @property
    def pids(self) -> list[int]:
        """Of the living nodes."""
        return [node.process.pid for node in self._cluster.nodes.values() if node.process is not None]

    def create_topic(self, *, partitions: int, replicas: int, durability: str) -> tuple[str, list[Leader]]:
        """A fresh topic; returns when every partition has its leader and its full ISR."""
        name = f"bench-{next(self._names)}"
        topic = NewTopic(name, partitions, replicas, config={"log.flush.on.acks": durability})
        self._admin.create_topics([topic])[name].result(TOPIC_TIMEOUT_S)
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        while time.monotonic() < deadline:
            metadata = self._admin.list_topics(name, timeout=TOPIC_TIMEOUT_S)
            found = metadata.topics[name].partitions
            if len(found) == partitions and all(
                part.leader in metadata.brokers and len(part.isrs) == replicas for part in found.values()
            ):
                return name, [
                    Leader(metadata.brokers[part.leader].host, metadata.brokers[part.leader].port, index)
                    for index, part in sorted(found.items())
                ]
            time.sleep(0.05)
        raise TimeoutError(f"topic {name} has no leaders after {TOPIC_TIMEOUT_S} s")

    def records(self, topic: str) -> int:
        """The ends of its partitions, together."""
        partitions = self._admin.list_topics(topic, timeout=TOPIC_TIMEOUT_S).topics[topic].partitions
        asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in partitions}
        answers = self._admin.list_offsets(asked, request_timeout=TOPIC_TIMEOUT_S)
        return sum(answer.result(TOPIC_TIMEOUT_S).offset for answer in answers.values())

    def segment(self, topic: str) -> Path:
        """The first segment of partition 0 on the only node."""
        (node,) = self._cluster.nodes.values()
        return min((node.data_directory / f"{topic}-0").glob("*.log"))

    def delete_topic(self, name: str) -> None:
        """Remove it, wait until its files are gone too, and until the disk has done what it had to do for that."""
        self._admin.delete_topics([name])[name].result(TOPIC_TIMEOUT_S)
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        while any(
            directory.name.startswith(f"{name}-")
            for node in self._cluster.nodes.values()
            for directory in node.data_directory.iterdir()
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the files of topic {name} are still there after {TOPIC_TIMEOUT_S} s")
            time.sleep(0.05)
        os.sync()

    def snapshot(self) -> Snapshot:
        """Read every node's metrics page."""
        values: dict[tuple[str, str], float] = {}
        for url in self._cluster.metrics_urls:
            with urllib.request.urlopen(url, timeout=10) as page:
                for line in page.read().decode().splitlines():
                    if line.startswith("#"):
                        continue
                    series, _, value = line.rpartition(" ")
                    name, _, labels = series.partition("{")
                    key = (name, labels)
                    values[key] = values.get(key, 0.0) + float(value)
        return Snapshot(values)
