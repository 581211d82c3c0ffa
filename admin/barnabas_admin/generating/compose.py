"""A compose file: combined nodes, or hosts of several brokers, Prometheus, Grafana with its dashboards, the web console.

May touch:  its arguments.            Must not touch: files, randomness (identities are given).
Invariants: only loopback of the host is published; voters are formatted once, from a file that is taken away afterwards.
Read next:  container.py; ../commands/generate.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas import __version__
from barnabas_admin.generating.container import (
    ADMIN_PORT,
    CONTROLLER_PORT,
    DATA,
    KAFKA_PORT,
    METRICS_PORT,
    PORTS,
    dockerfile,
    replication_of,
    variables,
)
from barnabas_admin.generating.grafana import dashboard_files, provisioning_files
from barnabas_admin.generating.templates import filled_in
from barnabas_admin.prometheus import prometheus_config
from barnabas_wire.java_properties import property_line

IMAGE = f"barnabas:{__version__}"
INSIDE_PORT = 9100
"""The port of a host's first broker, between containers; its others follow."""
OUTSIDE_PORT = 19092
"""The port of the first node, on the host's loopback; the others follow."""


def compose_files(
    *, nodes: int, cluster_id: str, directory_ids: Sequence[str], alerts: str, brokers_per_host: int | None = None
) -> dict[str, str]:
    """Every file by name; `directory_ids` one for each node, `alerts` the rules of Prometheus. `brokers_per_host`: each of the nodes is a
    host with so many brokers and a controller; None: a process that is both."""
    count = brokers_per_host
    names = [f"{'node' if count is None else 'host'}-{index + 1}" for index in range(nodes)]
    voters = ",".join(
        f"{index + 1}@{name}:{CONTROLLER_PORT}:{directory_ids[index]}" for index, name in enumerate(names)
    )
    scraped = {index + 1: f"{name}:{METRICS_PORT - (count is not None)}" for index, name in enumerate(names)}
    for index, name in enumerate(names):
        scraped |= {_first_broker(index) + place: f"{name}:{METRICS_PORT + place}" for place in range(count or 0)}
    facts = {
        **PORTS,
        "image": IMAGE,
        "data": DATA,
        "admins": ",".join(f"{name}:{ADMIN_PORT}" for name in names),
        "nodes": [
            {
                "name": name,
                "outside": OUTSIDE_PORT + index if count is None else _outside_ports(index, count),
                "variables": variables(node_properties(index + 1, names) if count is None else {}),
                "file": "" if count is None else f"{name}.properties",
                "stop_grace": "2m" if count is None else "4m",
            }
            for index, name in enumerate(names)
        ],
    }
    hosts = {} if count is None else {f"{name}.properties": _host_file(name, names, count) for name in names}
    return {
        "compose.yml": filled_in("compose.yml", facts),
        "first-start.env": f"BARNABAS_FORMAT_FOR={cluster_id}/{voters}\n",
        "Dockerfile": dockerfile(),
        "prometheus.yml": prometheus_config(scraped),
        **hosts,
        "alerts.yml": alerts,
        **{f"grafana/dashboards/{name}": text for name, text in dashboard_files().items()},
        **{f"grafana/provisioning/{name}": text for name, text in provisioning_files("http://prometheus:9090").items()},
    }


def _first_broker(index: int) -> int:
    return 100 * (index + 1) + 1


def _outside_ports(index: int, count: int) -> str:
    first = OUTSIDE_PORT + 100 * index
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _host_file(own: str, names: Sequence[str], count: int) -> str:
    """The host.properties of a host whose name is `own`: ports are those of its first broker."""
    index = names.index(own)
    outside = OUTSIDE_PORT + 100 * index
    properties = node_properties(index + 1, names) | {
        "controller.node.id": str(index + 1),
        "node.id": str(_first_broker(index)),
        "brokers": str(count),
        "listeners": f"INSIDE://0.0.0.0:{INSIDE_PORT},OUTSIDE://0.0.0.0:{outside},CONTROLLER://0.0.0.0:{CONTROLLER_PORT}",
        "advertised.listeners": f"INSIDE://{own}:{INSIDE_PORT},OUTSIDE://127.0.0.1:{outside},CONTROLLER://{own}:{CONTROLLER_PORT}",
        **replication_of(len(names) * count),
    }
    return "".join(property_line(key, value) for key, value in properties.items())


def node_properties(node_id: int, names: Sequence[str]) -> dict[str, str]:
    """The properties of a combined node whose host is its name."""
    outside = OUTSIDE_PORT + node_id - 1
    own = names[node_id - 1]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"INSIDE://0.0.0.0:{KAFKA_PORT},OUTSIDE://0.0.0.0:{outside},CONTROLLER://0.0.0.0:{CONTROLLER_PORT}",
        "advertised.listeners": f"INSIDE://{own}:{KAFKA_PORT},OUTSIDE://127.0.0.1:{outside},CONTROLLER://{own}:{CONTROLLER_PORT}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "controller.quorum.bootstrap.servers": ",".join(f"{name}:{CONTROLLER_PORT}" for name in names),
        "controller.listeners.allow.remote": "true",
        "admin.listeners": f"0.0.0.0:{ADMIN_PORT}",
        "admin.listeners.allow.remote": "true",
        "metrics.listeners": f"0.0.0.0:{METRICS_PORT}",
        "log.dirs": f"{DATA}/data",
        "min.insync.replicas": str(max(1, min(3, len(names)) - 1)),
        **replication_of(len(names)),
    }
