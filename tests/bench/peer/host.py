"""A host of two brokers, with its controller, beside one node of Kafka's: what both make of two cores, in plain and with TLS.

May touch:  processes it starts, files below a directory, loopback.     Must not touch: broker code.
Invariants: CPU counts for the brokers, the controller and the host's own process; a process that is started here is ended here.
Read next:  tls.py, which has the node of Kafka's; ../hosts/cluster.py, which has the host.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.hosts.cluster import Hosts
from tests.bench.peer.results import OURS, THEIRS
from tests.bench.peer.systems import System
from tests.bench.peer.tls import issue, listeners, one_node

BROKERS = 2


class HostOfTwo:
    """`barnabas-server host`; a Cluster."""

    def __init__(self, certificate: Path) -> None:
        self.hosts = Hosts([BROKERS])
        (host,) = self.hosts.hosts
        first, controller = self.hosts.kafka_port(self.hosts.broker_ids[0]), self.hosts.controller_port(host)
        host.add(listeners(first, controller, certificate))
        self.bootstrap = self.hosts.bootstrap

    def prepare(self) -> None:
        """Nothing: `launch` formats."""

    def launch(self) -> None:
        """See Cluster; waits for it."""
        self.hosts.__enter__()

    def stop(self) -> None:
        """See Cluster."""
        self.hosts.close()

    def pids(self) -> list[int]:
        """See Cluster."""
        return self.hosts.pids()

    def pid_of(self, broker_id: int) -> int:
        """See Cluster."""
        return self.hosts.pid_of(broker_id)

    def mend(self, broker_id: int) -> None:
        """See Cluster; its host starts it."""
        self.hosts.hosts[0].wait()

    def durability(self, kind: str) -> dict[str, str]:
        """See Cluster: page cache is Kafka's way."""
        return {"log.flush.on.acks": "page-cache"}


@contextmanager
def running(directory: Path, *, with_kafka: bool) -> Iterator[list[System]]:
    """Both systems, started; see tls.running."""
    certificate = issue(directory)
    with contextlib.ExitStack() as stack:
        ours = HostOfTwo(certificate)
        stack.callback(ours.stop)
        tls = ssl.create_default_context(cafile=str(certificate.with_name("ca.pem")))
        systems = [System(OURS, ours, tls=tls, lone=ours.hosts.broker_ids)]
        if with_kafka:
            theirs = one_node(THEIRS, directory, certificate)
            stack.callback(theirs.cluster.stop)
            systems.append(theirs)
        for system in systems:
            system.cluster.prepare()
            system.cluster.launch()
            system.delete(system.create_first(replicas=1))
        yield systems
