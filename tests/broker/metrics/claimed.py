"""Every metric of operations.md 3.3 that a node claims to tell: name, type, labels. One list for the page of stand-ins and of a
live cluster.

Left out of 3.3: what does not exist yet (transaction_seconds); the label `listener`, since all listeners of a node share their counters.
node_info says node_id: the scrape configuration gives every series a label `node`, and Prometheus would rename ours.
"""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families


class Claim(NamedTuple):
    """One family: its type and the labels of its samples, but for a histogram's `le`."""

    type: str
    labels: frozenset[str]


def reported(page: str) -> dict[str, Claim]:
    """What a page has samples of, by the names that 3.3 uses."""
    return {
        family.name.removeprefix("barnabas_") + "_total" * (family.type == "counter"): _claim(family)
        for family in text_string_to_metric_families(page)
        if family.samples
    }


def _claim(family: Metric) -> Claim:
    return Claim(family.type, frozenset({label for sample in family.samples for label in sample.labels} - {"le"}))


CLAIMED = {
    name: Claim(kind, frozenset(labels))
    for name, kind, *labels in map(
        str.split,
        """
        build_info                               gauge version commit python
        node_info                                gauge node_id roles rack cluster_id metadata_version
        node_uptime_seconds                      gauge
        controller_active                        gauge
        controller_brokers                       gauge state
        controller_topics                        gauge
        controller_partitions                    gauge
        controller_offline_partitions            gauge
        controller_not_preferred_leader_partitions gauge
        controller_faulty_replicas               gauge fault
        controller_leader_elections_total        counter type
        controller_event_queue_seconds           histogram phase
        controller_event_queue_size              gauge
        controller_heartbeat_timeouts_total      counter by
        controller_metadata_errors_total         counter
        raft_state_info                          gauge state
        raft_leader_id                           gauge
        raft_voted_id                            gauge
        raft_epoch                               gauge
        raft_high_watermark                      gauge
        raft_log_end_offset                      gauge
        raft_log_start_offset                    gauge
        raft_voters                              gauge
        raft_observers                           gauge
        raft_follower_lag_records                gauge node_id
        raft_follower_lag_seconds                gauge node_id
        raft_commit_seconds                      histogram
        raft_election_seconds                    histogram
        raft_append_seconds                      histogram
        raft_fsync_seconds                       histogram
        raft_elections_total                     counter result
        raft_records_appended_total              counter
        raft_records_fetched_total               counter
        raft_snapshot_bytes                      gauge
        raft_snapshot_age_seconds                gauge
        raft_snapshots_total                     counter op
        metadata_applied_offset                  gauge
        metadata_lag_records                     gauge
        metadata_lag_seconds                     gauge
        metadata_apply_errors_total              counter
        replica_partitions                       gauge role
        replica_under_replicated                 gauge
        replica_under_min_isr                    gauge
        replica_at_min_isr                       gauge
        replica_offline                          gauge
        replica_reassigning                      gauge
        replica_isr_changes_total                counter kind
        replica_fetch_lag_records                gauge topic partition
        replica_fetch_seconds                    histogram
        replication_bytes_total                  counter direction
        request_bytes_total                      counter api direction
        request_seconds                          histogram api phase
        requests_total                           counter api version
        request_errors_total                     counter api error
        connections                              gauge
        connections_total                        counter result
        purgatory_size                           gauge op
        loop_lag_seconds                         histogram lane
        event_loop_tasks                         gauge lane
        audit_lines_total                        counter outcome
        topic_records_in_total                   counter topic
        topic_bytes_total                        counter topic direction
        topic_errors_total                       counter topic op
        log_size_bytes                           gauge topic partition
        log_start_offset                         gauge topic partition
        log_end_offset                           gauge topic partition
        log_high_watermark                       gauge topic partition
        log_last_stable_offset                   gauge topic partition
        replica_late_transaction_partitions      gauge
        log_segments                             gauge topic partition
        log_flush_seconds                        histogram dir
        log_dirs                                 gauge state
        log_cleaner_runs_total                   counter
        log_cleaner_runs_failed_total            counter
        log_cleaner_runs_dropped_total           counter
        log_cleaner_bytes_total                  counter
        log_cleaner_segments_swapped_total       counter
        log_cleaner_running                      gauge
        log_cleaner_last_run_seconds             gauge
        log_cleaner_last_run_keys                gauge
        log_cleaner_freed_bytes_total            counter
        log_cleaner_dirty_ratio_max              gauge
        log_cleaner_uncleanable_logs             gauge
        log_disk_free_bytes                      gauge dir
        log_files_open                           gauge
        log_files_closed_total                   counter
        log_files_reopened_total                 counter
        log_files_refused_total                  counter
        group_state_info                         gauge group state protocol
        group_type_info                          gauge group type
        group_members                            gauge group
        group_lag_records                        gauge group topic partition
        group_lag_seconds                        gauge group topic
        group_rebalances_total                   counter group reason
        group_commits_total                      counter group result
        transactions                             gauge state
        producer_ids                             gauge
        admin_requests_total                     counter method code
        admin_request_seconds                    histogram method
        """.strip().splitlines(),
    )
}
