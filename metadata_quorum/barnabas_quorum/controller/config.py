"""The controller's own configuration, under Kafka's keys.

May touch:  nothing.   Must not touch: files, environment (broker/config reads them).
Invariants: frozen; the disconnect grace is shorter than the session time-out, or it would be useless.
Read next:  brokers.py, sessions.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _key(default: Any, key: str, doc: str) -> Any:
    return field(default=default, metadata={"key": key, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Times in ms unless the key says otherwise."""

    session_timeout_ms: int = _key(
        9000,
        "broker.session.timeout.ms",
        "A broker whose heartbeats fall silent for this long is fenced; a broker whose data lane has not moved for this "
        "long stops its heartbeat.",
    )
    disconnect_grace_ms: int = _key(
        1000,
        "broker.disconnect.grace.ms",
        "A broker whose heartbeat connection broke is fenced when it is not back within this time, and at once when "
        "its listener refuses connections. Silence on an open connection waits for broker.session.timeout.ms.",
    )
    idle_interval_ms: int = _key(
        500,
        "metadata.max.idle.interval.ms",
        "An idle active controller writes a no-op record this often, so that a stuck quorum shows as a standing high "
        "watermark; 0 = never.",
    )
    auto_leader_rebalance_enable: bool = _key(
        True,
        "auto.leader.rebalance.enable",
        "Hand partitions back to their preferred leader once it is in sync again.",
    )
    leader_imbalance_check_interval_seconds: int = _key(
        300, "leader.imbalance.check.interval.seconds", "How often partitions are handed back to preferred leaders."
    )
    unclean_leader_election_enable: bool = _key(
        False,
        "unclean.leader.election.enable",
        "Let a replica that is not in sync lead when no in-sync one is left: acknowledged records may be lost. "
        "A topic's own setting wins.",
    )

    def __post_init__(self) -> None:
        for name in ("session_timeout_ms", "disconnect_grace_ms", "leader_imbalance_check_interval_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.idle_interval_ms < 0:
            raise ValueError(f"metadata.max.idle.interval.ms={self.idle_interval_ms} must be 0 (never) or positive")
        if self.disconnect_grace_ms > self.session_timeout_ms:
            raise ValueError(
                f"broker.disconnect.grace.ms={self.disconnect_grace_ms} must not exceed "
                f"broker.session.timeout.ms={self.session_timeout_ms}"
            )
