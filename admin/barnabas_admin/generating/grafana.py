"""What a dashboard is made of, how Grafana wants it, and how it finds them.

May touch:  its arguments.            Must not touch: files, network, which panels there are (templates/dashboards.toml).
Invariants: panels are laid out in rows of WIDTH; ids count from 1, so that a file changes only where its dashboard does.
Read next:  templates/dashboards.toml; ../commands/generate.py.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any

from barnabas_admin.generating.templates import filled_in, template
from barnabas_wire.lazy_dataclass import dataclass

SCHEMA_VERSION = 39
"""Grafana 11; newer ones read it."""
WIDTH = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
CLUSTER, NODE, TOPIC = 'cluster=~"$cluster"', 'node=~"$node"', 'topic=~"$topic"'
"""What a chosen cluster, node or topic adds to a selector. All of them is .*, which fits where there is no such label, too."""
OF_TOPICS = re.compile(r"barnabas_(topic_\w+|group_lag_\w+|log_high_watermark|log_last_stable_offset)")
"""Metrics with the label `topic`."""
_SELECTOR = re.compile(r"\b((?:barnabas|process)_\w+)(?:\{([^}]*)\})?")


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph or number: (expression, legend) pairs."""

    title: str
    meaning: str
    targets: Sequence[tuple[str, str]]
    unit: str = "short"
    is_number: bool = False
    """A single value of the whole cluster, of which one node does not know; else lines over time."""
    is_bad_above: float | None = None
    """A number turns red from here on."""

    def asked(self) -> list[tuple[str, str]]:
        """The targets, of what is chosen alone."""
        return [(scoped(expression, has_node=not self.is_number), legend) for expression, legend in self.targets]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of panels in rows: (title of the row, its panels)."""

    name: str
    title: str
    rows: Sequence[tuple[str, Sequence[Panel]]]

    def expressions(self) -> list[str]:
        """Every expression on it."""
        return [expression for _, panels in self.rows for panel in panels for expression, _ in panel.asked()]


def scoped(expression: str, *, has_node: bool = True) -> str:
    """The expression with the dashboard's variables in each of its selectors."""

    def choose(found: re.Match[str]) -> str:
        metric, matchers = found.groups()
        wanted = [*filter(None, [matchers]), CLUSTER]
        wanted += [NODE] if has_node else []
        wanted += [TOPIC] if OF_TOPICS.match(metric) else []
        return f"{metric}{{{', '.join(wanted)}}}"

    return _SELECTOR.sub(choose, expression)


def dashboards() -> list[Dashboard]:
    """The dashboards that templates/dashboards.toml describes."""
    found = tomllib.loads(template("dashboards.toml"))["dashboards"]
    return [
        Dashboard(
            each["name"],
            each["title"],
            [(row["title"], [Panel(**panel) for panel in row["panels"]]) for row in each["rows"]],
        )
        for each in found
    ]


def dashboard_files() -> dict[str, str]:
    """name.json of every dashboard."""
    return {f"{each.name}.json": json.dumps(_dashboard(each), indent=1) + "\n" for each in dashboards()}


def provisioning_files(prometheus_url: str) -> dict[str, str]:
    """Where Grafana finds Prometheus and the dashboards, below its provisioning directory."""
    return {
        "datasources/prometheus.yml": filled_in("grafana-datasource.yml", {"prometheus_url": prometheus_url}),
        "dashboards/barnabas.yml": template("grafana-dashboards.yml"),
    }


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in dashboard.rows:
        panels.append({"type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}, "panels": []})
        y, x, height = y + 1, 0, 8
        for panel in row:
            width, height = (3, 4) if panel.is_number else (8, 8)
            if x + width > WIDTH:
                x, y = 0, y + height
            panels.append(_panel(panel, {"x": x, "y": y, "w": width, "h": height}))
            x += width
        y += height
    for index, drawn in enumerate(panels):
        drawn["id"] = index + 1
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "tags": ["barnabas"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                _variable("cluster", "label_values(barnabas_build_info, cluster)"),
                _variable("node", f"label_values(barnabas_build_info{{{CLUSTER}}}, node)"),
                _variable("topic", f"label_values(barnabas_topic_bytes_total{{{CLUSTER}}}, topic)"),
            ]
        },
        "links": [{"type": "dashboards", "tags": ["barnabas"], "title": "Barnabas", "asDropdown": True}],
        "panels": panels,
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    """One, several or all values of a label."""
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 3,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.is_bad_above is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.is_bad_above}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "gridPos": place,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend, "datasource": DATASOURCE}
            for index, (expression, legend) in enumerate(panel.asked())
        ],
    }
