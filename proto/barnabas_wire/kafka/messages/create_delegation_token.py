"""CreateDelegationToken (key 38): make a delegation token (KIP-48).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, raw, string


@dataclass(slots=True)
class CreatableRenewers:
    """One who is allowed to renew this token before it expires."""

    principal_type: str = string()  # The type of the renewer
    principal_name: str = string()  # The name of the renewer


@dataclass(slots=True)
class CreateDelegationTokenRequest(Message):
    """CreateDelegationToken request.

    Version 2 is the first flexible version; version 3 adds owner and requester (KIP-373).
    """

    API_KEY = ApiKey.CREATE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    # The principal type of the owner; null defaults to the requester
    owner_principal_type: str | None = string("3+", nullable="3+", default=None)
    # The principal name of the owner; null defaults to the requester
    owner_principal_name: str | None = string("3+", nullable="3+", default=None)
    # Those who are allowed to renew this token before it expires
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()  # The maximum lifetime of the token in ms, or -1 to use the server side default


@dataclass(slots=True)
class CreateDelegationTokenResponse(Message):
    """CreateDelegationToken response.

    Version 2 is the first flexible version; version 3 adds owner and requester (KIP-373).
    """

    API_KEY = ApiKey.CREATE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    error_code: int = int16()  # The error code, or 0 if there was no error
    principal_type: str = string()  # The type of the token owner
    principal_name: str = string()  # The name of the token owner
    token_requester_principal_type: str = string("3+")  # The principal type of the requester of the token
    token_requester_principal_name: str = string("3+")  # The principal name of the requester of the token
    issue_timestamp_ms: int = int64()  # When this token was generated
    expiry_timestamp_ms: int = int64()  # When this token expires
    max_timestamp_ms: int = int64()  # The maximum lifetime of this token
    token_id: str = string()  # The token UUID
    hmac: bytes = raw()  # HMAC of the delegation token
    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
