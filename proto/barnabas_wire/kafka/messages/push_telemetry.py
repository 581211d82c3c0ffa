"""PushTelemetry (key 72): a client's own metrics (KIP-714)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, boolean, int8, int16, int32, raw, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class PushTelemetryRequest(Message):
    """The metrics of one client, as OpenTelemetry's MetricsData v1."""

    API_KEY = ApiKey.PUSH_TELEMETRY
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()  # the client closes: its last push
    compression_type: int = int8()  # as in record batches
    metrics: bytes = raw()


@dataclass(slots=True)
class PushTelemetryResponse(Message):
    """Whether they were taken."""

    API_KEY = ApiKey.PUSH_TELEMETRY
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
