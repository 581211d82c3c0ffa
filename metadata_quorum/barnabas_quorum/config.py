"""The quorum's own configuration: timers and sizes, under Kafka's keys.

May touch:  nothing.                  Must not touch: files, environment (broker/config reads them).
Invariants: frozen; 2 × fetch_wait_ms_max <= fetch_timeout_ms, or a healthy follower could time out (KIP-1236).
Read next:  raft/core.py.
"""

from __future__ import annotations

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

SEGMENT_BYTES_MIN = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """Timers in ms, sizes in bytes. Defaults are Kafka's."""

    election_timeout_ms: int = config_key(
        "controller.quorum.election.timeout.ms",
        1000,
        "Base of the random election timer: the draw is uniform in [base, 2 × base).",
    )
    fetch_timeout_ms: int = config_key(
        "controller.quorum.fetch.timeout.ms",
        2000,
        "A voter without a successful fetch for this long starts an election; a leader that no majority fetched from for 1.5 times this "
        "long resigns.",
    )
    election_backoff_ms_max: int = config_key(
        "controller.quorum.election.backoff.max.ms",
        1000,
        "Longest wait of a voter before it runs for election after its leader resigned.",
    )
    request_timeout_ms: int = config_key(
        "controller.quorum.request.timeout.ms", 2000, "An unanswered quorum request is given up after this long."
    )
    retry_backoff_ms: int = config_key(
        "controller.quorum.retry.backoff.ms", 20, "Wait before a failed quorum request is sent again."
    )
    append_linger_ms: int = config_key(
        "controller.quorum.append.linger.ms",
        25,
        "Under load records wait for at most this long so that they are written together; a lone record is written at once.",
    )
    fetch_bytes_max: int = config_key(
        "controller.quorum.fetch.max.bytes", 1024 * 1024, "Most bytes in one answer to a quorum fetch."
    )
    fetch_snapshot_bytes_max: int = config_key(
        "controller.quorum.fetch.snapshot.max.bytes",
        1024 * 1024,
        "Most bytes of a metadata snapshot that are asked for, or given, at once.",
    )
    snapshot_after_bytes: int = config_key(
        "metadata.log.max.record.bytes.between.snapshots",
        20 * 1024 * 1024,
        "A new metadata snapshot is taken after so many bytes of committed records.",
    )
    snapshot_interval_ms: int = config_key(
        "metadata.log.max.snapshot.interval.ms",
        3_600_000,
        "A new metadata snapshot is taken this long after the last one if anything was committed; 0 = by bytes alone.",
    )
    retention_bytes: int = config_key(
        "metadata.max.retention.bytes",
        100 * 1024 * 1024,
        "Older snapshots go, and the metadata log before the next one, when they take more together; -1 = no limit.",
    )
    retention_ms: int = config_key(
        "metadata.max.retention.ms",
        7 * 24 * 3_600_000,
        "The same when the oldest snapshot is older than this; -1 = no limit. The newest snapshot always stays.",
    )
    segment_bytes: int = config_key(
        "metadata.log.segment.bytes", 1024 * 1024 * 1024, "Size of one file of the metadata log; at least 8 MiB."
    )
    segment_ms: int = config_key(
        "metadata.log.segment.ms", 7 * 24 * 3_600_000, "Longest time that one file of the metadata log is written to."
    )
    auto_join: bool = config_key(
        "controller.quorum.auto.join.enable",
        False,
        "A controller that is no voter and has caught up adds itself to the voters; one that was removed does not.",
    )
    fetch_wait_ms_max: int = config_key(
        None, 500, "How long the leader delays the answer to a fetch for which it has nothing new."
    )
    observer_session_ms: int = config_key(
        None, 300_000, "The leader forgets an observer that was silent for this long."
    )

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
