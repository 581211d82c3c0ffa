"""Plain counters of replication, read by the broker's metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """Counters since the process started; gauges are read off the partitions."""

    appended_bytes: int = 0
    appended_records: int = 0
    append_errors: int = 0
    produce_timeouts: int = 0
    fetched_bytes: int = 0
    fetch_parked: int = 0
    follower_fetched_bytes: int = 0
    high_watermark_pushes: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    isr_proposals_refused: int = 0
    replicated_bytes: int = 0
    replica_fetch_errors: int = 0
    truncations: int = 0
    truncations_below_high_watermark: int = 0
