"""The share coordinator of this broker, and how its own leaders fare with those of all brokers.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: no series per share partition: there may be as many as groups times partitions.
Read next:  exporter.py; barnabas_coordination/share_state/service.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import copied, counter, gauge
from barnabas_broker.metrics.sources import NodeSources


def share_state_families(sources: NodeSources) -> Iterator[Metric]:
    """The share coordinator of this broker, and its persister."""
    coordinator, persister = sources.share_state, sources.persister
    if coordinator is None or persister is None:
        return
    shards = Counter(state.value for state in copied(lambda: coordinator.partitions.values()))
    yield gauge(
        "share_state_partitions",
        "Partitions of __share_group_state hosted here.",
        [({"state": state}, count) for state, count in shards.items()],
    )
    yield gauge(
        "share_state_share_partitions",
        "Partitions of share groups whose state is kept here.",
        [({}, coordinator.share_partitions)],
    )
    stats = coordinator.stats
    yield counter(
        "share_state_loads",
        "Partitions loaded.",
        [({"result": "done"}, stats.loads), ({"result": "failed"}, stats.load_failures)],
    )
    yield counter(
        "share_state_records_written", "Records written to __share_group_state.", [({}, stats.records_written)]
    )
    yield counter(
        "share_state_appends_failed",
        "Writes to __share_group_state that failed.",
        [
            ({"kind": "refused"}, stats.appends_refused),
            ({"kind": "lost"}, stats.appends_lost),
            ({"kind": "timeout"}, stats.commit_timeouts),
        ],
    )
    yield counter(
        "share_state_calls",
        "Calls of this broker to share coordinators that had to be asked again, and that were refused in the end.",
        [({"result": "retried"}, persister.retries), ({"result": "failed"}, persister.failures)],
    )
