"""The Prometheus configuration that scrapes a cluster's nodes.

May touch:  its arguments.            Must not touch: files, network.
Invariants: one target per node, labelled with its node id; the text is valid YAML.
Read next:  local_cluster.py, which writes it beside the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

SCRAPE_INTERVAL_S = 5


def prometheus_config(targets: Mapping[int, str]) -> str:
    """prometheus.yml for `targets`: node id -> host:port of its metrics listener."""
    lines = [
        "global:",
        f"  scrape_interval: {SCRAPE_INTERVAL_S}s",
        f"  evaluation_interval: {SCRAPE_INTERVAL_S}s",
        "scrape_configs:",
        "  - job_name: barnabas",
        "    static_configs:",
    ]
    for node_id, address in targets.items():
        lines += [f"      - targets: ['{address}']", f"        labels: {{node: '{node_id}'}}"]
    return "\n".join(lines) + "\n"
