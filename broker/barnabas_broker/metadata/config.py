"""Times of what a broker and the controller exchange, under Kafka's keys.

May touch:  its fields.               Must not touch: gRPC: `barnabas-server format` reads configs and should start fast.
Invariants: a broker heartbeats at least twice within its session time-out.

Not obvious: the defaults of heartbeat and session are a third of Kafka's and less. The heartbeat is sent from the control lane,
which answers within 10 ms (p99) however busy the data lane is, and the controller gives back the time for which its own
loop stood still (barnabas_quorum/controller/sessions.py).
Read next:  lifecycle.py.
"""

from __future__ import annotations

from typing import Any

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass


def _key(default: int, key: str, doc: str) -> Any:
    return config_key(key, default, doc)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleConfig:
    """Times in ms. The session time-out is the controller's key, given here again by the node."""

    session_timeout_ms: int = 3000
    heartbeat_interval_ms: int = _key(
        500,
        "broker.heartbeat.interval.ms",
        "How often a broker heartbeats to the active controller; at most half of broker.session.timeout.ms. Kafka's default "
        "is 2000.",
    )
    data_lane_timeout_ms: int = _key(
        9000,
        "broker.data.lane.timeout.ms",
        "A broker whose data lane (the event loop of clients, logs and replication) has not moved for this long stops its "
        "heartbeat, so that others lead what it leads.",
    )
    registration_timeout_ms: int = _key(
        60_000,
        "initial.broker.registration.timeout.ms",
        "A broker that could not register within this time after its start gives up and stops.",
    )
    shutdown_timeout_ms: int = _key(
        30_000,
        "controlled.shutdown.timeout.ms",
        "A stopping broker waits this long for the controller to move its leaders away, then it stops all the same.",
    )

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_interval_ms * 2 <= self.session_timeout_ms:
            raise ValueError(
                f"broker.heartbeat.interval.ms={self.heartbeat_interval_ms} must be positive and at most half of "
                f"broker.session.timeout.ms={self.session_timeout_ms}, or one lost heartbeat fences the broker; lower the "
                "first, or raise the second on every node"
            )
        if self.data_lane_timeout_ms <= 0:
            raise ValueError(f"broker.data.lane.timeout.ms={self.data_lane_timeout_ms} must be positive")
