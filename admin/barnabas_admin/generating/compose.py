"""A compose file: combined nodes, Prometheus, Grafana with its dashboards, the web console.

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

IMAGE = f"barnabas:{__version__}"
OUTSIDE_PORT = 19092
"""Of the first node, on the host's loopback; the others follow."""


def compose_files(*, nodes: int, cluster_id: str, directory_ids: Sequence[str], alerts: str) -> dict[str, str]:
    """Every file by name; `directory_ids` one for each node, `alerts` the rules of Prometheus."""
    names = [f"node-{index + 1}" for index in range(nodes)]
    voters = ",".join(
        f"{index + 1}@{name}:{CONTROLLER_PORT}:{directory_ids[index]}" for index, name in enumerate(names)
    )
    scrape = prometheus_config({index + 1: f"{name}:{METRICS_PORT}" for index, name in enumerate(names)})
    facts = {
        **PORTS,
        "image": IMAGE,
        "data": DATA,
        "admins": ",".join(f"{name}:{ADMIN_PORT}" for name in names),
        "nodes": [
            {"name": name, "outside": OUTSIDE_PORT + index, "variables": variables(node_properties(index + 1, names))}
            for index, name in enumerate(names)
        ],
    }
    return {
        "compose.yml": filled_in("compose.yml", facts),
        "first-start.env": f"BARNABAS_FORMAT_FOR={cluster_id}/{voters}\n",
        "Dockerfile": dockerfile(),
        "prometheus.yml": scrape,
        "alerts.yml": alerts,
        **{f"grafana/dashboards/{name}": text for name, text in dashboard_files().items()},
        **{f"grafana/provisioning/{name}": text for name, text in provisioning_files("http://prometheus:9090").items()},
    }


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
