"""UnregisterBroker (key 64): forget a broker that will not come back (KIP-631).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, string


@dataclass(slots=True)
class UnregisterBrokerRequest(Message):
    """UnregisterBroker request."""

    API_KEY = ApiKey.UNREGISTER_BROKER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    broker_id: int = int32()  # The broker ID to unregister


@dataclass(slots=True)
class UnregisterBrokerResponse(Message):
    """UnregisterBroker response."""

    API_KEY = ApiKey.UNREGISTER_BROKER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    # Duration in milliseconds for which the request was throttled due to a quota violation, or zero if the request
    # did not violate any quota
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The error code, or 0 if there was no error
    # The top-level error message, or `null` if there was no top-level error
    error_message: str | None = string(nullable="0+", default=None)
