"""The transaction coordinator of this broker: its transactional ids, and the markers that are due.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: no series per transactional id: there may be as many as clients.
Read next:  exporter.py; barnabas_coordination/transaction/service.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import copied, counter, gauge
from barnabas_broker.metrics.sources import NodeSources
from barnabas_coordination.transaction.state import OPEN, TransactionStatus


def transaction_families(sources: NodeSources) -> Iterator[Metric]:
    """The transaction coordinator of this broker."""
    transactions = sources.transactions
    if transactions is None:
        return
    shards = Counter(state.value for state in copied(lambda: transactions.partitions.values()))
    yield gauge(
        "transaction_partitions",
        "Partitions of the transactions topic hosted here.",
        [({"state": state}, count) for state, count in shards.items()],
    )
    yield gauge(
        "transaction_misplaced_partitions",
        "Of them, those that hold transactional ids of others: the topic was given more partitions after it was made.",
        [({}, len(transactions.misplaced_partitions))],
    )
    states = copied(transactions.states)
    counts = Counter(state.status for state in states)
    yield gauge(
        "transactions",
        "Transactional ids coordinated here, by the state of their transaction.",
        [({"state": status.title}, counts[status]) for status in TransactionStatus],
    )
    now_ms = sources.clock_ms()
    began_ms = min((state.start_ms for state in states if state.status in OPEN), default=now_ms)
    yield gauge(
        "transaction_oldest_open_seconds",
        "How long the oldest open transaction of this coordinator has been open.",
        [({}, max(0, now_ms - began_ms) / 1000)],
    )
    due_ms = copied(transactions.markers.due_since_ms)
    yield gauge(
        "transaction_markers_due", "Transactions that are decided and not marked everywhere.", [({}, len(due_ms))]
    )
    yield gauge(
        "transaction_markers_oldest_seconds",
        "How long the oldest of them has been decided.",
        [({}, max(0, now_ms - min(due_ms, default=now_ms)) / 1000)],
    )
    marked = transactions.marker_stats
    yield counter("transaction_marker_requests", "Requests that carried markers to brokers.", [({}, marked.requests)])
    yield counter(
        "transaction_markers",
        "Markers that brokers have written, and those that have to be sent again.",
        [({"result": "written"}, marked.written), ({"result": "retried"}, marked.retried)],
    )
    yield counter(
        "transaction_markers_fenced", "Transactions that a later coordinator has taken over.", [({}, marked.fenced)]
    )
    stats = transactions.stats
    yield counter(
        "transaction_loads",
        "Partitions loaded.",
        [({"result": "done"}, stats.loads), ({"result": "failed"}, stats.load_failures)],
    )
    yield counter(
        "transaction_records_written", "Records written to the transactions topic.", [({}, stats.records_written)]
    )
    yield counter(
        "transaction_appends_failed",
        "Writes to the transactions topic that failed.",
        [
            ({"kind": "refused"}, stats.appends_refused),
            ({"kind": "lost"}, stats.appends_lost),
            ({"kind": "timeout"}, stats.commit_timeouts),
        ],
    )
