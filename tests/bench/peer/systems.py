"""The two systems under one interface: three combined nodes each, with the same keys where both know them.

May touch:  processes it starts, files below a directory, loopback.     Must not touch: broker code.
Invariants: a process that is started here is ended here, by its own id; both keep defaults but for SHARED.
Read next:  measure.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import ssl
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.bench.peer.results import OURS, THEIRS
from tests.bench.peer.rows import DURABLE
from tests.oracle.apache import HOST, ApacheBroker

KAFKA_VERSION = "4.4.0"
NODES = 3
SHARED = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "controller.quorum.election.timeout.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "min.insync.replicas": "2",
}
APACHE_FLAGS = (
    *("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
"""Of Kafka's own kafka-run-class.sh and kafka-server-start.sh."""
TIMEOUT_S = 60.0
FAST = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50, "topic.metadata.refresh.fast.interval.ms": 20}
"""A client that is there before the brokers are, and learns soon that they have come."""
TOPIC_BYTES_MAX = str(2 << 20)
TLS_PORT_OFFSET = 9
"""Of a node's encrypted listener, from the plain one's port on: beyond its other listeners."""
_names = itertools.count(1)


class Cluster(Protocol):
    """Three nodes."""

    bootstrap: str

    def prepare(self) -> None:
        """What is done once for a directory, such as its format."""

    def launch(self) -> None:
        """Start the processes, wait for nothing."""

    def stop(self) -> None:
        """End them."""

    def pids(self) -> list[int]:
        """Of the nodes that run."""

    def pid_of(self, broker_id: int) -> int:
        """Of one node."""

    def mend(self, broker_id: int) -> None:
        """Start a killed node again."""

    def durability(self, kind: str) -> dict[str, str]:
        """The topic configuration for "page cache" or "durable"."""


class Barnabas:
    """`LocalCluster`, which `barnabas dev` starts too."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap_servers

    def prepare(self) -> None:
        """Nothing: `launch` formats, which counts as its time."""

    def launch(self) -> None:
        """See Cluster."""
        self._cluster.launch()

    def stop(self) -> None:
        """See Cluster."""
        self._cluster.stop()

    def pids(self) -> list[int]:
        """See Cluster."""
        return [node.process.pid for node in self._cluster.nodes.values() if node.process is not None]

    def pid_of(self, broker_id: int) -> int:
        """See Cluster."""
        process = self._cluster.nodes[broker_id].process
        assert process is not None, "it was started"
        return process.pid

    def mend(self, broker_id: int) -> None:
        """See Cluster."""
        self._cluster.kill(broker_id)  # reaps it
        self._cluster.start_node(broker_id)

    def durability(self, kind: str) -> dict[str, str]:
        """See Cluster."""
        return {"log.flush.on.acks": "fsync" if kind == DURABLE else "page-cache"}


class Apache:
    """Kafka's own broker, three times."""

    def __init__(self, directory: Path) -> None:
        base = find_base_port()
        ids = range(1, NODES + 1)
        voters = ",".join(f"{number}@{HOST}:{base + 2 * number + 1}" for number in ids)
        self._nodes = {
            number: ApacheBroker(
                directory / f"node-{number}",
                port=base + 2 * number,
                overrides=SHARED
                | {
                    "node.id": str(number),
                    "controller.quorum.voters": voters,
                    "default.replication.factor": str(NODES),
                    "offsets.topic.replication.factor": str(NODES),
                    "share.coordinator.state.topic.min.isr": "2",
                    "share.coordinator.state.topic.replication.factor": str(NODES),
                },
                flags=APACHE_FLAGS,
                version=KAFKA_VERSION,
            )
            for number in ids
        }
        self.bootstrap = ",".join(f"{HOST}:{node.port}" for node in self._nodes.values())

    def prepare(self) -> None:
        """See Cluster."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(ApacheBroker.format, self._nodes.values()))

    def launch(self) -> None:
        """See Cluster."""
        for node in self._nodes.values():
            node.launch()

    def stop(self) -> None:
        """See Cluster."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(ApacheBroker.stop, self._nodes.values()))

    def pids(self) -> list[int]:
        """See Cluster."""
        return [node.process.pid for node in self._nodes.values() if node.process is not None]

    def pid_of(self, broker_id: int) -> int:
        """See Cluster."""
        process = self._nodes[broker_id].process
        assert process is not None, "it was started"
        return process.pid

    def mend(self, broker_id: int) -> None:
        """See Cluster."""
        self._nodes[broker_id].stop()  # reaps it
        self._nodes[broker_id].launch()

    def durability(self, kind: str) -> dict[str, str]:
        """See Cluster."""
        return {"flush.messages": "1"} if kind == DURABLE else {}


class Leader(NamedTuple):
    """Who leads a partition."""

    broker_id: int
    host: str
    port: int


class System:
    """A named cluster with its topics."""

    def __init__(
        self, name: str, cluster: Cluster, *, tls: ssl.SSLContext | None = None, lone: Sequence[int] = (1,)
    ) -> None:
        """tls: of clients of the encrypted listener, where there is one. lone: who has the replicas of topics with one each."""
        self.name = name
        self.cluster = cluster
        self.tls = tls
        self._lone = lone
        self.idle_partitions = 0
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **FAST})

    def start(self) -> None:
        """Returns when a topic of three replicas could be made."""
        self.cluster.prepare()
        self.cluster.launch()
        self.delete(self.create_first())

    def create_first(self, replicas: int = NODES) -> str:
        """Make a topic of one partition as soon as the cluster does."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return self.create(1, replicas, self.cluster.durability(DURABLE), waits_s=0.02)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def create(self, partitions: int, replicas: int, configs: dict[str, str], *, waits_s: float = 0.05) -> str:
        """A topic; returns when all partitions have their leader and whole ISR. With one replica each `lone` lead them in turn."""
        name = f"peer-{next(_names)}"
        alone = [[self._lone[index % len(self._lone)]] for index in range(partitions)]
        place = {"replica_assignment": alone} if replicas == 1 else {"replication_factor": replicas}
        settings = {**configs, "max.message.bytes": TOPIC_BYTES_MAX, "min.insync.replicas": str(max(1, replicas - 1))}
        topic = NewTopic(name, partitions, config=settings, **place)
        self.admin.create_topics([topic], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
        self.wait_whole(name, partitions, replicas, waits_s=waits_s)
        return name

    def wait_whole(self, name: str, partitions: int, replicas: int, *, waits_s: float = 0.05) -> None:
        """Until all replicas are in sync."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            found = self.admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
            if len(found) == partitions and all(
                part.leader >= 0 and len(part.isrs) == replicas for part in found.values()
            ):
                return
            time.sleep(waits_s)
        raise TimeoutError(f"topic {name} of {self.name} is not whole after {TIMEOUT_S} s")

    def leaders(self, topic: str) -> list[Leader]:
        """Of all its partitions, in order. Another broker than the one that knew the topic whole may answer, and not know it yet."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (metadata := self.admin.list_topics(topic, timeout=TIMEOUT_S)).topics[topic].partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no broker of {self.name} names the partitions of {topic}")
            time.sleep(0.1)
        return [
            Leader(part.leader, metadata.brokers[part.leader].host, metadata.brokers[part.leader].port)
            for _, part in sorted(metadata.topics[topic].partitions.items())
        ]

    def delete(self, topic: str) -> None:
        """Remove it, and wait out the removal of its files."""
        self.admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        time.sleep(0.8)
        os.sync()

    def add_idle(self, partitions: int) -> None:
        """Have so many partitions that nobody uses, three replicas each."""
        missing = partitions - self.idle_partitions
        if missing > 0:
            self.create(missing, NODES, self.cluster.durability(DURABLE))
            self.idle_partitions = partitions


@contextmanager
def running(directory: Path, *, with_kafka: bool) -> Iterator[list[System]]:
    """Both systems, started."""
    with contextlib.ExitStack() as stack:
        systems = []
        for name in (OURS, THEIRS) if with_kafka else (OURS,):
            system = make_system(name, directory)
            stack.callback(system.cluster.stop)
            system.start()
            systems.append(system)
        yield systems


def make_system(name: str, directory: Path) -> System:
    """Not started."""
    if name == THEIRS:
        return System(name, Apache(directory / "apache"))
    cluster = LocalCluster(directory / "barnabas", nodes=NODES, base_port=find_base_port(), overrides=SHARED)
    return System(name, Barnabas(cluster))
