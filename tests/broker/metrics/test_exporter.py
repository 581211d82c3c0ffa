"""Laws of the exposition: names, labels, histograms, and that a missing part gives no series."""

from __future__ import annotations

import ast
import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas_broker.admin.edge import AdminStats
from barnabas_broker.controller_client.client import ControllerClientStats
from barnabas_broker.metadata.lifecycle import LifecycleStats
from barnabas_broker.metrics import groups, lag_times, traffic
from barnabas_broker.metrics.exporter import render
from barnabas_broker.metrics.families import copied
from barnabas_broker.metrics.lane_probe import BUSY_PERIOD_S, IDLE_PERIOD_S, LaneProbe, choose_period_s
from barnabas_broker.metrics.listeners import api_name
from barnabas_broker.metrics.sources import NodeSources
from barnabas_broker.network.stats import COUNT_BITS, NetworkStats
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.messages import GroupListing
from barnabas_coordination.group.states import GroupStats, RebalanceReason
from barnabas_coordination.runtime import CoordinatorStats, ShardState
from barnabas_coordination.share.dead_letters import DeadLetterStats
from barnabas_coordination.share.due_times import DueTimeStats
from barnabas_coordination.share.led_partition import ShareStats
from barnabas_coordination.share.partition import SharePartition
from barnabas_coordination.transaction.config import TransactionCoordinatorConfig
from barnabas_coordination.transaction.markers import MarkerStats
from barnabas_coordination.transaction.state import TransactionState, TransactionStatus
from barnabas_log.cleaner.driver import CleanerStats
from barnabas_log.descriptors import Descriptors, DescriptorStats
from barnabas_log.directories.manager_stats import LogManagerStats
from barnabas_log.recovery.scrubber import ScrubStats
from barnabas_log.tail.flush import FlushStats
from barnabas_log.tail.producer_state import ProducerState
from barnabas_quorum.controller.partition_change import ElectedFrom
from barnabas_quorum.driver.controller_stats import ControllerDriverStats
from barnabas_quorum.image.hashing import FORMAT
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.messages import CommittedBatch
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import NoOpRecord
from barnabas_quorum.records_integrity import ImageHashRecord, PartHash
from barnabas_replication.leader.replica_state import RemoteReplica
from barnabas_replication.stats import Stats as ReplicationStats
from barnabas_replication.stats import TopicTraffic
from barnabas_replication.throttle import ReplicationThrottle
from barnabas_wire.histogram import Histogram
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from tests.broker.coordinator.share_partitions import RELEASE, Driven
from tests.broker.metrics.claimed import CLAIMED, reported
from tests.support.images import NOW_MS, FakeQuorumNode, make_image, make_quorum


def make_sources(**changes: Any) -> NodeSources:
    sources = NodeSources(
        node_id=BrokerId(1),
        cluster_id="c",
        roles=("broker", "controller"),
        rack="r1",
        version="0.1.0",
        commit="c0ffee",
        started_at_s=NOW_MS / 1000 - 60,
        clock_ms=lambda: NOW_MS + 500,
        static_min_isr=2,
        image=lambda: make_image(topics={"t": [((1, 2, 3), (1, 2), 1), ((2, 3, 1), (2, 3, 1), 2)]}, fenced=(3,)),
        quorum=FakeQuorumNode(make_quorum(ends=(103, 103, 90), silent=(3,), observers=(4,))),  # type: ignore[arg-type]
        recovered_beside=tuple,
        controller_client=ControllerClientStats(),
    )
    return replace(sources, **changes)


def scrape(sources: NodeSources) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    body, _ = render(sources)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(samples: dict[Any, float], name: str, **labels: str) -> float:
    return samples[f"barnabas_{name}", tuple(sorted(labels.items()))]


def test_the_active_controller_tells_the_state_of_the_cluster() -> None:
    samples = scrape(make_sources())
    assert value(samples, "controller_active") == 1
    assert value(samples, "controller_brokers", state="active") == 2
    assert value(samples, "controller_brokers", state="fenced") == 1
    assert value(samples, "controller_partitions") == 2
    assert value(samples, "raft_follower_lag_records", node_id="3") == 13
    assert value(samples, "raft_follower_lag_seconds", node_id="3") == 60.5
    assert value(samples, "raft_state_info", state="leader") == 1
    assert [value(samples, "raft_elections_total", result=result) for result in ("begun", "won")] == [5, 2]
    assert value(samples, "raft_log_start_offset") == 7


def on_hosts(image: MetadataImage) -> MetadataImage:
    """Brokers 1 and 3 are on host h1, 2 is on h2."""
    hosts = {1: "h1", 2: "h2", 3: "h1"}
    brokers = {each: replace(broker, host=hosts[each]) for each, broker in image.cluster.brokers.items()}
    return replace(image, cluster=replace(image.cluster, brokers=brokers))


def test_brokers_are_counted_by_host_where_they_name_one() -> None:
    image = make_image(fenced=(3,))
    assert not [name for name, _ in scrape(make_sources(image=lambda: image)) if "host_brokers" in name]
    samples = scrape(make_sources(image=lambda: on_hosts(image)))
    counted = {
        (host, state): value(samples, "controller_host_brokers", host=host, state=state)
        for host in ("h1", "h2")
        for state in ("active", "fenced")
    }
    assert counted == {("h1", "active"): 1, ("h1", "fenced"): 1, ("h2", "active"): 1, ("h2", "fenced"): 0}


def test_others_leave_the_cluster_to_the_active_controller() -> None:
    samples = scrape(make_sources(node_id=BrokerId(2)))
    assert value(samples, "controller_active") == 0
    assert not [name for name, _ in samples if name.startswith("barnabas_controller_brokers")]
    assert not [name for name, _ in samples if "follower_lag" in name]
    assert value(samples, "raft_state_info", state="voter") == 1


def test_a_broker_counts_what_it_leads() -> None:
    samples = scrape(make_sources())
    assert value(samples, "replica_partitions", role="leader") == 1
    assert value(samples, "replica_partitions", role="follower") == 1
    assert value(samples, "replica_under_replicated") == 1
    assert value(samples, "replica_at_min_isr") == 1
    assert value(samples, "replica_under_min_isr") == 0


def test_a_controller_alone_has_no_replicas_and_a_broker_alone_is_no_controller() -> None:
    assert not [n for n, _ in scrape(make_sources(roles=("controller",))) if "replica_" in n]
    assert not [n for n, _ in scrape(make_sources(roles=("broker",))) if n.startswith("barnabas_controller_")]


def test_a_histogram_is_cumulative_and_ends_with_everything() -> None:
    lag = Histogram((0.001, 0.01))
    for seconds in (0.0005, 0.001, 0.005, 7.0):
        lag.observe(seconds)
    samples = scrape(make_sources(lanes={"control": lag}))
    assert value(samples, "loop_lag_seconds_bucket", lane="control", le="0.001") == 2
    assert value(samples, "loop_lag_seconds_bucket", lane="control", le="0.01") == 3
    assert value(samples, "loop_lag_seconds_bucket", lane="control", le="+Inf") == 4
    assert value(samples, "loop_lag_seconds_count", lane="control") == 4
    assert math.isclose(value(samples, "loop_lag_seconds_sum", lane="control"), 7.0065)


def test_metadata_that_stands_still_or_differs_is_reported() -> None:
    loader = MetadataLoader()
    samples = scrape(make_sources(loader=loader))
    assert value(samples, "metadata_blocked") == 0 and value(samples, "metadata_blocked_offset") == -1
    assert value(samples, "metadata_image_hash_mismatch_total") == value(samples, "metadata_image_diverged") == 0
    wrong = encode(ImageHashRecord(format=FORMAT, parts=(PartHash("topics", bytes(15) + b"x"),)))
    loader.on_commit([CommittedBatch(Offset(3), Epoch(1), 0, (encode(NoOpRecord()), wrong))])
    loader.on_commit([CommittedBatch(Offset(5), Epoch(1), 0, (b"\xd2\x09\x00",))])
    samples = scrape(make_sources(loader=loader))
    assert value(samples, "metadata_image_hashes_compared_total") == 1
    assert value(samples, "metadata_image_hash_mismatch_total") == value(samples, "metadata_image_diverged") == 1
    assert value(samples, "metadata_blocked") == 1 and value(samples, "metadata_blocked_offset") == 5
    assert value(samples, "metadata_apply_errors_total") == 1


def test_the_newest_snapshot_is_reported_and_without_one_the_age_is_the_process_s() -> None:
    quorum: Any = FakeQuorumNode(make_quorum(ends=(103, 103, 90)))
    before = scrape(make_sources(quorum=quorum))
    assert value(before, "raft_snapshots_total", op="generate") == 0
    assert (value(before, "raft_snapshot_bytes"), value(before, "raft_snapshot_age_seconds")) == (0, 60.5)
    stats = quorum.snapshot_stats
    stats.taken, stats.taken_ms_sum, stats.last_bytes, stats.last_end_offset = 2, 300.0, 4096, 90
    stats.last_timestamp_ms = NOW_MS - 1_500
    stats.loaded, stats.loaded_ms_sum, stats.sent = 1, 250, 3
    samples = scrape(make_sources(quorum=quorum))
    reported = [value(samples, "raft_snapshots_total", op=op) for op in ("generate", "load", "send")]
    assert reported == [2, 1, 3]
    assert value(samples, "raft_snapshot_age_seconds") == 2.0
    assert (value(samples, "raft_snapshot_bytes"), value(samples, "raft_snapshot_end_offset")) == (4096, 90)
    assert value(samples, "raft_snapshot_seconds_sum", op="generate") == 0.3
    assert value(samples, "raft_snapshot_seconds_sum", op="load") == 0.25


def test_requests_are_named_as_the_protocol_names_them() -> None:
    network = NetworkStats(connections=4)
    network.requests[ApiKey.INIT_PRODUCER_ID << 16 | 4] = 9 + (100 << COUNT_BITS)
    network.errors[ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS] = 2
    network.time_of(ApiKey.FETCH).note(0.3, 1, 5000)
    network.note_phases(ApiKey.FETCH, [("remote", 0.25)])
    samples = scrape(make_sources(network=network))
    assert value(samples, "request_bytes_total", api="InitProducerId", direction="in") == 100 + 9 * 4
    assert value(samples, "request_bytes_total", api="Fetch", direction="out") == 5000
    assert value(samples, "request_seconds_sum", api="Fetch", phase="remote") == 0.25
    assert value(samples, "connections") == 4
    assert value(samples, "requests_total", api="InitProducerId", version="4") == 9
    assert value(samples, "request_errors_total", api="Produce", error="NOT_ENOUGH_REPLICAS") == 2
    assert value(samples, "request_seconds_count", api="Fetch", phase="total") == 1
    assert api_name(999) == "unknown"


def make_group() -> ClassicGroup:
    group = ClassicGroup("g", initial_rebalance_delay_ms=0, max_size=9)
    group.stats = GroupStats(Counter({RebalanceReason.LEAVE: 2}), commits_done=6, commits_failed=1)
    return group


def stand_ins() -> dict[str, Any]:
    """Rooms as the exporter reads them, their counters real."""
    flushes = FlushStats(files=9)
    descriptors = Descriptors()
    descriptors.close()
    descriptors.stats = DescriptorStats(closed=4, reopened=3, refused=1)
    for seconds in (0.25, 0.5):
        flushes.round_s.observe(seconds)

    producers = ProducerState()
    producers.begin_transaction(producer_id=7, epoch=0, first_offset=Offset(31), last_offset=Offset(32))

    def partition(index: int, *, is_leader: bool) -> SimpleNamespace:
        log = SimpleNamespace(
            size_bytes=2048,
            segment_count=2,
            log_start_offset=5,
            log_end_offset=40 + index,
            last_stable_offset=31,
            producer_count=1 + index,
            producers=producers,
        )
        return SimpleNamespace(
            topic_partition=TopicPartition("t", index),
            is_leader=is_leader,
            log=log,
            remotes={},
            high_watermark=39,
            waiting_for_commit=[1, 2],
            waiting_for_flush=[3],
            follower_fetches=[],
            consumer_fetches=[4],
        )

    partitions = [partition(0, is_leader=True), partition(1, is_leader=False)]
    return {
        "replicas": SimpleNamespace(
            stats=ReplicationStats(isr_shrinks=3, replicated_bytes=100),
            partitions=lambda: iter(partitions),
            topic_traffic={"t": TopicTraffic(hosted=2, bytes_in=70, records_in=7, bytes_out=30, append_errors=1)},
            throttle=ReplicationThrottle(),
            hosted=SimpleNamespace(now_ms=lambda: 1000),
        ),
        "logs": SimpleNamespace(
            health=SimpleNamespace(online_directories=["/"], offline_directories=["/gone"]),
            flush_stats=lambda: {"/": flushes},
            repairs=SimpleNamespace(
                scrub_stats=lambda: {"/": ScrubStats(bytes_checked=70, pass_bytes=200, pass_bytes_checked=50)}
            ),
            logs={TopicPartition("t", 0): SimpleNamespace(damage=(1, 2))},
            cleaner=SimpleNamespace(stats=CleanerStats(set_aside={TopicPartition("t", 0): "for the test"})),
            stats=LogManagerStats(segments_retired=6, logs_that_lost_flushed_data=2),
        ),
        "log_descriptors": descriptors,
        "clock": SimpleNamespace(skew_s=0.25, may_judge_age=lambda: True),
        "groups": SimpleNamespace(
            partitions={0: ShardState.ACTIVE, 1: ShardState.ACTIVE, 2: ShardState.LOADING},
            stats=CoordinatorStats(loads=3),
            existing_groups=lambda: [make_group()],
            misplaced_partitions={3, 4},
            list_groups=lambda: [GroupListing("g", "consumer", "Stable", "classic")] * 2,
            committed_offsets=lambda: [("g", TopicPartition("t", index), Offset(9 * index)) for index in range(3)],
        ),
        "transactions": SimpleNamespace(
            config=TransactionCoordinatorConfig(),
            partitions={0: ShardState.ACTIVE},
            stats=CoordinatorStats(loads=1, records_written=8),
            states=lambda: [
                make_transaction(TransactionStatus.ONGOING, NOW_MS - 40_000),
                make_transaction(TransactionStatus.ONGOING, NOW_MS - 90_000),
                make_transaction(TransactionStatus.EMPTY, -1),
            ],
            markers=SimpleNamespace(due_since_ms=lambda: [NOW_MS - 5_000, NOW_MS - 7_000]),
            marker_stats=MarkerStats(requests=2, written=6, retried=1),
            misplaced_partitions=set(),
        ),
        "share_state": SimpleNamespace(
            partitions={0: ShardState.ACTIVE, 1: ShardState.LOADING},
            stats=CoordinatorStats(loads=1, records_written=9, appends_refused=2),
            share_partitions=12,
        ),
        "persister": SimpleNamespace(retries=4, failures=1),
        "shares": SimpleNamespace(
            sessions=("a", "b"),
            stats=ShareStats(acquired_records=30, writes=7, failed_writes=2),
            cores=lambda: [shared_window()],
        ),
        "dead_letters": SimpleNamespace(stats=DeadLetterStats(written=5)),
        "due_times": SimpleNamespace(stats=DueTimeStats(opened_bytes=11)),
        "controller": SimpleNamespace(
            stats=ControllerDriverStats(
                brokers_fenced=5, fenced_by_probe=4, leader_elections=Counter({ElectedFrom.UNCLEAN: 2})
            )
        ),
    }


def shared_window() -> SharePartition:
    """Thirty records, of which a member has ten."""
    one = Driven()
    one.fetch()
    one.ack(10, 29, RELEASE)
    return one.core


def make_transaction(status: TransactionStatus, start_ms: int) -> TransactionState:
    return TransactionState(
        producer_id=1, producer_epoch=0, timeout_ms=60_000, status=status, start_ms=start_ms, update_ms=NOW_MS
    )


def test_rooms_tell_their_counters() -> None:
    samples = scrape(make_sources(**stand_ins()))
    assert value(samples, "replica_isr_changes_total", kind="shrink") == 3
    assert value(samples, "replication_bytes_total", direction="in") == 100
    assert value(samples, "purgatory_size", op="produce") == 6
    assert value(samples, "share_state_partitions", state="loading") == 1
    assert value(samples, "share_state_share_partitions") == 12
    assert value(samples, "share_state_records_written_total") == 9
    assert value(samples, "share_state_appends_failed_total", kind="refused") == 2
    assert value(samples, "share_state_calls_total", result="retried") == 4
    assert value(samples, "share_sessions") == 2
    assert value(samples, "share_partitions", state="loaded") == 1
    assert value(samples, "share_partitions", state="full") == 0
    assert value(samples, "share_records", state="acquired") == 10
    assert value(samples, "share_records", state="available") == 20
    assert value(samples, "share_records_acquired_total") == 30
    assert value(samples, "share_writes_total", result="done") == 5
    assert value(samples, "share_dead_letters_total", result="written") == 5
    assert value(samples, "purgatory_size", op="consumer_fetch") == 2
    assert value(samples, "log_dirs", state="offline") == 1
    assert value(samples, "log_disk_free_bytes", dir="/") > 0
    assert value(samples, "log_flush_seconds_bucket", dir="/", le="0.25") == 1
    assert value(samples, "log_flush_seconds_sum", dir="/") == 0.75
    assert value(samples, "log_segments_retired_total") == 6
    assert value(samples, "log_lost_flushed_data_total") == 2
    assert value(samples, "log_scrub_bytes_total", dir="/") == 70
    assert value(samples, "log_scrub_progress_ratio", dir="/") == 0.25
    assert value(samples, "log_damaged_ranges") == 2
    assert value(samples, "log_cleaner_uncleanable_logs") == 1
    assert value(samples, "group_partitions", state="active") == 2
    assert (value(samples, "group_misplaced_partitions"), value(samples, "transaction_misplaced_partitions")) == (2, 0)
    assert value(samples, "groups", state="Stable") == 2
    assert value(samples, "transactions", state="Ongoing") == 2
    assert value(samples, "transaction_partitions", state="active") == 1
    assert value(samples, "transaction_oldest_open_seconds") == 90.5
    assert value(samples, "transaction_markers_due") == 2
    assert value(samples, "transaction_markers_oldest_seconds") == 7.5
    assert value(samples, "transaction_markers_total", result="retried") == 1
    assert value(samples, "transaction_records_written_total") == 8
    assert value(samples, "controller_heartbeat_timeouts_total", by="silence") == 1
    reported = [
        value(samples, "controller_leader_elections_total", type=kind) for kind in ("preferred", "isr", "unclean")
    ]
    assert reported == [0, 0, 2]
    assert value(samples, "producer_ids") == 3
    assert value(samples, "raft_fsync_seconds_bucket", le="0.0025") == 1
    assert value(samples, "raft_fsync_seconds_sum") == 0.502


def test_a_topic_tells_its_bytes_and_beyond_the_bound_all_tell_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = stand_ins()
    samples = scrape(make_sources(**rooms))
    assert value(samples, "topic_bytes_total", topic="t", direction="in") == 70
    assert value(samples, "topic_bytes_total", topic="t", direction="out") == 30
    assert value(samples, "topic_records_in_total", topic="t") == 7
    assert value(samples, "topic_errors_total", topic="t", op="produce") == 1
    assert value(samples, "topics_left_out") == 0
    monkeypatch.setattr(traffic, "TOPICS_MAX", 1)
    rooms["replicas"].topic_traffic |= {name: TopicTraffic(bytes_in=5) for name in ("u", "v")}
    samples = scrape(make_sources(**rooms))
    assert value(samples, "topic_bytes_total", topic=traffic.OTHER_TOPICS, direction="in") == 10
    assert value(samples, "topic_bytes_total", topic="t", direction="in") == 70
    assert value(samples, "topics_left_out") == 2


def test_a_group_lags_behind_what_is_left_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = stand_ins()
    samples = scrape(make_sources(**rooms))
    # Of partition 0 it committed nothing that is still there: the log begins at 5, the high watermark is 39.
    assert value(samples, "group_lag_records", group="g", topic="t", partition="0") == 34
    assert value(samples, "group_lag_records", group="g", topic="t", partition="1") == 30
    assert value(samples, "group_committed_offset", group="g", topic="t", partition="2") == 18
    assert not [
        labels for name, labels in samples if name == "barnabas_group_lag_records" and ("partition", "2") in labels
    ]
    assert value(samples, "group_lags_left_out") == 0
    monkeypatch.setattr(groups, "LAGS_MAX", 1)
    samples = scrape(make_sources(**rooms))
    assert value(samples, "group_lags_left_out") == 2
    assert len([name for name, _ in samples if name == "barnabas_group_committed_offset"]) == 1


def test_a_group_tells_its_state_members_rebalances_and_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = stand_ins()
    samples = scrape(make_sources(**rooms))
    assert value(samples, "group_state_info", group="g", state="Empty", protocol="") == 1
    assert value(samples, "group_type_info", group="g", type="classic") == 1
    assert value(samples, "group_members", group="g") == 0
    assert value(samples, "group_rebalances_total", group="g", reason="leave") == 2
    assert [value(samples, "group_commits_total", group="g", result=word) for word in ("done", "failed")] == [6, 1]
    assert value(samples, "groups_left_out") == 0
    monkeypatch.setattr(groups, "GROUPS_MAX", 0)
    samples = scrape(make_sources(**rooms))
    assert value(samples, "groups_left_out") == 1
    assert not [name for name, _ in samples if name == "barnabas_group_members"]


def test_a_group_s_lag_in_seconds_counts_from_when_scrapes_saw_the_high_watermark_pass_it() -> None:
    rooms, now_ms = stand_ins(), [NOW_MS]
    sources = make_sources(clock_ms=lambda: now_ms[0], **rooms)
    first, second = rooms["replicas"].partitions()
    first.high_watermark = second.high_watermark = 5
    rooms["groups"].committed_offsets = lambda: [("g", first.topic_partition, 5), ("g", second.topic_partition, 5)]
    lags = []
    for high_watermark in (5, 8, 8, 9):
        second.high_watermark = high_watermark
        lags.append(value(scrape(sources), "group_lag_seconds", group="g", topic="t"))
        now_ms[0] += 10_000
    assert lags == [0, 0, 10, 20]
    rooms["groups"].committed_offsets = lambda: [("g", second.topic_partition, 8)]
    assert value(scrape(sources), "group_lag_seconds", group="g", topic="t") == 10
    second.high_watermark = 8  # committed records were lost
    assert value(scrape(sources), "group_lag_seconds", group="g", topic="t") == 0


def test_the_points_of_a_partition_are_bounded_and_never_make_a_lag_longer_than_it_is() -> None:
    points: lag_times.Points = ()
    for second in range(10_000):
        points = lag_times.with_point(points, lag_times.Point(second * 1000, second))
        assert len(points) <= lag_times.POINTS_MAX and points[0].at_ms == 0 and points[-1].high_watermark == second
    assert lag_times.with_point(points, lag_times.Point(10_000_000, 9_999)) is points, "it stands still"
    key = TopicPartition("t", 0)
    behind = lag_times.Behind(10_000_000, {key: points})
    for offset in range(-1, 10_000, 7):
        lag_s = 10_000 - (offset + 1) if offset < 9_999 else 0
        assert lag_s * 0.4 - 1 <= behind.seconds(key, offset) <= lag_s


def test_a_throttle_tells_its_rate_what_passed_and_how_long_to_wait() -> None:
    rooms = stand_ins()
    samples = scrape(make_sources(**rooms))
    assert value(samples, "replication_throttle_rate_bytes", role="leader") == -1
    assert value(samples, "replication_throttle_wait_seconds", role="leader") == 0
    side = rooms["replicas"].throttle.as_leader
    side.set_rate(1000, 1000)
    side.take(3000, 1000)
    samples = scrape(make_sources(**rooms))
    assert value(samples, "replication_throttle_rate_bytes", role="leader") == 1000
    assert value(samples, "replication_throttled_bytes_total", role="leader") == 3000
    assert value(samples, "replication_throttle_wait_seconds", role="leader") > 0
    assert value(samples, "replication_throttled_bytes_total", role="follower") == 0


def test_only_led_partitions_have_series_of_their_own() -> None:
    samples = scrape(make_sources(**stand_ins()))
    assert value(samples, "log_end_offset", topic="t", partition="0") == 40
    assert value(samples, "log_high_watermark", topic="t", partition="0") == 39
    assert value(samples, "log_last_stable_offset", topic="t", partition="0") == 31
    assert value(samples, "replica_late_transaction_partitions") == 1
    assert ("barnabas_log_end_offset", (("partition", "1"), ("topic", "t"))) not in samples


@pytest.mark.parametrize(("ends", "lag"), [((), 0), ((40, 33), 7), ((40, 41), 0), ((40, -1), 35), ((3,), 35)])
def test_a_led_partition_tells_how_far_its_slowest_follower_is_behind(ends: tuple[int, ...], lag: int) -> None:
    """The log begins at 5 and ends at 40; -1 has not fetched yet."""
    rooms = stand_ins()
    led = next(iter(rooms["replicas"].partitions()))
    led.remotes |= {BrokerId(n): RemoteReplica(BrokerId(n), end_offset=Offset(end)) for n, end in enumerate(ends, 2)}
    assert value(scrape(make_sources(**rooms)), "replica_fetch_lag_records", topic="t", partition="0") == lag


def test_a_dict_that_grows_while_it_is_read_is_read_again() -> None:
    tries = iter([RuntimeError("dictionary changed size during iteration"), None])

    def items() -> list[int]:
        error = next(tries)
        if error is not None:
            raise error
        return [1, 2]

    assert copied(items) == [1, 2]


def test_admin_calls_are_counted_by_outcome() -> None:
    admin = AdminStats()
    admin.requests["CreateTopics", "TOPIC_ALREADY_EXISTS"] = 3
    samples = scrape(make_sources(admin=admin))
    assert value(samples, "admin_requests_total", method="CreateTopics", code="TOPIC_ALREADY_EXISTS") == 3


COUNTED_ELSEWHERE = {
    ("SnapshotStats", "last_ms"): "taken_ms_sum tells it; the bench reads it after each snapshot",
    ("LoaderStats", "snapshots"): "the quorum's own count of loaded snapshots is reported",
    ("TopicTraffic", "hosted"): "keeps the entry alive, counts nothing",
}


def test_every_counter_that_a_room_keeps_is_reported() -> None:
    """A counter in no metric helps nobody, and looks as if it did."""
    root = Path(__file__).resolve().parents[3]
    exporting = "".join(path.read_text() for path in (root / "broker/barnabas_broker/metrics").glob("*.py"))
    kept = {
        (found.name, line.target.id)
        for room in ("broker", "log", "replication", "metadata_quorum")
        for path in (root / room).rglob("*.py")
        for found in ast.walk(ast.parse(path.read_text()))
        if isinstance(found, ast.ClassDef) and (found.name.endswith("Stats") or found.name == "TopicTraffic")
        for line in found.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    assert len(kept) > 80
    silent = {(owner, name) for owner, name in kept if not re.search(rf"\.{name}\b", exporting)}
    assert silent - COUNTED_ELSEWHERE.keys() == set()


def test_what_a_node_asks_of_the_controller_is_reported() -> None:
    asked = ControllerClientStats(requests=9, retries=4, timeouts=1)
    incarnation = LifecycleStats(registrations=2, heartbeats_sent=70, heartbeats_held_back=3, streams_opened=5)
    samples = scrape(make_sources(controller_client=asked, lifecycle=incarnation))
    reported = [value(samples, f"active_controller_{what}_total") for what in ("requests", "retries", "timeouts")]
    assert reported == [9, 4, 1]
    assert value(samples, "broker_registrations_total") == 2
    assert [value(samples, "broker_heartbeats_total", result=word) for word in ("sent", "held_back")] == [70, 3]
    assert value(samples, "broker_heartbeat_streams_total") == 5


def test_a_second_recovery_is_reported_by_who_has_met_it() -> None:
    assert value(scrape(make_sources()), "raft_recovered_twice") == 0
    assert value(scrape(make_sources(recovered_beside=lambda: ("1:x",))), "raft_recovered_twice") == 1


def test_what_is_claimed_is_reported_with_its_type_and_labels() -> None:
    network, admin, lag = NetworkStats(), AdminStats(), Histogram()
    network.requests[ApiKey.FETCH << 16 | 12] = 1
    network.errors[ApiKey.FETCH, ErrorCode.UNKNOWN_TOPIC_ID] = 1
    network.time_of(ApiKey.FETCH).observe(0.3)
    admin.requests["CreateTopics", "NONE"] = 1
    admin.seconds["CreateTopics"] = lag
    parts = {
        "network": network,
        "admin": admin,
        "lanes": {"data": lag},
        "tasks": {"data": int},
        "loader": MetadataLoader(),
    }
    body, _ = render(make_sources(**parts, **stand_ins()))
    page = reported(body.decode())
    assert {name: page.get(name) for name in CLAIMED} == CLAIMED


def test_names_follow_the_rules() -> None:
    body, content_type = render(make_sources(network=NetworkStats(), admin=AdminStats(), **stand_ins()))
    assert content_type.startswith("text/plain; version=0.0.4")
    for family in text_string_to_metric_families(body.decode()):
        assert family.documentation, f"{family.name} says nothing about itself"
        if not family.name.startswith(("barnabas_", "process_")):
            raise AssertionError(f"{family.name} has no prefix")
        for sample in family.samples:
            assert re.fullmatch(r"[a-z_]+", sample.name)
            assert family.type != "counter" or sample.name.endswith("_total") or sample.name.startswith("process_")
            assert not sample.name.endswith(("_ms", "_millis"))


async def test_the_tasks_of_a_lane_are_counted_from_another_thread() -> None:
    probe = LaneProbe(clock_ms=lambda: 0)
    assert probe.count_tasks() == 0
    gate = asyncio.Event()
    tasks = [asyncio.ensure_future(probe.run()), *(asyncio.ensure_future(gate.wait()) for _ in range(5))]
    try:
        await asyncio.sleep(0)
        page = await asyncio.to_thread(scrape, make_sources(tasks={"data": probe.count_tasks}))
        assert value(page, "event_loop_tasks", lane="data") == len(asyncio.all_tasks()) >= 6
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_lane_that_opened_logs_for_long_has_moved_once_it_is_probed() -> None:
    times: list[int] = [0]
    probe = LaneProbe(clock_ms=lambda: times[0])
    times[0] = 30_000
    task = asyncio.ensure_future(probe.run())
    await asyncio.sleep(0)
    assert probe.last_tick_ms == 30_000, (
        "else the first heartbeat is withheld, and an ERROR says that the lane is stuck"
    )
    task.cancel()


async def test_a_lane_probe_sees_a_blocked_loop() -> None:
    times: list[int] = [0]
    probe = LaneProbe(clock_ms=lambda: times[0])
    task = asyncio.ensure_future(probe.run())
    try:
        await settle(lambda: sum(probe.lag.counts) >= 1)
        before = probe.lag.total
        await asyncio.sleep(0)
        time.sleep(IDLE_PERIOD_S + 0.3)  # noqa: ASYNC251 - the loop shall be blocked
        times[0] = 1234
        await settle(lambda: sum(probe.lag.counts) >= 2)
        assert probe.lag.total - before > 0.2
        assert probe.last_tick_ms == 1234
    finally:
        task.cancel()


def test_a_lane_that_works_is_probed_often_and_an_idle_one_rarely() -> None:
    assert choose_period_s(cpu_s=0.02, elapsed_s=0.5) == IDLE_PERIOD_S
    assert choose_period_s(cpu_s=0.03, elapsed_s=0.5) == BUSY_PERIOD_S
    assert choose_period_s(cpu_s=0.004, elapsed_s=BUSY_PERIOD_S) == IDLE_PERIOD_S


async def settle(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)
