"""A compose file: combined nodes, Prometheus, Grafana with its dashboards, the web console.

May touch:  its arguments.            Must not touch: files, randomness (identities are given).
Invariants: only loopback of the host is published; voters are formatted once, from a file that is taken away afterwards.
Read next:  container.py; ../commands/generate.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas import __version__
from barnabas_admin.generating.container import (
    ADMIN_PORT,
    CONSOLE_PORT,
    CONTROLLER_PORT,
    DATA,
    DOCKERFILE,
    KAFKA_PORT,
    METRICS_PORT,
    environment,
    replication_of,
)
from barnabas_admin.generating.dashboards import DASHBOARDS
from barnabas_admin.generating.grafana import dashboard_files, provisioning_files
from barnabas_admin.generating.yaml import to_yaml
from barnabas_admin.prometheus import prometheus_config

IMAGE = f"barnabas:{__version__}"
PROMETHEUS_IMAGE = "prom/prometheus:v3.5.0"
GRAFANA_IMAGE = "grafana/grafana:12.1.0"
CONSOLE_PROBE = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{CONSOLE_PORT}/livez', timeout=4)"
OUTSIDE_PORT = 19092
"""Of the first node, on the host's loopback; the others follow."""
HEADER = """# Nodes, Prometheus, Grafana and the console; all of it on the host's loopback alone. By `barnabas generate compose`.
# First start:  docker compose --env-file first-start.env up -d --build
# afterwards:   rm first-start.env; docker compose up -d
# first-start.env formats the voters. Without it a node whose volume was lost joins without a vote: see docs/deploying.md.
"""


def compose_files(*, nodes: int, cluster_id: str, directory_ids: Sequence[str], alerts: str) -> dict[str, str]:
    """Every file by name; `directory_ids` one for each node, `alerts` the rules of Prometheus."""
    names = [f"node-{index + 1}" for index in range(nodes)]
    voters = ",".join(
        f"{index + 1}@{name}:{CONTROLLER_PORT}:{directory_ids[index]}" for index, name in enumerate(names)
    )
    scrape = prometheus_config({index + 1: f"{name}:{METRICS_PORT}" for index, name in enumerate(names)})
    services: dict[str, Any] = {name: _node(index + 1, names) for index, name in enumerate(names)}
    admins = ",".join(f"{name}:{ADMIN_PORT}" for name in names)
    services["console"] = {
        "image": IMAGE,
        "entrypoint": [
            "barnabas",
            "console",
            "--host",
            "0.0.0.0",
            "--port",
            str(CONSOLE_PORT),
            "--allow-remote",
            "--admin",
            admins,
        ],
        "ports": [f"127.0.0.1:{CONSOLE_PORT}:{CONSOLE_PORT}"],
        # The image's own asks a node's metrics listener, which a console has not.
        "healthcheck": {
            "test": ["CMD", "python", "-c", CONSOLE_PROBE],
            "interval": "10s",
            "timeout": "5s",
            "start_period": "60s",
        },
        "depends_on": names,
        "restart": "unless-stopped",
    }
    services["prometheus"] = {
        "image": PROMETHEUS_IMAGE,
        "volumes": ["./prometheus.yml:/etc/prometheus/prometheus.yml:ro", "./alerts.yml:/etc/prometheus/alerts.yml:ro"],
        "ports": ["127.0.0.1:9090:9090"],
        "restart": "unless-stopped",
    }
    services["grafana"] = {
        "image": GRAFANA_IMAGE,
        "environment": {
            "GF_AUTH_ANONYMOUS_ENABLED": "true",
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": "/var/lib/grafana/dashboards/barnabas-overview.json",
        },
        "volumes": [
            "./grafana/provisioning:/etc/grafana/provisioning:ro",
            "./grafana/dashboards:/var/lib/grafana/dashboards:ro",
        ],
        "ports": ["127.0.0.1:3000:3000"],
        "depends_on": ["prometheus"],
        "restart": "unless-stopped",
    }
    volumes: dict[str, Any] = {name: {} for name in names}
    return {
        "compose.yml": HEADER + to_yaml({"name": "barnabas", "services": services, "volumes": volumes}),
        "first-start.env": f"BARNABAS_FORMAT_FOR={cluster_id}/{voters}\n",
        "Dockerfile": DOCKERFILE,
        "prometheus.yml": scrape.replace("scrape_configs:", "rule_files: [alerts.yml]\nscrape_configs:"),
        "alerts.yml": alerts,
        **{f"grafana/dashboards/{name}": text for name, text in dashboard_files(DASHBOARDS).items()},
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


def _node(node_id: int, names: Sequence[str]) -> dict[str, Any]:
    outside = OUTSIDE_PORT + node_id - 1
    return {
        "image": IMAGE,
        "build": {"context": "."},
        "hostname": names[node_id - 1],
        "environment": {
            "BARNABAS_FORMAT_FOR": "${BARNABAS_FORMAT_FOR:-}",
            "BARNABAS_FORMAT_TO_JOIN": "true",
            **environment(node_properties(node_id, names)),
        },
        "volumes": [f"{names[node_id - 1]}:{DATA}"],
        "ports": [f"127.0.0.1:{outside}:{outside}"],
        "stop_grace_period": "2m",
        "restart": "unless-stopped",
    }
