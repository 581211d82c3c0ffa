"""The Prometheus configuration that scrapes a cluster's nodes.

May touch:  its arguments.            Must not touch: files, network.
Invariants: one target per node, labelled with its node id; the text is valid YAML.
Read next:  local_cluster.py, which writes it beside the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

SCRAPE_INTERVAL_S = 5


def prometheus_config(
    targets: Mapping[int, str],
    *,
    cluster: str = "",
    notes: Mapping[int, str] | None = None,
    rule_file: str = "alerts.yml",
) -> str:
    """prometheus.yml for `targets`: node id -> host:port of its metrics listener.

    cluster: name that tells it from others of the same Prometheus. notes: what must be known of a node, which may be no target.
    rule_file: beside it; empty: none.
    """
    notes = notes or {}
    label = f", cluster: '{cluster}'" if cluster else ""
    lines = [
        "global:",
        f"  scrape_interval: {SCRAPE_INTERVAL_S}s",
        f"  evaluation_interval: {SCRAPE_INTERVAL_S}s",
        *([f"rule_files: [{rule_file}]"] if rule_file else []),
        "scrape_configs:",
        "  - job_name: barnabas",
        "    static_configs:",
    ]
    for node_id, address in targets.items():
        if node_id in notes:
            lines.append(f"      # {notes[node_id]}")
        lines += [f"      - targets: ['{address}']", f"        labels: {{node: '{node_id}'{label}}}"]
    lines += [f"      # {note}" for node_id, note in notes.items() if node_id not in targets]
    return "\n".join(lines) + "\n"
