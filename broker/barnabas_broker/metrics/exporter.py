"""The page of metrics: every family of a node in order, read from its rooms when Prometheus asks.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: prefix barnabas_, base units, counters end in _total, times are histograms; label values are bounded (per
            partition only what this broker leads); a part the node does not have gives no series.
Read next:  sources.py, families.py; node.py, quorum.py, … by subject; http.py.

Not obvious: this runs in a thread while the lanes work. Numbers may be a moment apart; a dict that may grow meanwhile is
copied by one call (`list(d.items())`), never iterated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from barnabas_broker.metrics.clients import client_families
from barnabas_broker.metrics.controller import broker_control_families, controller_families
from barnabas_broker.metrics.groups import group_families, group_lag_families
from barnabas_broker.metrics.listeners import admin_families, network_families
from barnabas_broker.metrics.logs import log_families
from barnabas_broker.metrics.metadata import integrity_families, metadata_families
from barnabas_broker.metrics.node import node_families
from barnabas_broker.metrics.quorum import quorum_families
from barnabas_broker.metrics.replicas import replica_families, replication_families
from barnabas_broker.metrics.share_state import share_state_families
from barnabas_broker.metrics.shares import share_families
from barnabas_broker.metrics.sources import NodeSources
from barnabas_broker.metrics.traffic import throttle_families, topic_families
from barnabas_broker.metrics.transactions import transaction_families


def render(sources: NodeSources) -> tuple[bytes, str]:
    """The text exposition of all metrics of the node and of its process, and the content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(sources))
    ProcessCollector(registry=registry)
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class NodeCollector:
    """prometheus_client's custom collector over one node."""

    def __init__(self, sources: NodeSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """All families; called once per scrape."""
        for families in FAMILIES:
            yield from families(self._sources)


FAMILIES: tuple[Callable[[NodeSources], Iterable[Metric]], ...] = (
    node_families,
    quorum_families,
    metadata_families,
    integrity_families,
    controller_families,
    broker_control_families,
    replica_families,
    replication_families,
    throttle_families,
    topic_families,
    log_families,
    group_families,
    group_lag_families,
    transaction_families,
    share_state_families,
    share_families,
    client_families,
    network_families,
    admin_families,
)
"""Every family, in the order of the page."""
