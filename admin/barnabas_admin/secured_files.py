"""The files of a secured cluster on several machines: properties, certificates, logins, and what is done once on each machine.

May touch:  files below the directory it is given, the system's randomness.     Must not touch: sockets, processes, a cluster.
Invariants: nothing is written over; files with a secret have mode 0600; a node's certificate and its properties name the same cluster.
Read next:  local_security.py, which makes the same for `barnabas dev --secure`; commands/storage.py.

    config/node-N.properties     of a controller (101, …) or a broker (1, …); needs its own pki/node-N.pem, and pki/ca.pem
    first-start.sh               formats the controllers, once: the quorum's first voters, and the user `admin`
    prometheus/                  scrapes these nodes; alerts
    and what local_security.py names: pki/, client.properties, …
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.errors import WrongUsage
from barnabas_admin.generating.container import (
    ADMIN_PORT,
    CONTROLLER_PORT,
    INTERNAL_PORT,
    KAFKA_PORT,
    METRICS_PORT,
    replication_of,
)
from barnabas_admin.local_security import MECHANISM, USER, LocalSecurity
from barnabas_admin.prometheus import prometheus_config
from barnabas_wire.java_properties import property_line
from barnabas_wire.kafka.ids import is_host
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.rpc.options import address_of

FIRST_CONTROLLER = 101
FIRST_START = "first-start.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNode:
    """A node of such a cluster. A controller's admin and metrics listeners have the ports behind those of the machine's broker."""

    id: int
    host: str
    is_broker: bool
    kafka_port: int | None = None
    internal_port: int | None = None

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"node-{self.id}"

    def at(self, port: int) -> str:
        """Address of its admin or metrics listener."""
        return address_of(self.host, port if self.is_broker else port + 1)


def plan(hosts: Sequence[str]) -> list[PlannedNode]:
    """Controllers, an odd number of at most five, then a broker on each host. Raises WrongUsage."""
    wrong = [host for host in hosts if not is_host(host)]
    if wrong or len(set(hosts)) != len(hosts):
        what = f"{wrong[0]!r} is no host" if wrong else "a host is named twice"
        raise WrongUsage(
            f"--hosts: {what}", hint="names or addresses of different machines, comma-separated: a.example,b.example"
        )
    voters = 5 if len(hosts) >= 5 else 3 if len(hosts) >= 3 else 1
    controllers = [
        PlannedNode(id=FIRST_CONTROLLER + index, host=host, is_broker=False)
        for index, host in enumerate(hosts[:voters])
    ]
    brokers = [
        PlannedNode(id=1 + index, host=host, is_broker=True, kafka_port=KAFKA_PORT, internal_port=INTERNAL_PORT)
        for index, host in enumerate(hosts)
    ]
    return controllers + brokers


def write_secured_cluster(directory: Path, hosts: Sequence[str], *, home: Path | None, data: Path) -> list[Path]:
    """Write all of it; returns the files.

    Args:
        hosts: of a machine each.
        home: where the directory lies on the machines; None: as here.
        data: below which the machines keep their data.

    Raises FileExistsError before anything is written when the directory is there; WrongUsage.
    """
    nodes = plan(hosts)
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(directory)
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    cluster_id = str(random_uuid())
    there = (home or directory).absolute()
    security = LocalSecurity(directory.absolute(), cluster_id, {node.id: node.host for node in nodes}, home=there)
    security.write(nodes)
    controllers = [node for node in nodes if not node.is_broker]
    bootstrap = ",".join(address_of(node.host, CONTROLLER_PORT) for node in controllers)
    for node in nodes:
        properties = _properties(node, security, bootstrap, brokers=len(hosts), data=data)
        _write(
            directory / "config" / f"{node.name}.properties",
            f"# {'Broker' if node.is_broker else 'Controller'} {node.id} of {node.host}, which needs pki/{node.name}.pem and pki/ca.pem.\n"
            + "".join(property_line(key, value) for key, value in properties.items()),
            mode=0o600,
        )
    voters = ",".join(f"{node.id}@{address_of(node.host, CONTROLLER_PORT)}:{random_uuid()}" for node in controllers)
    _write(directory / FIRST_START, _first_start(nodes, cluster_id, voters, there), mode=0o700)
    _write_prometheus(directory / "prometheus", nodes)
    brokers = ",".join(address_of(node.host, KAFKA_PORT) for node in nodes if node.is_broker)
    admins = ",".join(node.at(ADMIN_PORT) for node in nodes if node.is_broker)
    _write(
        directory / "profile.sh",
        "# . profile.sh: `barnabas` commands then reach the cluster, as the user admin.\n"
        f"export BARNABAS_ADMIN={admins} BARNABAS_BROKERS={brokers}\n"
        f"export BARNABAS_CLIENT_CONFIG={security.client_file}\n",
        mode=0o644,
    )
    return sorted(file for file in directory.rglob("*") if file.is_file())


def _properties(
    node: PlannedNode, security: LocalSecurity, bootstrap: str, *, brokers: int, data: Path
) -> dict[str, str]:
    listeners = (
        security.listeners(node) if node.is_broker else [f"CONTROLLER://{address_of(node.host, CONTROLLER_PORT)}"]
    )
    found = {
        "process.roles": "broker" if node.is_broker else "controller",
        "node.id": str(node.id),
        "listeners": ",".join(listeners),
        "controller.quorum.bootstrap.servers": bootstrap,
        "admin.listeners": node.at(ADMIN_PORT),
        "metrics.listeners": node.at(METRICS_PORT),
        "log.dirs": str(data / node.name),
        **replication_of(brokers),
    }
    if node.is_broker:
        found["broker.rack"] = node.host
    else:
        found["min.insync.replicas"] = str(max(1, min(3, brokers) - 1))
    return found | security.properties(node)


def _first_start(nodes: Sequence[PlannedNode], cluster_id: str, voters: str, home: Path) -> str:
    lines = [
        "#!/bin/sh",
        "# Once for each controller, on its machine: sh first-start.sh ID. It formats a first voter; brokers format themselves.",
        "# Then start the nodes. Keep this file from a machine whose controller has lost its disk: there it is",
        "#   barnabas storage format -c FILE --cluster-id ID --no-initial-controllers, and barnabas quorum replace-voter ID.",
        *(f"#   {node.host}: barnabas-server -c {home}/config/{node.name}.properties" for node in nodes),
        "set -eu",
        f'password=$(cat "{home}/password")',
        f'exec barnabas storage format -c "{home}/config/node-$1.properties" --cluster-id {cluster_id} \\',
        f"  --initial-controllers {voters} \\",
        f'  --add-scram "{MECHANISM}=[name={USER},password=$password]" \\',
        f'  --add-scram "SCRAM-SHA-256=[name={USER},password=$password]"',
    ]
    return "\n".join(lines) + "\n"


def _write_prometheus(directory: Path, nodes: Sequence[PlannedNode]) -> None:
    from importlib.resources import files

    text = prometheus_config({node.id: node.at(METRICS_PORT) for node in nodes})
    _write(directory / "prometheus.yml", text, mode=0o644)
    alerts = (files("barnabas_admin.samples") / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    _write(directory / "alerts.yml", alerts, mode=0o644)


def _write(file: Path, text: str, *, mode: int) -> None:
    file.parent.mkdir(exist_ok=True)
    file.touch(mode=mode, exist_ok=False)
    file.write_text(text, encoding="utf-8")
