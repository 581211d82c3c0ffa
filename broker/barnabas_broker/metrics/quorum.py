"""The metadata quorum and its snapshots, as this node sees them.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: what only the leader knows comes from the leader alone.
Read next:  metadata.py; barnabas_quorum/driver/node.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.controller_client.quorum_health import present_observers
from barnabas_broker.metrics.families import counter, gauge, histogram, summary
from barnabas_broker.metrics.sources import NodeSources


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
        "raft_cuts_refused",
        "Leaders that told this node to cut off metadata that was committed; it keeps that and takes nothing more from them.",
        [({}, stats.cuts_refused)],
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
