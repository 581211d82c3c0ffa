"""One node of each system with a TLS listener beside the plain one, and the same certificate: what encryption costs.

May touch:  processes it starts, files below a directory, loopback.     Must not touch: broker code.
Invariants: topics are made over the plain listener, measured is the encrypted one; a process that is started here is ended here.
Read next:  measure.py, which measures; systems.py for three nodes.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas_admin import pki
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.bench.peer.results import OURS, THEIRS
from tests.bench.peer.systems import APACHE_FLAGS, KAFKA_VERSION, SHARED, TLS_PORT_OFFSET, Barnabas, Cluster, System
from tests.oracle.apache import HOST, ApacheBroker

ONE_NODE = {"min.insync.replicas": "1", "default.replication.factor": "1"}


class ApacheNode:
    """Kafka's own broker, once; a Cluster."""

    def __init__(self, node: ApacheBroker) -> None:
        self._node = node
        self.bootstrap = f"{HOST}:{node.port}"

    def prepare(self) -> None:
        """See Cluster."""
        self._node.format()

    def launch(self) -> None:
        """See Cluster."""
        self._node.launch()

    def stop(self) -> None:
        """See Cluster."""
        self._node.stop()

    def pids(self) -> list[int]:
        """See Cluster."""
        return [self._node.process.pid] if self._node.process is not None else []

    def pid_of(self, broker_id: int) -> int:
        """See Cluster."""
        (pid,) = self.pids()
        return pid

    def mend(self, broker_id: int) -> None:
        """See Cluster."""
        self.stop()
        self.launch()

    def durability(self, kind: str) -> dict[str, str]:
        """See Cluster: page cache is Kafka's way."""
        return {}


def listeners(port: int, controller_port: int, certificate: Path) -> dict[str, str]:
    """Properties that both systems know: of all ports, a node's first."""
    clients = f"PLAINTEXT://{HOST}:{port},TLS://{HOST}:{port + TLS_PORT_OFFSET}"
    return {
        "listeners": f"{clients},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": str(certificate),
    }


def one_node(name: str, directory: Path, certificate: Path) -> System:
    shared = SHARED | ONE_NODE
    cluster: Cluster
    if name == THEIRS:
        port = find_base_port()
        overrides = shared | listeners(port, port + 1, certificate)
        cluster = ApacheNode(
            ApacheBroker(
                directory / "apache", port=port, overrides=overrides, flags=APACHE_FLAGS, version=KAFKA_VERSION
            )
        )
    else:
        local = LocalCluster(directory / "barnabas", nodes=1, base_port=find_base_port(), overrides=shared)
        node = local.nodes[1]
        assert node.kafka_port is not None and node.controller_port is not None, "one node is both"
        local.overrides |= listeners(node.kafka_port, node.controller_port, certificate)
        cluster = Barnabas(local)
    return System(name, cluster, tls=ssl.create_default_context(cafile=str(certificate.with_name("ca.pem"))))


def issue(directory: Path) -> Path:
    """A certificate of this address, with `ca.pem` beside it."""
    pki.init(directory / "pki")
    return pki.issue(directory / "pki", "node", hosts=[HOST])


@contextmanager
def running(directory: Path, *, with_kafka: bool) -> Iterator[list[System]]:
    """Both systems, started; each has `tls`, and its encrypted listener TLS_PORT_OFFSET above the plain one."""
    certificate = issue(directory)
    with contextlib.ExitStack() as stack:
        systems = []
        for name in (OURS, THEIRS) if with_kafka else (OURS,):
            system = one_node(name, directory, certificate)
            stack.callback(system.cluster.stop)
            system.cluster.prepare()
            system.cluster.launch()
            system.delete(system.create_first(replicas=1))
            systems.append(system)
        yield systems
