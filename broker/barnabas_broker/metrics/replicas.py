"""The partitions of this broker, what is wrong with them, and what replication does.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: a partition gets its own series only where this broker leads it.
Read next:  traffic.py, logs.py; barnabas_replication/stats.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from barnabas_broker.metrics.census import (
    AT_MIN_ISR,
    LEADERLESS,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    min_insync_replicas,
    partition_flags,
)
from barnabas_broker.metrics.families import copied, counter, gauge, histogram, partition_labels
from barnabas_broker.metrics.sources import NodeSources

if TYPE_CHECKING:
    from barnabas_replication.partition import Partition

LATE_GRACE_MS = 5 * 60_000
"""As Kafka's PartitionsWithLateTransactionsCount: a coordinator may take this long to end what it has decided."""


def replica_families(sources: NodeSources) -> Iterator[Metric]:
    """The partitions of this broker; what is wrong with one is reported by its leader, or by every holder if it has none."""
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
    yield gauge(
        "replica_partitions",
        "Partitions on this broker.",
        [({"role": "leader"}, led), ({"role": "follower"}, followed)],
    )
    yield gauge(
        "replica_under_replicated", "Led partitions with an ISR below the replicas.", [({}, wrong[UNDER_REPLICATED])]
    )
    yield gauge("replica_under_min_isr", "Led partitions below min.insync.replicas.", [({}, wrong[UNDER_MIN_ISR])])
    yield gauge("replica_at_min_isr", "Led partitions that one more loss takes below it.", [({}, wrong[AT_MIN_ISR])])
    yield gauge("replica_offline", "Partitions with a replica here that have no leader.", [({}, wrong[LEADERLESS])])
    yield gauge("replica_reassigning", "Led partitions whose replicas are changing.", [({}, reassigning)])


def replication_families(sources: NodeSources) -> Iterator[Metric]:
    """What the replicas of this broker do."""
    manager = sources.replicas
    if manager is None:
        return
    stats = manager.stats
    yield counter(
        "replica_isr_changes",
        "Changes of ISRs that this broker leads.",
        [
            ({"kind": "shrink"}, stats.isr_shrinks),
            ({"kind": "expand"}, stats.isr_expands),
            ({"kind": "failed"}, stats.isr_proposals_refused),
        ],
    )
    yield counter(
        "replication_bytes",
        "Bytes replicated: in as follower, out to followers.",
        [({"direction": "in"}, stats.replicated_bytes), ({"direction": "out"}, stats.follower_fetched_bytes)],
    )
    yield histogram(
        "replica_fetch_seconds",
        "Answered fetches from leaders, with the time that a leader without new records parks them.",
        [({}, stats.replica_fetch_s)],
    )
    yield counter("replica_fetch_errors", "Failed fetches from leaders.", [({}, stats.replica_fetch_errors)])
    yield counter("replica_truncations", "Truncations after a leader change.", [({}, stats.truncations)])
    yield counter(
        "replica_truncations_below_high_watermark",
        "Truncations that cut committed records: data was lost.",
        [({}, stats.truncations_below_high_watermark)],
    )
    yield counter("log_appended_records", "Records appended as leader.", [({}, stats.appended_records)])
    yield counter("log_appended_bytes", "Bytes appended as leader.", [({}, stats.appended_bytes)])
    yield counter("log_append_errors", "Refused appends.", [({}, stats.append_errors)])
    yield counter("fetched_bytes", "Bytes of records given to consumers and followers.", [({}, stats.fetched_bytes)])
    yield counter("fetches_parked", "Fetches that had to wait for records.", [({}, stats.fetch_parked)])
    yield counter(
        "replica_high_watermark_pushes",
        "Answers to followers that brought only a newer high watermark.",
        [({}, stats.high_watermark_pushes)],
    )
    yield counter("produce_timeouts", "Produces that were not replicated in time.", [({}, stats.produce_timeouts)])
    yield counter(
        "inspected_batches",
        "Batches of producers whose records a leader opened before it appended them (validate.batches).",
        [({}, stats.inspected_batches)],
    )
    yield counter("inspected_bytes", "Of them, bytes as they came.", [({}, stats.inspected_bytes)])
    yield counter("unsound_batches", "Of them, refused for what their records are.", [({}, stats.unsound_batches)])
    yield counter(
        "recompressed_batches",
        "Batches that a leader brought into their topic's codec (compression.type).",
        [({}, stats.recompressed_batches)],
    )
    yield counter("recompressed_bytes", "Of them, bytes as they came.", [({}, stats.recompressed_bytes)])
    partitions = copied(manager.partitions)
    yield gauge(
        "purgatory_size",
        "Requests that wait.",
        [
            ({"op": "produce"}, sum(len(p.waiting_for_commit) + len(p.waiting_for_flush) for p in partitions)),
            ({"op": "follower_fetch"}, sum(len(p.follower_fetches) for p in partitions)),
            ({"op": "consumer_fetch"}, sum(len(p.consumer_fetches) for p in partitions)),
        ],
    )
    yield gauge(
        "producer_ids",
        "Idempotent producers remembered, of all partitions here.",
        [({}, sum(p.log.producer_count for p in partitions))],
    )
    led = [(partition_labels(p.topic_partition), p) for p in partitions if p.is_leader]
    if not led:
        return
    yield gauge("log_size_bytes", "Size of a led log.", [(labels, p.log.size_bytes) for labels, p in led])
    yield gauge("log_segments", "Segments of a led log.", [(labels, p.log.segment_count) for labels, p in led])
    yield gauge(
        "log_start_offset", "First offset of a led log.", [(labels, p.log.log_start_offset) for labels, p in led]
    )
    yield gauge("log_end_offset", "LEO of a led log.", [(labels, p.log.log_end_offset) for labels, p in led])
    yield gauge("log_high_watermark", "HW of a led log.", [(labels, p.high_watermark) for labels, p in led])
    yield gauge(
        "log_last_stable_offset",
        "Where readers of committed data stand in a led log: below its first open transaction.",
        [(labels, _last_stable_offset(p)) for labels, p in led],
    )
    if sources.transactions is not None:
        late_ms = sources.clock_ms() - sources.transactions.config.max_timeout_ms - LATE_GRACE_MS
        yield gauge(
            "replica_late_transaction_partitions",
            "Led partitions with a transaction whose producer has been silent for five minutes longer than any may be open.",
            [({}, sum(_has_late_transaction(p, late_ms) for _, p in led))],
        )
    yield gauge(
        "replica_fetch_lag_records",
        "Records that the slowest follower of a led log lacks, by its last fetch; all of them before its first.",
        [(labels, _fetch_lag(p)) for labels, p in led],
    )


def _last_stable_offset(partition: Partition) -> int:
    (offset,) = copied(lambda: (partition.log.last_stable_offset,))
    return offset


def _has_late_transaction(partition: Partition, late_ms: int) -> bool:
    (is_late,) = copied(lambda: (partition.log.producers.has_transaction_silent_since(late_ms),))
    return is_late


def _fetch_lag(partition: Partition) -> int:
    log = partition.log
    ends = [follower.end_offset for follower in copied(partition.remotes.values)]
    return max(0, log.log_end_offset - max(min(ends, default=log.log_end_offset), log.log_start_offset))
