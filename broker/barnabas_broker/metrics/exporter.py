"""Every metric of a node, under its name: reads the rooms' counters and the image when Prometheus asks.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: prefix barnabas_, base units, counters end in _total, times are histograms; label values are bounded (per
            partition only what this broker leads); a part the node does not have gives no series.
Read next:  sources.py, http.py.

Not obvious: this runs in a thread while the lanes work. Numbers may be a moment apart; a dict that may grow meanwhile is
copied by one call (`list(d.items())`), never iterated.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from barnabas_broker.metrics.census import (
    AT_MIN_ISR,
    LEADERLESS,
    NOT_PREFERRED,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    min_insync_replicas,
    partition_flags,
    take_census,
)
from barnabas_broker.metrics.histogram import HistogramCounts
from barnabas_broker.metrics.sources import NodeSources
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages import ApiKey

PREFIX = "barnabas_"
Labels = Mapping[str, str]
Sample = tuple[Labels, float]


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


def node_families(sources: NodeSources) -> Iterator[Metric]:
    """Who this node is."""
    yield _gauge(
        "build_info",
        "The version that runs.",
        [({"version": sources.version, "python": platform.python_version()}, 1)],
    )
    yield _gauge(
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
    yield _gauge(
        "node_uptime_seconds", "Time since the start.", [({}, sources.clock_ms() / 1000 - sources.started_at_s)]
    )
    yield _histogram(
        "loop_lag_seconds",
        "How late a timer of the lane's event loop fires.",
        [({"lane": lane}, lag) for lane, lag in sources.lanes.items()],
    )


def quorum_families(sources: NodeSources) -> Iterator[Metric]:
    """The metadata quorum as this node sees it."""
    quorum = sources.quorum
    seen = quorum.describe()
    is_leader = seen.leader_id == sources.node_id
    state = "leader" if is_leader else "voter" if quorum.is_voter else "observer"
    yield _gauge("raft_state_info", "What this node is in the quorum.", [({"state": state}, 1)])
    yield _gauge("raft_leader_id", "node.id of the quorum's leader, -1 = unknown.", [({}, seen.leader_id)])
    yield _gauge("raft_epoch", "Quorum epoch.", [({}, seen.epoch)])
    yield _gauge("raft_high_watermark", "End of the committed metadata log.", [({}, seen.high_watermark)])
    yield _gauge("raft_log_end_offset", "End of this node's metadata log.", [({}, quorum.log_end_offset)])
    yield _gauge("raft_voters", "Voters of the quorum.", [({}, len(seen.voters))])
    if not is_leader:
        return
    yield _gauge("raft_observers", "Observers that the leader knows.", [({}, len(seen.observers))])
    now_ms = sources.clock_ms()
    followers = [replica for replica in (*seen.voters, *seen.observers) if replica.key.id != sources.node_id]
    known = [(str(replica.key.id), replica) for replica in followers if replica.log_end_offset >= 0]
    yield _gauge(
        "raft_follower_lag_records",
        "Records of the metadata log that a replica lacks; from the leader.",
        [({"node_id": node}, max(0, quorum.log_end_offset - replica.log_end_offset)) for node, replica in known],
    )
    yield _gauge(
        "raft_follower_lag_seconds",
        "Time since a replica had the whole metadata log; from the leader.",
        [({"node_id": n}, max(0, now_ms - r.last_caught_up_ms) / 1000) for n, r in known if r.last_caught_up_ms >= 0],
    )


def metadata_families(sources: NodeSources) -> Iterator[Metric]:
    """How far this node has applied the metadata."""
    image = sources.image()
    behind = max(0, sources.quorum.high_watermark - (image.offset + 1))
    yield _gauge("metadata_applied_offset", "Last metadata record in the node's image.", [({}, image.offset)])
    yield _gauge("metadata_lag_records", "Committed metadata records that are not applied yet.", [({}, behind)])
    if image.timestamp_ms >= 0:
        age_s = max(0, sources.clock_ms() - image.timestamp_ms) / 1000
        yield _gauge("metadata_lag_seconds", "Age of the last applied metadata record.", [({}, age_s)])


def controller_families(sources: NodeSources) -> Iterator[Metric]:
    """The cluster's state; all but the first from the active controller only, so that sums are right."""
    if "controller" not in sources.roles:
        return
    is_active = sources.quorum.describe().leader_id == sources.node_id
    yield _gauge("controller_active", "1 on the active controller.", [({}, int(is_active))])
    if not is_active:
        return
    image = sources.image()
    brokers = {"active": 0, "fenced": 0, "shutdown": 0}
    for broker in image.cluster.brokers.values():
        state = "fenced" if broker.is_fenced else "shutdown" if broker.is_in_controlled_shutdown else "active"
        brokers[state] += 1
    yield _gauge("controller_brokers", "Registered brokers.", [({"state": s}, n) for s, n in brokers.items()])
    census = take_census(image, static_min_isr=sources.static_min_isr)
    yield _gauge("controller_topics", "Topics.", [({}, census.topics)])
    yield _gauge("controller_partitions", "Partitions.", [({}, census.partitions)])
    yield _gauge("controller_offline_partitions", "Partitions without a leader.", [({}, census.flags[LEADERLESS])])
    yield _gauge(
        "controller_not_preferred_leader_partitions",
        "Partitions led by another than their first replica.",
        [({}, census.flags[NOT_PREFERRED])],
    )


def replica_families(sources: NodeSources) -> Iterator[Metric]:
    """The partitions of this broker; what is wrong with one is told by its leader, or by every holder if it has none."""
    if "broker" not in sources.roles:
        return
    image, node_id = sources.image(), sources.node_id
    led = followed = 0
    wrong = dict.fromkeys((UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR, LEADERLESS), 0)
    reassigning = 0
    for topic in image.topics.topics.values():
        min_isr = min_insync_replicas(image, topic.name, static_default=sources.static_min_isr)
        for partition in topic.partitions.values():
            if node_id not in partition.replicas:
                continue
            is_led = partition.leader == node_id
            led += is_led
            followed += not is_led
            if is_led or not partition.has_leader:
                reassigning += bool(partition.adding_replicas or partition.removing_replicas)
                for flag in partition_flags(partition, min_isr=min_isr):
                    if flag in wrong:
                        wrong[flag] += 1
    yield _gauge(
        "replica_partitions",
        "Partitions on this broker.",
        [({"role": "leader"}, led), ({"role": "follower"}, followed)],
    )
    yield _gauge(
        "replica_under_replicated", "Led partitions with an ISR below the replicas.", [({}, wrong[UNDER_REPLICATED])]
    )
    yield _gauge("replica_under_min_isr", "Led partitions below min.insync.replicas.", [({}, wrong[UNDER_MIN_ISR])])
    yield _gauge("replica_at_min_isr", "Led partitions that one more loss takes below it.", [({}, wrong[AT_MIN_ISR])])
    yield _gauge("replica_offline", "Partitions held here that have no leader.", [({}, wrong[LEADERLESS])])
    yield _gauge("replica_reassigning", "Led partitions whose replicas are changing.", [({}, reassigning)])


def network_families(sources: NodeSources) -> Iterator[Metric]:
    """The Kafka listeners."""
    stats = sources.network
    if stats is None:
        return
    yield _gauge("connections", "Open connections.", [({}, stats.connections)])
    yield _counter("connections_accepted", "Connections accepted.", [({}, stats.connections_accepted)])
    yield _counter(
        "connections_closed",
        "Connections closed, by reason.",
        [({"reason": reason}, count) for reason, count in list(stats.connections_closed.items())],
    )
    yield _counter(
        "requests",
        "Requests by API and version.",
        [
            ({"api": api_name(key), "version": str(version)}, count)
            for (key, version), count in list(stats.requests.items())
        ],
    )
    yield _counter(
        "request_errors",
        "Errors answered, of a whole request or of one of its partitions.",
        [({"api": api_name(key), "error": _error_name(code)}, n) for (key, code), n in list(stats.errors.items())],
    )
    yield _histogram(
        "request_seconds",
        "From the whole request to its answer.",
        [({"api": api_name(key), "phase": "total"}, times) for key, times in list(stats.request_time_s.items())],
    )
    yield _counter(
        "network_bytes",
        "Bytes of the Kafka listeners.",
        [({"direction": "in"}, stats.bytes_in), ({"direction": "out"}, stats.bytes_out)],
    )
    yield _counter(
        "network_sendfile_bytes", "Bytes sent from files without copying.", [({}, stats.bytes_sent_from_files)]
    )
    yield _counter("network_wake_ups", "Times a connection was read.", [({}, stats.wake_ups)])


def admin_families(sources: NodeSources) -> Iterator[Metric]:
    """The gRPC admin service."""
    stats = sources.admin
    if stats is None:
        return
    yield _counter(
        "admin_requests",
        "Admin calls by method and outcome.",
        [({"method": method, "code": code}, count) for (method, code), count in list(stats.requests.items())],
    )
    yield _histogram(
        "admin_request_seconds",
        "Duration of admin calls.",
        [({"method": method}, times) for method, times in list(stats.seconds.items())],
    )


FAMILIES: tuple[Callable[[NodeSources], Iterable[Metric]], ...] = (
    node_families,
    quorum_families,
    metadata_families,
    controller_families,
    replica_families,
    network_families,
    admin_families,
)
"""Every family, in the order of the page."""


def api_name(key: int) -> str:
    """An API key by the protocol's own name: INIT_PRODUCER_ID is InitProducerId."""
    try:
        return ApiKey(key).name.title().replace("_", "")
    except ValueError:
        return "unknown"


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return "unknown"


def _gauge(name: str, doc: str, samples: Sequence[Sample]) -> Metric:
    return _filled(GaugeMetricFamily(PREFIX + name, doc, labels=_label_names(samples)), samples)


def _counter(name: str, doc: str, samples: Sequence[Sample]) -> Metric:
    """`name` without _total, which the exposition adds."""
    return _filled(CounterMetricFamily(PREFIX + name, doc, labels=_label_names(samples)), samples)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, samples: Sequence[Sample]
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, value in samples:
        family.add_metric(list(labels.values()), value)
    return family


def _histogram(name: str, doc: str, samples: Sequence[tuple[Labels, HistogramCounts]]) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, doc, labels=_label_names(samples))
    for labels, histogram in samples:
        cumulated = 0
        buckets = []
        for bound, count in zip([*map(str, histogram.bounds), "+Inf"], list(histogram.counts), strict=True):
            cumulated += count
            buckets.append((bound, float(cumulated)))
        family.add_metric(list(labels.values()), buckets, histogram.total)
    return family


def _label_names(samples: Sequence[tuple[Labels, object]]) -> list[str]:
    return list(samples[0][0]) if samples else []
