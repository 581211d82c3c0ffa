"""ExpireDelegationToken (key 40): let a delegation token live shorter, or end it (KIP-48)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, int64, raw
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ExpireDelegationTokenRequest(Message):
    """Give a token, named by its HMAC, a new and usually nearer end."""

    API_KEY = ApiKey.EXPIRE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 2

    hmac: bytes = raw()
    expiry_time_period_ms: int = int64()  # counted from now; negative: end it at once


@dataclass(slots=True)
class ExpireDelegationTokenResponse(Message):
    """When the token will end."""

    API_KEY = ApiKey.EXPIRE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 2

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()  # since 1970
    throttle_time_ms: int = int32()
