"""The quorum's own configuration: timers and sizes, under Kafka's keys.

May touch:  nothing.                  Must not touch: files, environment (broker/config reads them).
Invariants: frozen; 2 × fetch_wait_ms_max <= fetch_timeout_ms, or a healthy follower could time out (KIP-1236).
Read next:  raft/core.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _key(default: Any, key: str | None, doc: str) -> Any:
    return field(default=default, metadata={"key": key, "doc": doc})


SEGMENT_BYTES_MIN = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """Timers in ms, sizes in bytes. Defaults are Kafka's."""

    election_timeout_ms: int = _key(
        1000,
        "controller.quorum.election.timeout.ms",
        "Base of the random election timer: the draw is uniform in [base, 2 × base).",
    )
    fetch_timeout_ms: int = _key(
        2000,
        "controller.quorum.fetch.timeout.ms",
        "A voter without a successful fetch for this long starts an election; a leader that no majority fetched from "
        "for 1.5 times this long resigns.",
    )
    election_backoff_ms_max: int = _key(
        1000,
        "controller.quorum.election.backoff.max.ms",
        "Longest wait of a voter before it runs for election after its leader resigned.",
    )
    request_timeout_ms: int = _key(
        2000, "controller.quorum.request.timeout.ms", "An unanswered quorum request is given up after this long."
    )
    retry_backoff_ms: int = _key(
        20, "controller.quorum.retry.backoff.ms", "Wait before a failed quorum request is sent again."
    )
    append_linger_ms: int = _key(
        25,
        "controller.quorum.append.linger.ms",
        "Under load records wait for at most this long so that they are written together; "
        "a lone record is written at once.",
    )
    fetch_bytes_max: int = _key(
        1024 * 1024, "controller.quorum.fetch.max.bytes", "Most bytes in one answer to a quorum fetch."
    )
    fetch_snapshot_bytes_max: int = _key(
        1024 * 1024,
        "controller.quorum.fetch.snapshot.max.bytes",
        "Most bytes of a metadata snapshot that are asked for, or given, at once.",
    )
    snapshot_after_bytes: int = _key(
        20 * 1024 * 1024,
        "metadata.log.max.record.bytes.between.snapshots",
        "A new metadata snapshot is taken after so many bytes of committed records.",
    )
    snapshot_interval_ms: int = _key(
        3_600_000,
        "metadata.log.max.snapshot.interval.ms",
        "A new metadata snapshot is taken this long after the last one if anything was committed; 0 = by bytes alone.",
    )
    retention_bytes: int = _key(
        100 * 1024 * 1024,
        "metadata.max.retention.bytes",
        "Older snapshots go, and the metadata log before the next one, when they take more together; -1 = no limit.",
    )
    retention_ms: int = _key(
        7 * 24 * 3_600_000,
        "metadata.max.retention.ms",
        "The same when the oldest snapshot is older than this; -1 = no limit. The newest snapshot always stays.",
    )
    segment_bytes: int = _key(
        1024 * 1024 * 1024, "metadata.log.segment.bytes", "Size of one file of the metadata log; at least 8 MiB."
    )
    segment_ms: int = _key(
        7 * 24 * 3_600_000, "metadata.log.segment.ms", "Longest time that one file of the metadata log is written to."
    )
    auto_join: bool = _key(
        False,
        "controller.quorum.auto.join.enable",
        "A controller that is no voter and has caught up adds itself to the voters; one that was removed does not.",
    )
    fetch_wait_ms_max: int = _key(
        500, None, "How long the leader delays the answer to a fetch for which it has nothing new."
    )
    observer_session_ms: int = _key(300_000, None, "The leader forgets an observer that was silent for this long.")

    def __post_init__(self) -> None:
        if 2 * self.fetch_wait_ms_max > self.fetch_timeout_ms:
            raise ValueError(
                f"controller.quorum.fetch.timeout.ms={self.fetch_timeout_ms} must be at least "
                f"{2 * self.fetch_wait_ms_max} (twice the {self.fetch_wait_ms_max} ms that a fetch may wait)"
            )
        for name in (
            "election_timeout_ms",
            "request_timeout_ms",
            "retry_backoff_ms",
            "fetch_bytes_max",
            "fetch_snapshot_bytes_max",
            "snapshot_after_bytes",
            "segment_ms",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")

        if self.segment_bytes < SEGMENT_BYTES_MIN:
            raise ValueError(
                f"metadata.log.segment.bytes={self.segment_bytes} must be at least {SEGMENT_BYTES_MIN}, the largest batch"
            )

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader resigns when no majority fetched from it for this long."""
        return self.fetch_timeout_ms * 3 // 2
