"""CreateDelegationToken (key 38): make a delegation token (KIP-48)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, raw, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class CreatableRenewers:
    """A principal that may renew the token while it is valid."""

    principal_type: str = string()
    principal_name: str = string()


@dataclass(slots=True)
class CreateDelegationTokenRequest(Message):
    """Ask for a token, from v3 on also for somebody else (KIP-373)."""

    API_KEY = ApiKey.CREATE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    # Both null: whoever asks owns it
    owner_principal_type: str | None = string("3+", nullable="3+", default=None)
    owner_principal_name: str | None = string("3+", nullable="3+", default=None)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()  # -1: as long as the broker's config says


@dataclass(slots=True)
class CreateDelegationTokenResponse(Message):
    """The new token, and from v3 on who asked for it."""

    API_KEY = ApiKey.CREATE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    error_code: int = int16()
    # The owner's
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    # All three are points in time; renewing moves the second, at most up to the third
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()  # a UUID as text
    hmac: bytes = raw()  # the secret
    throttle_time_ms: int = int32()
