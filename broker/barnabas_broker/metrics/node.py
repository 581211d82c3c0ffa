"""The identity of this node, and how its event loops are doing.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: a lane is a label; all else has one series.
Read next:  exporter.py; lane_probe.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import counter, gauge, histogram
from barnabas_broker.metrics.sources import NodeSources


def node_families(sources: NodeSources) -> Iterator[Metric]:
    """The identity of this node, its uptime, audit lines and event loops."""
    yield gauge(
        "build_info",
        "The version that runs.",
        [({"version": sources.version, "commit": sources.commit, "python": sys.version.split()[0]}, 1)],
    )
    yield gauge(
        "node_info",
        "This node.",
        [
            (
                {
                    "node_id": str(sources.node_id),
                    "roles": ",".join(sources.roles),
                    "rack": sources.rack or "",
                    "cluster_id": sources.cluster_id,
                    "metadata_version": str(sources.image().features.metadata_version),
                },
                1,
            )
        ],
    )
    yield gauge(
        "node_uptime_seconds", "Time since the start.", [({}, sources.clock_ms() / 1000 - sources.started_at_s)]
    )
    yield histogram(
        "loop_lag_seconds",
        "How late a timer of the lane's event loop fires.",
        [({"lane": lane}, lag) for lane, lag in sources.lanes.items()],
    )
    audit = sources.audit
    yield counter(
        "audit_lines",
        "Lines of the audit log: written, dropped (of denials, logins and offsets), or of a change that is in the node's log alone.",
        [
            ({"outcome": "written"}, audit.written),
            ({"outcome": "dropped"}, audit.dropped),
            ({"outcome": "elsewhere"}, audit.changes_elsewhere),
        ],
    )
    yield gauge(
        "event_loop_tasks",
        "Tasks of the lane's event loop that are not done.",
        [({"lane": lane}, count()) for lane, count in sources.tasks.items()],
    )
