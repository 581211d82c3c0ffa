"""What a share group's own configs say, with what holds where they say nothing.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every value is within its bounds.
Read next:  config.py and streams_config.py, the nodes' keys.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """The settings of one share group, as KIP-932, 1191 and 1222 have them; the last six are ours."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    """Most offsets from the start offset to the last one delivered."""
    auto_offset_reset: str = "latest"
    """latest, earliest, or by_duration: and an ISO-8601 duration."""
    is_read_committed: bool = False
    may_renew: bool = True
    dead_letter_topic: str = ""
    """Empty: rejected and exhausted records are archived."""
    copies_dead_records: bool = False
    """Whether a dead letter has the record's key and value."""
    holds_on_dead_letter_failure: bool = True
    """errors.deadletterqueue.on.failure: hold (the record stays ARCHIVING and is tried again) or archive."""
    retry_backoff_ms: int = 0
    """How long a released record waits for its next delivery."""
    retry_backoff_factor: float = 1.0
    """By how much each further wait is longer."""
    retry_backoff_max_ms: int = 3_600_000
    deliver_at_header: str = ""
    """The header that says in ms since 1970 when a record is due; empty: none does."""
    delayed_records_max: int = 10_000
    """Most records of a partition that wait for their time."""
