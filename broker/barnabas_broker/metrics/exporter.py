"""Every metric of a node, under its name: reads the rooms' counters and the image when Prometheus asks.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: prefix barnabas_, base units, counters end in _total, times are histograms; label values are bounded (per
            partition only what this broker leads); a part the node does not have gives no series.
Read next:  sources.py, traffic.py, groups.py, http.py.

Not obvious: this runs in a thread while the lanes work. Numbers may be a moment apart; a dict that may grow meanwhile is
copied by one call (`list(d.items())`), never iterated.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from barnabas_broker.controller_client.quorum_health import present_observers
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
from barnabas_broker.metrics.families import copied, counter, gauge, histogram, partition_labels, summary
from barnabas_broker.metrics.groups import group_families, group_lag_families
from barnabas_broker.metrics.sources import NodeSources
from barnabas_broker.metrics.traffic import throttle_families, topic_families
from barnabas_quorum.controller.partition_change import ElectedFrom
from barnabas_quorum.records import ReplicaFault
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages import ApiKey

if TYPE_CHECKING:
    from barnabas_replication.partition import Partition


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
    yield gauge(
        "build_info",
        "The version that runs.",
        [({"version": sources.version, "commit": sources.commit, "python": platform.python_version()}, 1)],
    )
    yield gauge(
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
    yield gauge(
        "node_uptime_seconds", "Time since the start.", [({}, sources.clock_ms() / 1000 - sources.started_at_s)]
    )
    yield histogram(
        "loop_lag_seconds",
        "How late a timer of the lane's event loop fires.",
        [({"lane": lane}, lag) for lane, lag in sources.lanes.items()],
    )
    yield gauge(
        "event_loop_tasks",
        "Tasks of the lane's event loop that are not done.",
        [({"lane": lane}, count()) for lane, count in sources.tasks.items()],
    )


def quorum_families(sources: NodeSources) -> Iterator[Metric]:
    """The metadata quorum as this node sees it."""
    quorum = sources.quorum
    seen = quorum.describe()
    is_leader = seen.leader_id == sources.node_id
    state = "leader" if is_leader else "voter" if quorum.is_voter else "observer"
    yield gauge("raft_state_info", "What this node is in the quorum.", [({"state": state}, 1)])
    yield gauge("raft_leader_id", "node.id of the quorum's leader, -1 = unknown or lost.", [({}, seen.leader_id)])
    yield gauge("raft_voted_id", "node.id voted for in this epoch, -1 = none.", [({}, quorum.voted_id)])
    yield gauge("raft_epoch", "Quorum epoch.", [({}, seen.epoch)])
    yield gauge("raft_high_watermark", "End of the committed metadata log.", [({}, seen.high_watermark)])
    yield gauge("raft_log_end_offset", "End of this node's metadata log.", [({}, quorum.log_end_offset)])
    yield gauge("raft_log_start_offset", "Beginning of this node's metadata log.", [({}, quorum.log_start_offset)])
    yield gauge("raft_voters", "Voters of the quorum.", [({}, len(seen.voters))])
    stats = quorum.stats
    yield counter(
        "raft_elections",
        "Elections for which this node stood, and those it won.",
        [({"result": "begun"}, stats.elections_begun), ({"result": "won"}, stats.elections_won)],
    )
    yield histogram(
        "raft_election_seconds",
        "From this node's standing for election, pre-votes included, until it led or followed a leader.",
        [({}, stats.election_s)],
    )
    yield counter("raft_leader_changes", "Changes of the known leader.", [({}, stats.leader_changes)])
    yield counter("raft_proposals", "Batches proposed by this node as leader.", [({}, stats.proposals)])
    yield counter("raft_records_appended", "Records that this node appended as leader.", [({}, stats.records_appended)])
    yield counter(
        "raft_records_fetched", "Records that this node fetched from a leader.", [({}, stats.records_fetched)]
    )
    yield counter("raft_written_bytes", "Bytes written to the metadata log.", [({}, stats.bytes_written)])
    yield counter("raft_written_batches", "Batches written to the metadata log.", [({}, stats.batches_written)])
    yield gauge(
        "raft_recovered_twice",
        "1 while this node knows of another recovery of the same quorum: there may be two clusters now.",
        [({}, int(bool(sources.recovered_beside())))],
    )
    yield counter(
        "raft_requests",
        "Quorum requests.",
        [
            ({"result": "sent"}, stats.requests_sent),
            ({"result": "failed"}, stats.requests_failed),
            ({"result": "served"}, stats.requests_served),
        ],
    )
    yield histogram("raft_append_seconds", "Writes to the metadata log, before the flush.", [({}, stats.append_s)])
    yield histogram("raft_fsync_seconds", "Flushes of the metadata log.", [({}, stats.flush_s)])
    yield histogram(
        "raft_commit_seconds", "From proposal to commit, of this node's own proposals.", [({}, stats.commit_s)]
    )
    yield from _snapshot_families(sources)
    if not is_leader:
        return
    yield gauge("raft_observers", "Observers that the leader knows.", [({}, len(seen.observers))])
    now_ms = sources.clock_ms()
    observers = present_observers(seen, sources.image(), now_ms=now_ms)
    followers = [replica for replica in (*seen.voters, *observers) if replica.key.id != sources.node_id]
    known = [(str(replica.key.id), replica) for replica in followers if replica.log_end_offset >= 0]
    yield gauge(
        "raft_follower_lag_records",
        "Records of the metadata log that a replica lacks; from the leader.",
        [({"node_id": node}, max(0, quorum.log_end_offset - replica.log_end_offset)) for node, replica in known],
    )
    yield gauge(
        "raft_follower_lag_seconds",
        "Time since a replica had the whole metadata log; from the leader.",
        [({"node_id": n}, max(0, now_ms - r.last_caught_up_ms) / 1000) for n, r in known if r.last_caught_up_ms >= 0],
    )


def _snapshot_families(sources: NodeSources) -> Iterator[Metric]:
    """Snapshots of the metadata log on this node."""
    stats = sources.quorum.snapshot_stats
    yield counter(
        "raft_snapshots",
        "Snapshots taken here, loaded here, and downloaded from here to the end.",
        [({"op": "generate"}, stats.taken), ({"op": "load"}, stats.loaded), ({"op": "send"}, stats.sent)],
    )
    yield counter("raft_snapshots_given_up", "Snapshots outdated before they were whole.", [({}, stats.given_up)])
    yield counter("raft_snapshots_rotten", "Snapshots that the disk has damaged since; replaced.", [({}, stats.rotten)])
    yield counter("raft_log_cleanings", "Times the metadata log's beginning was dropped.", [({}, stats.logs_cleaned)])
    yield summary(
        "raft_snapshot_seconds",
        "Time to write and to load snapshots.",
        [
            ({"op": "generate"}, stats.taken, stats.taken_ms_sum / 1000),
            ({"op": "load"}, stats.loaded, stats.loaded_ms_sum / 1000),
        ],
    )
    yield gauge(
        "raft_snapshot_bytes", "Size of the last snapshot taken or loaded here, 0 = none yet.", [({}, stats.last_bytes)]
    )
    yield gauge("raft_snapshot_end_offset", "End of that snapshot, -1 = none yet.", [({}, stats.last_end_offset)])
    has_one = stats.last_end_offset >= 0
    since_s = stats.last_timestamp_ms / 1000 if has_one else sources.started_at_s
    yield gauge(
        "raft_snapshot_age_seconds",
        "Age of the newest record in that snapshot; while there is none, of the process.",
        [({}, max(0.0, sources.clock_ms() / 1000 - since_s))],
    )


def metadata_families(sources: NodeSources) -> Iterator[Metric]:
    """How far this node has applied the metadata."""
    image = sources.image()
    behind = max(0, sources.quorum.high_watermark - (image.offset + 1))
    yield gauge("metadata_applied_offset", "Last metadata record in the node's image.", [({}, image.offset)])
    yield gauge("metadata_lag_records", "Committed metadata records that are not applied yet.", [({}, behind)])
    if image.timestamp_ms >= 0:
        age_s = max(0, sources.clock_ms() - image.timestamp_ms) / 1000
        yield gauge("metadata_lag_seconds", "Age of the last applied metadata record.", [({}, age_s)])


def integrity_families(sources: NodeSources) -> Iterator[Metric]:
    """Whether this node's metadata is the agreed one, and all of it."""
    loader = sources.loader
    if loader is None:
        return
    stats, hold = loader.stats, loader.hold
    yield counter("metadata_records", "Committed metadata records that this node has read.", [({}, stats.records)])
    yield counter(
        "metadata_image_hashes_compared",
        "Image hashes of the active controller that were compared with this node's own.",
        [({}, stats.hashes_compared)],
    )
    yield counter(
        "metadata_image_hash_mismatch",
        "Image hashes of the active controller that this node's own did not equal: its metadata is wrong.",
        [({}, stats.hash_mismatches)],
    )
    yield gauge(
        "metadata_image_diverged",
        "1 while this node's metadata is known to differ.",
        [({}, int(bool(loader.agreement.divergence)))],
    )
    yield counter(
        "metadata_apply_errors", "Committed metadata records that could not be replayed.", [({}, stats.bad_records)]
    )
    yield counter(
        "metadata_records_passed_over",
        "Committed metadata records that were passed over because an operator signed.",
        [({}, stats.records_passed_over)],
    )
    yield gauge(
        "metadata_held",
        "1 while a record that cannot be replayed blocks this node's metadata.",
        [({}, int(hold is not None))],
    )
    yield gauge(
        "metadata_held_offset",
        "Offset of the record that blocks this node's metadata, -1 = none.",
        [({}, -1 if hold is None else hold.record.offset)],
    )


def controller_families(sources: NodeSources) -> Iterator[Metric]:
    """The cluster's state; all but the first from the active controller only, so that sums are right."""
    if "controller" not in sources.roles:
        return
    is_active = sources.quorum.describe().leader_id == sources.node_id
    yield gauge("controller_active", "1 on the active controller.", [({}, int(is_active))])
    if sources.controller is not None:
        stats = sources.controller.stats
        yield counter("controller_decisions", "Requests decided.", [({}, stats.decisions)])
        yield counter("controller_refusals", "Requests refused.", [({}, stats.refusals)])
        yield counter(
            "controller_metadata_errors",
            "Requests refused because deciding them failed or the records did not fit the metadata: a bug each; the controller's "
            "log has the traceback.",
            [({}, stats.failed_decisions)],
        )
        yield counter("controller_records_proposed", "Metadata records proposed.", [({}, stats.records_proposed)])
        yield counter("controller_heartbeats", "Broker heartbeats taken in.", [({}, stats.heartbeats)])
        yield counter(
            "controller_heartbeat_timeouts",
            "Brokers fenced because their heartbeats ended: after a silence, or sooner when a probe found their listener closed.",
            [
                ({"by": "probe"}, stats.fenced_by_probe),
                ({"by": "silence"}, stats.brokers_fenced - stats.fenced_by_probe),
            ],
        )
        yield counter(
            "controller_leader_elections",
            "Leaders that this controller gave to partitions: handed back to the preferred replica, taken from the in-sync or "
            "eligible ones when there was none, or from others (records may be lost).",
            [({"type": kind.value}, stats.leader_elections[kind]) for kind in ElectedFrom],
        )
        yield counter(
            "controller_activations", "Times this node became the active controller.", [({}, stats.times_active)]
        )
        yield histogram(
            "controller_event_queue_seconds",
            "Requests to this controller: deciding and proposing one (process), and then its waiting for the commit (wait).",
            [({"phase": "wait"}, stats.wait_s), ({"phase": "process"}, stats.process_s)],
        )
        yield gauge("controller_event_queue_size", "Answers that wait for a commit.", [({}, stats.waiters)])
    if not is_active:
        return
    image = sources.image()
    brokers = {"active": 0, "fenced": 0, "shutdown": 0}
    for broker in image.cluster.brokers.values():
        state = "fenced" if broker.is_fenced else "shutdown" if broker.is_in_controlled_shutdown else "active"
        brokers[state] += 1
    yield gauge("controller_brokers", "Registered brokers.", [({"state": s}, n) for s, n in brokers.items()])
    census = take_census(image, static_min_isr=sources.static_min_isr)
    yield gauge("controller_topics", "Topics.", [({}, census.topics)])
    yield gauge("controller_partitions", "Partitions.", [({}, census.partitions)])
    yield gauge("controller_offline_partitions", "Partitions without a leader.", [({}, census.flags[LEADERLESS])])
    yield gauge(
        "controller_not_preferred_leader_partitions",
        "Partitions led by another than their first replica.",
        [({}, census.flags[NOT_PREFERRED])],
    )
    yield gauge(
        "controller_faulty_replicas",
        "Replicas that their brokers reported faulty.",
        [({"fault": fault.name.lower()}, census.faulty[fault]) for fault in ReplicaFault],
    )


def broker_control_families(sources: NodeSources) -> Iterator[Metric]:
    """What this node asks of the active controller, and a broker's conversation with it."""
    asked = sources.controller_client
    yield counter("active_controller_requests", "Requests to the active controller.", [({}, asked.requests)])
    yield counter(
        "active_controller_retries",
        "Tries of them that were repeated: a controller led no more, or did not answer.",
        [({}, asked.retries)],
    )
    yield counter("active_controller_timeouts", "Requests that no controller answered in time.", [({}, asked.timeouts)])
    life = sources.lifecycle
    if life is None:
        return
    yield counter("broker_registrations", "Registrations of this broker.", [({}, life.registrations)])
    yield counter(
        "broker_heartbeats",
        "Heartbeats of this broker: sent, and withheld because its data lane was stuck.",
        [({"result": "sent"}, life.heartbeats_sent), ({"result": "held_back"}, life.heartbeats_held_back)],
    )
    yield counter("broker_heartbeat_streams", "Heartbeat streams that were opened.", [({}, life.streams_opened)])


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
        "replica_fetch_lag_records",
        "Records that the slowest follower of a led log lacks, by its last fetch; all of them before its first.",
        [(labels, _fetch_lag(p)) for labels, p in led],
    )


def _fetch_lag(partition: Partition) -> int:
    log = partition.log
    ends = [follower.end_offset for follower in copied(partition.remotes.values)]
    return max(0, log.log_end_offset - max(min(ends, default=log.log_end_offset), log.log_start_offset))


def log_families(sources: NodeSources) -> Iterator[Metric]:
    """The log directories."""
    logs = sources.logs
    if logs is None:
        return
    online, offline = logs.online_directories, logs.offline_directories
    yield gauge(
        "log_dirs", "Log directories.", [({"state": "online"}, len(online)), ({"state": "offline"}, len(offline))]
    )
    yield gauge(
        "log_disk_free_bytes", "Free space of a log directory.", [({"dir": path}, _free_bytes(path)) for path in online]
    )
    flushes = logs.flush_stats().items()
    yield histogram("log_flush_seconds", "Flush rounds.", [({"dir": path}, stats.round_s) for path, stats in flushes])
    yield counter("log_flushed_files", "Files flushed.", [({"dir": path}, stats.files) for path, stats in flushes])
    stats = logs.stats
    yield counter("log_recovered", "Logs opened after an unclean stop.", [({}, stats.logs_recovered)])
    yield counter("log_dir_failures", "Log directories that failed while in use.", [({}, stats.directories_failed)])
    yield counter(
        "log_dir_fillings",
        "Times that a log directory ran out of room and took no more records.",
        [({}, stats.directories_filled)],
    )
    yield counter("log_recovery_scanned_bytes", "Bytes read by recovery.", [({}, stats.recovery_scanned_bytes)])
    yield counter("log_recovery_truncated_bytes", "Bytes cut by recovery.", [({}, stats.recovery_truncated_bytes)])
    yield counter(
        "log_lost_flushed_data",
        "Logs opened without all that was flushed: the disk lost what it had confirmed.",
        [({}, stats.logs_that_lost_flushed_data)],
    )
    scrubs = logs.scrub_stats().items()
    yield counter(
        "log_scrub_bytes",
        "Bytes of logs that were read again to find damage.",
        [({"dir": path}, scrub.bytes_checked) for path, scrub in scrubs],
    )
    yield counter(
        "log_scrub_batches",
        "Batches among them that were sound.",
        [({"dir": path}, scrub.batches_checked) for path, scrub in scrubs],
    )
    yield counter(
        "log_scrub_passes",
        "Times that a whole log directory was read.",
        [({"dir": path}, scrub.passes) for path, scrub in scrubs],
    )
    yield gauge(
        "log_scrub_progress_ratio",
        "How much of its log directory the pass under way has read, 0 to 1.",
        [
            ({"dir": path}, min(1.0, scrub.pass_bytes_checked / scrub.pass_bytes) if scrub.pass_bytes else 1.0)
            for path, scrub in scrubs
        ],
    )
    yield gauge(
        "log_damaged_ranges",
        "Offset ranges that are known to be damaged here and not repaired yet.",
        [({}, sum(len(log.damage) for log in copied(logs.logs.values)))],
    )
    yield counter(
        "log_damage_found", "Damaged ranges found.", [({"dir": path}, scrub.ranges_found) for path, scrub in scrubs]
    )
    yield counter(
        "log_damage_repaired",
        "Damaged ranges that were replaced by sound batches of their leaders.",
        [({"dir": path}, scrub.ranges_repaired) for path, scrub in scrubs],
    )
    yield counter(
        "log_indexes_rebuilt",
        "Indexes of sealed segments that were damaged and made again.",
        [({"dir": path}, scrub.indexes_rebuilt) for path, scrub in scrubs],
    )
    yield counter("log_segments_retired", "Segments dropped by retention.", [({}, stats.segments_retired)])
    yield counter("log_producers_expired", "Idempotent producers that were forgotten.", [({}, stats.producers_expired)])
    descriptors = sources.log_descriptors
    if descriptors is None:
        return
    yield gauge("log_files_open", "Log files that are open.", [({}, len(descriptors))])
    yield counter(
        "log_files_closed",
        "Log files closed to keep the descriptors within the limit (process_max_fds).",
        [({}, descriptors.stats.closed)],
    )
    yield counter(
        "log_files_reopened", "Uses of a log file that had to open it again.", [({}, descriptors.stats.reopened)]
    )
    yield counter(
        "log_files_refused", "Log files not opened for want of a descriptor.", [({}, descriptors.stats.refused)]
    )


def network_families(sources: NodeSources) -> Iterator[Metric]:
    """The Kafka listeners."""
    stats = sources.network
    if stats is None:
        return
    yield gauge("connections", "Open connections.", [({}, stats.connections)])
    yield counter(
        "connections",
        "Connections that clients opened, and those of them that were refused beyond max.connections.",
        [
            ({"result": "accepted"}, stats.connections_accepted),
            ({"result": "refused"}, stats.connections_closed["limit"]),
        ],
    )
    yield counter(
        "connections_closed",
        "Connections closed, by reason.",
        [({"reason": reason}, count) for reason, count in list(stats.connections_closed.items())],
    )
    yield counter(
        "requests",
        "Requests by API and version.",
        [
            ({"api": api_name(kind >> 16), "version": str(kind & 0xFFFF)}, count)
            for kind, count in list(stats.requests.items())
        ],
    )
    yield counter(
        "request_errors",
        "Errors answered, of a whole request or of one of its partitions.",
        [({"api": api_name(key), "error": _error_name(code)}, n) for (key, code), n in list(stats.errors.items())],
    )
    yield histogram(
        "request_seconds",
        "From the whole request to its answer.",
        [({"api": api_name(key), "phase": "total"}, times) for key, times in list(stats.request_time_s.items())],
    )
    yield counter(
        "network_bytes",
        "Bytes of the Kafka listeners.",
        [({"direction": "in"}, stats.bytes_in), ({"direction": "out"}, stats.bytes_out)],
    )
    yield counter(
        "network_sendfile_bytes", "Bytes sent from files without copying.", [({}, stats.bytes_sent_from_files)]
    )
    yield counter(
        "network_cold_reads",
        "Ranges read ahead from the disk by a thread before they were sent.",
        [({}, stats.cold_reads)],
    )
    yield counter("network_wake_ups", "Times a connection was read.", [({}, stats.wake_ups)])


def admin_families(sources: NodeSources) -> Iterator[Metric]:
    """The gRPC admin service."""
    stats = sources.admin
    if stats is None:
        return
    yield counter(
        "admin_requests",
        "Admin calls by method and outcome.",
        [({"method": method, "code": code}, count) for (method, code), count in list(stats.requests.items())],
    )
    yield histogram(
        "admin_request_seconds",
        "Duration of admin calls.",
        [({"method": method}, times) for method, times in list(stats.seconds.items())],
    )


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


def _free_bytes(path: str) -> int:
    """Free space, 0 for a directory that went away meanwhile."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return 0
