"""RenewDelegationToken (key 39): let a delegation token live longer (KIP-48).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, int64, raw


@dataclass(slots=True)
class RenewDelegationTokenRequest(Message):
    """RenewDelegationToken request.

    Version 2 is the first flexible version.
    """

    API_KEY = ApiKey.RENEW_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 2

    hmac: bytes = raw()  # The HMAC of the delegation token to be renewed
    renew_period_ms: int = int64()  # The renewal time period in ms


@dataclass(slots=True)
class RenewDelegationTokenResponse(Message):
    """RenewDelegationToken response.

    Version 2 is the first flexible version.
    """

    API_KEY = ApiKey.RENEW_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 2

    error_code: int = int16()  # The error code, or 0 if there was no error
    expiry_timestamp_ms: int = int64()  # When this token expires, ms since 1970
    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
