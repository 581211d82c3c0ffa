"""GetTelemetrySubscriptions (key 71): which of its metrics a client is to push (KIP-714)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, float64, int8, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass

DESCRIBED_TAG = 64
"""The first tag of fields of ours, which Kafka's clients and brokers skip."""


@dataclass(slots=True)
class GetTelemetrySubscriptionsRequest(Message):
    """Ask what to push; a client that has no id yet gets one."""

    API_KEY = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    client_instance_id: Uuid = uuid()
    # ours: not what to push, but what the clients of this group, or those that name this topic, have pushed to this broker
    described_group: str | None = string(nullable="0+", default=None, tag=DESCRIBED_TAG)
    described_topic: str | None = string(nullable="0+", default=None, tag=DESCRIBED_TAG + 1)


@dataclass(slots=True)
class Reading:
    """Ours: the latest value of one metric of a client."""

    metric: str = string()
    topic: str = string()
    partition: str = string()
    node: str = string()
    value: float = float64()


@dataclass(slots=True)
class PushingClient:
    """Ours: a client that pushes to this broker."""

    client_instance_id: Uuid = uuid()
    client_id: str = string()
    client_host: str = string()
    software: str = string()
    group_id: str = string()
    member_id: str = string()
    pushed_ago_ms: int = int64()
    readings: list[Reading] = array(Reading)


@dataclass(slots=True)
class GetTelemetrySubscriptionsResponse(Message):
    """What to push, how often and how."""

    API_KEY = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)  # the best first
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()  # whether sums count from the last push on, and not from the client's start
    requested_metrics: list[str] = array(string)  # prefixes; empty: none, "*": all
    clients: list[PushingClient] | None = array(PushingClient, nullable="0+", default=None, tag=DESCRIBED_TAG)
