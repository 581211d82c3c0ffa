"""Plain counters of replication, read by the broker's metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """Counters since the process started; gauges are methods of ReplicaManager."""

    produce_requests: int = 0
    appended_bytes: int = 0
    appended_records: int = 0
    append_errors: int = 0
    produce_timeouts: int = 0
    fetch_requests: int = 0
    fetched_bytes: int = 0
    fetch_parked: int = 0
    follower_fetch_requests: int = 0
    follower_fetched_bytes: int = 0
    high_watermark_pushes: int = 0
    drains: int = 0
    isr_shrinks_proposed: int = 0
    isr_expands_proposed: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    isr_proposals_refused: int = 0
    replicated_bytes: int = 0
    replica_fetch_errors: int = 0
    truncations: int = 0
    truncations_below_high_watermark: int = 0
    offset_out_of_range_restarts: int = 0
