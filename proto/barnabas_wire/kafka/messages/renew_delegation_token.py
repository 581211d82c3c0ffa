"""RenewDelegationToken (key 39): let a delegation token live longer (KIP-48)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, int64, raw
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class RenewDelegationTokenRequest(Message):
    """Ask for more time for one token, which its HMAC names."""

    API_KEY = ApiKey.RENEW_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 2

    hmac: bytes = raw()
    renew_period_ms: int = int64()


@dataclass(slots=True)
class RenewDelegationTokenResponse(Message):
    """Until when the token is good now."""

    API_KEY = ApiKey.RENEW_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 2

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()  # since 1970
    throttle_time_ms: int = int32()
