"""The controller's own configuration, under Kafka's keys.

May touch:  nothing.   Must not touch: files, environment (broker/config reads them).
Invariants: frozen; the disconnect grace is at most the session time-out, or it would have no effect.
Read next:  brokers.py, sessions.py.
"""

from __future__ import annotations

from typing import Any

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass


def _key(default: Any, key: str, doc: str) -> Any:
    return config_key(key, default, doc)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Times in ms unless the key says otherwise."""

    session_timeout_ms: int = _key(
        3000,
        "broker.session.timeout.ms",
        "Time without a heartbeat after which a broker is fenced. Kafka's default is 9000: its heartbeats wait behind "
        "other work, while this broker sends them from a separate thread.",
    )
    disconnect_grace_ms: int = _key(
        1000,
        "broker.disconnect.grace.ms",
        "A broker whose heartbeat connection broke is fenced unless it reconnects within this time, and at once when "
        "its listener refuses connections. Silence on an open connection counts against broker.session.timeout.ms, and so does "
        "that of a broker whose listener still takes connections.",
    )
    idle_interval_ms: int = _key(
        500,
        "metadata.max.idle.interval.ms",
        "An idle active controller writes a no-op record this often, so that a stuck quorum shows as a high watermark "
        "that does not move; 0 = never.",
    )
    image_hash_interval_ms: int = _key(
        30_000,
        "metadata.image.hash.interval.ms",
        "How often the active controller writes the hash of its metadata, if anything was written since, so that every "
        "node compares its own; 0 = not by time.",
    )
    image_hash_interval_records: int = _key(
        1000,
        "metadata.image.hash.interval.records",
        "After how many metadata records the active controller writes the hash of its metadata; 0 = not by count.",
    )
    auto_leader_rebalance_enable: bool = _key(
        True,
        "auto.leader.rebalance.enable",
        "Hand partitions back to their preferred leader once it is in sync again.",
    )
    leader_imbalance_check_interval_seconds: int = _key(
        300, "leader.imbalance.check.interval.seconds", "How often partitions are handed back to preferred leaders."
    )
    leader_imbalance_settle_ms: int = _key(
        30_000,
        "leader.imbalance.settle.ms",
        "A broker gets leaderships back only when it has been in service this long and is in sync in every partition it "
        "holds: a broker that is catching up needs its disk and network for that.",
    )
    leader_imbalance_elections_max: int = _key(
        100,
        "leader.imbalance.elections.max",
        "Most leaderships handed back in one step; the rest follow a second later.",
    )
    unclean_leader_election_interval_ms: int = _key(
        300_000,
        "unclean.leader.election.interval.ms",
        "How often the controller tries to elect leaders for partitions without one, where "
        "unclean.leader.election.enable allows it, in ms.",
    )
    min_insync_replicas: int = _key(
        1,
        "min.insync.replicas",
        "With fewer in-sync replicas than this the high watermark does not move, and former ISR members stay eligible to "
        "lead (KIP-966). Must be the same on every node.",
    )
    log_flush_on_acks: str = _key(
        "fsync",
        "log.flush.on.acks",
        "With page-cache, a broker that stopped uncleanly is no longer eligible to lead: it may lack committed records.",
    )
    topic_partitions_max: int = _key(
        100_000, "topic.partitions.max", "Most partitions of one topic; 0 = no limit per topic."
    )
    cluster_partitions_max: int = _key(
        1_000_000, "cluster.partitions.max", "Most partitions of the whole cluster; 0 = no limit."
    )
    broker_replicas_max: int = _key(
        0, "broker.replicas.max", "Most replicas on one broker, counting what a request would add; 0 = no limit."
    )
    delegation_token_secret_key: str | None = config_key(
        "delegation.token.secret.key",
        None,
        "Secret from which the HMACs of delegation tokens are derived; the same on every node. Without it there are no tokens.",
        sensitive=True,
    )
    delegation_token_max_lifetime_ms: int = _key(
        7 * 24 * 3_600_000,
        "delegation.token.max.lifetime.ms",
        "Maximum lifetime of a delegation token including renewals, in ms.",
    )
    delegation_token_expiry_time_ms: int = _key(
        24 * 3_600_000,
        "delegation.token.expiry.time.ms",
        "How long a delegation token is valid unless it is renewed, in ms.",
    )
    delegation_token_expiry_check_interval_ms: int = _key(
        3_600_000,
        "delegation.token.expiry.check.interval.ms",
        "How often expired delegation tokens are removed, in ms.",
    )
    unclean_leader_election_enable: bool = _key(
        False,
        "unclean.leader.election.enable",
        "Let a replica that is not in sync lead when no in-sync one is left: acknowledged records may be lost. "
        "A topic's setting takes precedence.",
    )

    def __post_init__(self) -> None:
        for name in (
            "session_timeout_ms",
            "disconnect_grace_ms",
            "leader_imbalance_check_interval_seconds",
            "leader_imbalance_elections_max",
            "unclean_leader_election_interval_ms",
            "min_insync_replicas",
            "delegation_token_max_lifetime_ms",
            "delegation_token_expiry_time_ms",
            "delegation_token_expiry_check_interval_ms",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        for name in (
            "leader_imbalance_settle_ms",
            "image_hash_interval_ms",
            "image_hash_interval_records",
            "topic_partitions_max",
            "cluster_partitions_max",
            "broker_replicas_max",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or positive, not {getattr(self, name)}")
        if self.idle_interval_ms < 0:
            raise ValueError(f"metadata.max.idle.interval.ms={self.idle_interval_ms} must be 0 (never) or positive")
        if self.disconnect_grace_ms > self.session_timeout_ms:
            raise ValueError(
                f"broker.disconnect.grace.ms={self.disconnect_grace_ms} must not exceed "
                f"broker.session.timeout.ms={self.session_timeout_ms}"
            )
