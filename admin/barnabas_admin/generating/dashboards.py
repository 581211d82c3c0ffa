"""The dashboards of Grafana: which panels, of which metrics.

May touch:  nothing.                  Must not touch: how Grafana wants them (grafana.py).
Invariants: every expression names metrics that a node has (tests/cluster/test_prometheus.py asks a real Prometheus over a real cluster);
            a panel says in words what its bad value means, and the command to type then.
Read next:  grafana.py.
"""

from __future__ import annotations

from barnabas_admin.generating.grafana import Dashboard, graph, number, quantile, rate

OVERVIEW = Dashboard(
    "barnabas-overview",
    "Barnabas: overview",
    (
        (
            "Is it well?",
            (
                number(
                    "Active controllers", "Not 1: barnabas explain leader.", "sum(barnabas_controller_active)", bad=2
                ),
                number(
                    "Partitions without a leader",
                    "Nobody writes to or reads from them: barnabas cluster health.",
                    "max(barnabas_controller_offline_partitions)",
                    bad=1,
                ),
                number(
                    "Under min ISR",
                    "acks=all is refused there: barnabas cluster health.",
                    "sum(barnabas_replica_under_min_isr)",
                    bad=1,
                ),
                number(
                    "Under-replicated",
                    "One more loss may stop them: barnabas cluster health.",
                    "sum(barnabas_replica_under_replicated)",
                    bad=1,
                ),
                number(
                    "Brokers in service",
                    "Less than there are: barnabas broker list.",
                    'max(barnabas_controller_brokers{state="active"})',
                ),
                number(
                    "Brokers fenced",
                    "barnabas explain broker ID.",
                    'max(barnabas_controller_brokers{state="fenced"})',
                    bad=1,
                ),
                number("Partitions", "In the metadata.", "max(barnabas_controller_partitions)"),
                number("Topics", "In the metadata.", "max(barnabas_controller_topics)"),
            ),
        ),
        (
            "Traffic",
            (
                graph(
                    "Records in",
                    "From producers, by topic.",
                    "short",
                    (rate("barnabas_topic_records_in_total", "topic"), "{{topic}}"),
                ),
                graph(
                    "Bytes",
                    "By topic.",
                    "Bps",
                    (rate("barnabas_topic_bytes_total", "topic, direction"), "{{topic}} {{direction}}"),
                ),
                graph("Requests", "By API.", "reqps", (rate("barnabas_requests_total", "api"), "{{api}}")),
                graph(
                    "Errors reported to clients",
                    "By API and error; NOT_LEADER_OR_FOLLOWER while leaders move is no fault.",
                    "reqps",
                    (rate("barnabas_request_errors_total", "api, error"), "{{api}} {{error}}"),
                ),
            ),
        ),
        (
            "Times",
            (
                graph(
                    "Produce",
                    "From the whole request to its answer; with acks=all the followers' time is in it.",
                    "s",
                    (quantile(0.5, "barnabas_request_seconds", "api", '{api="Produce", phase="total"}'), "p50"),
                    (quantile(0.99, "barnabas_request_seconds", "api", '{api="Produce", phase="total"}'), "p99"),
                ),
                graph(
                    "Phases of Produce",
                    "p99 of each: waiting for its handler, in it, for followers, behind answers, sent. Of one in 128.",
                    "s",
                    (
                        quantile(0.99, "barnabas_request_seconds", "phase", '{api="Produce", phase!="total"}'),
                        "{{phase}}",
                    ),
                ),
                graph(
                    "Event loops",
                    "How late the lanes turn, p99. Above 0.25 s a node is overloaded.",
                    "s",
                    (quantile(0.99, "barnabas_loop_lag_seconds", "node, lane"), "{{node}} {{lane}}"),
                ),
                graph(
                    "Flushes",
                    "p99 of a log directory's flush.",
                    "s",
                    (quantile(0.99, "barnabas_log_flush_seconds"), "{{node}}"),
                ),
                graph("CPU", "Cores of each node.", "short", (rate("process_cpu_seconds_total"), "{{node}}")),
            ),
        ),
    ),
)
BROKERS = Dashboard(
    "barnabas-brokers",
    "Barnabas: brokers and replication",
    (
        (
            "Replicas",
            (
                graph(
                    "Leaders",
                    "Uneven: barnabas topic elect --all.",
                    "short",
                    ('sum by (node) (barnabas_replica_partitions{role="leader"})', "{{node}}"),
                ),
                graph(
                    "ISR changes",
                    "Shrinks that go on: a follower cannot keep up.",
                    "short",
                    (rate("barnabas_replica_isr_changes_total", "node, kind"), "{{node}} {{kind}}"),
                ),
                graph(
                    "Replication",
                    "Bytes between brokers.",
                    "Bps",
                    (rate("barnabas_replication_bytes_total", "node, direction"), "{{node}} {{direction}}"),
                ),
                graph(
                    "Moves",
                    "Led partitions whose replicas change: barnabas topic reassignments.",
                    "short",
                    ("sum by (node) (barnabas_replica_reassigning)", "{{node}}"),
                ),
            ),
        ),
        (
            "Disks",
            (
                graph(
                    "Free",
                    "A full directory takes no records: barnabas broker logdirs.",
                    "bytes",
                    ("min by (node, dir) (barnabas_log_disk_free_bytes)", "{{node}} {{dir}}"),
                ),
                graph(
                    "Directories offline",
                    "Mend the disk, start the node again.",
                    "short",
                    ('sum by (node) (barnabas_log_dirs{state="offline"})', "{{node}}"),
                ),
                graph(
                    "Damage not repaired",
                    "barnabas log verify DIRECTORY on that node.",
                    "short",
                    ("sum by (node) (barnabas_log_damaged_ranges)", "{{node}}"),
                ),
                graph(
                    "Uncleanable logs",
                    "Compaction has set them aside: barnabas explain partition.",
                    "short",
                    ("max by (node) (barnabas_log_cleaner_uncleanable_logs)", "{{node}}"),
                ),
            ),
        ),
        (
            "Network and process",
            (
                graph("Connections", "Open.", "short", ("sum by (node) (barnabas_connections)", "{{node}}")),
                graph(
                    "Connections closed",
                    "By reason.",
                    "short",
                    (rate("barnabas_connections_closed_total", "reason"), "{{reason}}"),
                ),
                graph(
                    "Bytes",
                    "On the listeners.",
                    "Bps",
                    (rate("barnabas_network_bytes_total", "node, direction"), "{{node}} {{direction}}"),
                ),
                graph("Memory", "Resident.", "bytes", ("sum by (node) (process_resident_memory_bytes)", "{{node}}")),
                graph(
                    "Descriptors",
                    "Of those that the limit allows.",
                    "percentunit",
                    ("max by (node) (process_open_fds / process_max_fds)", "{{node}}"),
                ),
                graph(
                    "Requests that wait",
                    "For records, acknowledgements, votes.",
                    "short",
                    ("sum by (node, op) (barnabas_purgatory_size)", "{{node}} {{op}}"),
                ),
            ),
        ),
    ),
)
QUORUM = Dashboard(
    "barnabas-quorum",
    "Barnabas: metadata quorum",
    (
        (
            "The log",
            (
                graph(
                    "Leader",
                    "Changes: barnabas explain leader.",
                    "short",
                    ("max by (node) (barnabas_raft_leader_id)", "{{node}}"),
                ),
                graph(
                    "Epoch", "Each election raises it.", "short", ("max by (node) (barnabas_raft_epoch)", "{{node}}")
                ),
                graph(
                    "High watermark",
                    "Committed records.",
                    "short",
                    ("max by (node) (barnabas_raft_high_watermark)", "{{node}}"),
                ),
                graph(
                    "Lag of voters and observers",
                    "barnabas quorum replicas.",
                    "s",
                    ("max by (node_id) (barnabas_raft_follower_lag_seconds)", "{{node_id}}"),
                ),
                graph(
                    "Commit",
                    "From the proposal until a majority has it.",
                    "s",
                    (quantile(0.5, "barnabas_raft_commit_seconds", "job"), "p50"),
                    (quantile(0.99, "barnabas_raft_commit_seconds", "job"), "p99"),
                ),
                graph(
                    "Flush",
                    "p99 of the metadata log's.",
                    "s",
                    (quantile(0.99, "barnabas_raft_fsync_seconds"), "{{node}}"),
                ),
            ),
        ),
        (
            "The controller",
            (
                graph(
                    "Queue",
                    "How long a decision waits and takes, p99.",
                    "s",
                    (quantile(0.99, "barnabas_controller_event_queue_seconds", "phase"), "{{phase}}"),
                ),
                graph(
                    "Elections of leaders",
                    "Unclean ones may lose records.",
                    "short",
                    (rate("barnabas_controller_leader_elections_total", "type"), "{{type}}"),
                ),
                graph(
                    "Metadata lag of nodes",
                    "Records that a node has not applied.",
                    "short",
                    ("max by (node) (barnabas_metadata_lag_records)", "{{node}}"),
                ),
                graph(
                    "Snapshot",
                    "Age of the newest.",
                    "s",
                    ("max by (node) (barnabas_raft_snapshot_age_seconds)", "{{node}}"),
                ),
                graph(
                    "Metadata differs",
                    "Not 0: barnabas quorum verify.",
                    "short",
                    ("max by (node) (barnabas_metadata_image_diverged)", "{{node}}"),
                ),
                graph(
                    "Metadata blocked",
                    "Not 0: barnabas quorum quarantine list.",
                    "short",
                    ("max by (node) (barnabas_metadata_blocked)", "{{node}}"),
                ),
            ),
        ),
    ),
)
GROUPS = Dashboard(
    "barnabas-groups",
    "Barnabas: groups and transactions",
    (
        (
            "Groups",
            (
                graph(
                    "Lag in records",
                    "barnabas group lag.",
                    "short",
                    ("sum by (group) (barnabas_group_lag_records)", "{{group}}"),
                ),
                graph(
                    "Lag in time",
                    "Since the oldest record that is not committed was written.",
                    "s",
                    ("max by (group) (barnabas_group_lag_seconds)", "{{group}}"),
                ),
                graph("Members", "Of each group.", "short", ("sum by (group) (barnabas_group_members)", "{{group}}")),
                graph(
                    "Rebalances",
                    "Each stops a classic group for a moment.",
                    "short",
                    (rate("barnabas_group_rebalances_total", "group, reason"), "{{group}} {{reason}}"),
                ),
                graph(
                    "Commits",
                    "Of offsets.",
                    "short",
                    (rate("barnabas_group_commits_total", "group, result"), "{{group}} {{result}}"),
                ),
            ),
        ),
        (
            "Transactions",
            (
                graph("Open", "By state.", "short", ("sum by (state) (barnabas_transactions)", "{{state}}")),
                graph(
                    "Oldest open",
                    "Beyond transaction.max.timeout.ms: barnabas txn find-hanging.",
                    "s",
                    ("max by (node) (barnabas_transaction_oldest_open_seconds)", "{{node}}"),
                ),
                graph(
                    "Markers due",
                    "Decided and not yet in every partition.",
                    "short",
                    ("sum by (node) (barnabas_transaction_markers_due)", "{{node}}"),
                ),
                graph(
                    "Committed data behind",
                    "What readers of committed data do not see yet, by topic.",
                    "short",
                    ("sum by (topic) (barnabas_log_high_watermark - barnabas_log_last_stable_offset)", "{{topic}}"),
                ),
            ),
        ),
    ),
)
DASHBOARDS = (OVERVIEW, BROKERS, QUORUM, GROUPS)
