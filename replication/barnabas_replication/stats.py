"""Plain counters of replication, read by the broker's metrics."""

from __future__ import annotations

from dataclasses import field

from barnabas_wire.histogram import Histogram
from barnabas_wire.lazy_dataclass import dataclass


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
    inspected_batches: int = 0
    """Producers' batches whose records were opened (validate.batches)."""
    inspected_bytes: int = 0
    unsound_batches: int = 0
    """Those of them that were refused for what their records are."""
    recompressed_batches: int = 0
    """Brought into their topic's codec (compression.type)."""
    recompressed_bytes: int = 0
    """Bytes of the recompressed batches as they came."""
    replicated_bytes: int = 0
    replica_fetch_errors: int = 0
    replica_fetch_s: Histogram = field(default_factory=Histogram)
    """Answered fetches from leaders, with the time they were parked there."""
    truncations: int = 0
    truncations_below_high_watermark: int = 0


@dataclass(slots=True)
class TopicTraffic:
    """What clients wrote to and read from the partitions of one topic that this broker leads or led. Shared by its partitions, so
    that counting is one addition and no look-up; gone with the last of them."""

    hosted: int = 0
    """Partitions of the topic on this broker."""
    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0
    """Bytes sent to consumers; what followers fetch is replication."""
    append_errors: int = 0
