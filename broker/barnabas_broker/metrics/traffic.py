"""What clients bring and take by topic, and what a reassignment's throttle holds back.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: at most TOPICS_MAX topics get series of their own, and how many were left out is reported; what the rest did is in one
            series, so that sums stay right.
Read next:  exporter.py; barnabas_replication/stats.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import counter, gauge
from barnabas_broker.metrics.sources import NodeSources
from barnabas_replication.stats import TopicTraffic

TOPICS_MAX = 1000
"""The first to come to this broker; each has four series."""
OTHER_TOPICS = "(other)"
"""No topic may have this name."""


def topic_families(sources: NodeSources) -> Iterator[Metric]:
    """Bytes and records by topic, as far as this broker led it (Kafka's BrokerTopicMetrics)."""
    manager = sources.replicas
    if manager is None:
        return
    topics = list(manager.topic_traffic.items())
    left = topics[TOPICS_MAX:]
    shown = topics[:TOPICS_MAX]
    if left:
        shown.append((OTHER_TOPICS, _sum([traffic for _, traffic in left])))
    yield counter(
        "topic_bytes",
        "Bytes of batches that clients wrote to (in) and read from (out) a topic here; followers' fetches are replication.",
        [
            sample
            for topic, traffic in shown
            for sample in (
                ({"topic": topic, "direction": "in"}, traffic.bytes_in),
                ({"topic": topic, "direction": "out"}, traffic.bytes_out),
            )
        ],
    )
    yield counter(
        "topic_records_in",
        "Records that clients wrote to a topic here.",
        [({"topic": topic}, traffic.records_in) for topic, traffic in shown],
    )
    yield counter(
        "topic_errors",
        "Refused appends to a topic's partitions here.",
        [({"topic": topic, "op": "produce"}, traffic.append_errors) for topic, traffic in shown],
    )
    yield gauge("topics_left_out", f"Topics whose numbers are under {OTHER_TOPICS} together.", [({}, len(left))])


def _sum(traffics: list[TopicTraffic]) -> TopicTraffic:
    return TopicTraffic(
        bytes_in=sum(each.bytes_in for each in traffics),
        records_in=sum(each.records_in for each in traffics),
        bytes_out=sum(each.bytes_out for each in traffics),
        append_errors=sum(each.append_errors for each in traffics),
    )


def throttle_families(sources: NodeSources) -> Iterator[Metric]:
    """The limits that an operator set on replication for a reassignment, and what they do."""
    manager = sources.replicas
    if manager is None:
        return
    now_ms = manager.hosted.now_ms()
    sides = (("leader", manager.throttle.as_leader), ("follower", manager.throttle.as_follower))
    yield gauge(
        "replication_throttle_rate_bytes",
        "Bytes a second that throttled replicas may take from (leader) or bring to (follower) this broker, -1 = no limit.",
        [({"role": role}, -1 if side.bucket is None else side.bucket.rate) for role, side in sides],
    )
    yield counter(
        "replication_throttled_bytes",
        "Bytes that counted for such a limit.",
        [({"role": role}, side.bytes_taken) for role, side in sides],
    )
    yield gauge(
        "replication_throttle_wait_seconds",
        "How long a throttled replica would have to wait now.",
        [({"role": role}, max(0, side.ready_at_ms(now_ms) - now_ms) / 1000) for role, side in sides],
    )
