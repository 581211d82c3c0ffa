"""The group coordinator of this broker: its groups, what they do, and how far they are behind.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: at most GROUPS_MAX groups and LAGS_MAX (group, partition) pairs get series of their own, and how many were left out is
            reported; a group without members lags like any other.
Read next:  exporter.py, lag_times.py; barnabas_coordination/group/service.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import Sample, copied, counter, gauge, partition_labels
from barnabas_broker.metrics.sources import NodeSources
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition

GROUPS_MAX = 1000
"""Most groups that this broker reports."""
LAGS_MAX = 5000
"""Most pairs of group and partition that this broker reports."""


def group_families(sources: NodeSources) -> Iterator[Metric]:
    """The group coordinator of this broker."""
    groups = sources.groups
    if groups is None:
        return
    shards = Counter(state.value for state in copied(lambda: groups.partitions.values()))
    yield gauge(
        "group_partitions",
        "Partitions of the offsets topic hosted here.",
        [({"state": state}, count) for state, count in shards.items()],
    )
    yield gauge(
        "group_misplaced_partitions",
        "Of them, those that hold groups of others: the topic was given more partitions after it was made.",
        [({}, len(groups.misplaced_partitions))],
    )
    try:
        states = Counter(group.state for group in copied(groups.list_groups))
    except KafkaError:
        states = Counter()  # a partition is still being read: no number is better than a wrong one
    yield gauge(
        "groups", "Groups coordinated here.", [({"state": state}, count) for state, count in sorted(states.items())]
    )
    stats = groups.stats
    yield counter(
        "group_loads",
        "Partitions loaded.",
        [({"result": "done"}, stats.loads), ({"result": "failed"}, stats.load_failures)],
    )
    yield counter("group_records_loaded", "Records read by loads.", [({}, stats.records_loaded)])
    yield counter(
        "group_records_unknown", "Of them, of a kind that this version does not know.", [({}, stats.unknown_records)]
    )
    yield counter("group_batches_written", "Batches written to the offsets topic.", [({}, stats.batches_written)])
    yield counter("group_records_written", "Records written to the offsets topic.", [({}, stats.records_written)])
    yield counter(
        "group_appends_failed",
        "Writes to the offsets topic that failed.",
        [
            ({"kind": "refused"}, stats.appends_refused),
            ({"kind": "lost"}, stats.appends_lost),
            ({"kind": "timeout"}, stats.commit_timeouts),
        ],
    )
    groups_here = copied(groups.existing_groups)
    shown = groups_here[:GROUPS_MAX]
    yield gauge(
        "groups_left_out",
        "Groups beyond those that have series of their own.",
        [({}, len(groups_here) - len(shown))],
    )
    yield gauge(
        "group_state_info",
        "State of a group coordinated here, and the assignor that its members chose.",
        [({"group": g.group_id, "state": g.state.value, "protocol": g.protocol or ""}, 1) for g in shown],
    )
    yield gauge(
        "group_type_info",
        "The protocol by which a group coordinated here is led: classic, consumer, share or streams.",
        [({"group": g.group_id, "type": g.type_name}, 1) for g in shown],
    )
    led = [g for g in shown if not isinstance(g, ClassicGroup)]
    yield gauge(
        "group_epoch",
        "Of a group in which the coordinator assigns: the epoch of the group, and that of its targets, which follows.",
        [
            sample
            for g in led
            for sample in (
                ({"group": g.group_id, "of": "group"}, g.epoch),
                ({"group": g.group_id, "of": "targets"}, g.assignment_epoch),
            )
        ],
    )
    yield gauge("group_members", "Members of a group.", [({"group": g.group_id}, len(g.members)) for g in shown])
    yield counter(
        "group_rebalances",
        "Rebalances of a group that began here, by what began them.",
        [
            ({"group": g.group_id, "reason": reason.value}, count)
            for g in shown
            for reason, count in copied(g.stats.rebalances.items)
        ],
    )
    yield counter(
        "group_commits",
        "Offset commits of a group: replicated, and refused or not replicated in time.",
        [
            sample
            for g in shown
            for sample in (
                ({"group": g.group_id, "result": "done"}, g.stats.commits_done),
                ({"group": g.group_id, "result": "failed"}, g.stats.commits_failed),
            )
        ],
    )


def group_lag_families(sources: NodeSources) -> Iterator[Metric]:
    """Committed offsets of the groups coordinated here, and their lag where this broker holds the partition."""
    groups, manager = sources.groups, sources.replicas
    if groups is None or manager is None:
        return
    here = {partition.topic_partition: partition for partition in copied(manager.partitions)}
    committed: list[Sample] = []
    lags: list[Sample] = []
    lag_s: dict[tuple[str, str], float] = {}
    found = copied(groups.committed_offsets)
    shown = found[:LAGS_MAX]
    now_ms = sources.clock_ms()
    ends: dict[TopicPartition, int] = {key: here[key].high_watermark for _, key, _ in shown if key in here}
    behind = sources.lag_times.sample(now_ms, ends)
    for group, key, offset in shown:
        labels = {"group": group, **partition_labels(key)}
        committed.append((labels, offset))
        if key in here:
            # What retention took away cannot be read any more: it is no lag.
            lags.append((labels, max(0, ends[key] - max(offset, here[key].log.log_start_offset))))
            of_topic = group, key.topic
            lag_s[of_topic] = max(lag_s.get(of_topic, 0), behind.seconds(key, offset))
    yield gauge("group_committed_offset", "Offset that a group coordinated here has committed.", committed)
    yield gauge(
        "group_lag_records",
        "Records that a group has still to commit. Reported by the group's coordinator for partitions with a replica here, from its own "
        "high watermark; of others barnabas_log_high_watermark less barnabas_group_committed_offset.",
        lags,
    )
    yield gauge(
        "group_lag_seconds",
        "How long ago, as far as scrapes of this node have seen, a topic's high watermark passed what a group has committed; of the "
        "partition furthest behind, 0 when none is. For the partitions of group_lag_records.",
        [({"group": group, "topic": topic}, seconds) for (group, topic), seconds in lag_s.items()],
    )
    yield gauge(
        "group_lags_left_out",
        "Pairs of group and partition beyond those that have series of their own.",
        [({}, len(found) - len(shown))],
    )
