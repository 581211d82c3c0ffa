"""DescribeDelegationToken (key 41): the delegation tokens of owners (KIP-48).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, raw, string


@dataclass(slots=True)
class DescribeDelegationTokenOwner:
    """An owner that we want to describe delegation tokens for."""

    principal_type: str = string()  # The type of the owner principal
    principal_name: str = string()  # The name of the owner principal


@dataclass(slots=True)
class DescribeDelegationTokenRequest(Message):
    """DescribeDelegationToken request.

    Version 2 is the first flexible version; version 3 adds owner and requester (KIP-373).
    """

    API_KEY = ApiKey.DESCRIBE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    # Each owner to describe tokens for, or null to describe all tokens
    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


@dataclass(slots=True)
class DescribedDelegationTokenRenewer:
    """One who is able to renew this token before it expires."""

    principal_type: str = string()  # The type of the renewer principal
    principal_name: str = string()  # The name of the renewer principal


@dataclass(slots=True)
class DescribedDelegationToken:
    """A token."""

    principal_type: str = string()  # The type of the token principal
    principal_name: str = string()  # The name of the token principal
    token_requester_principal_type: str = string("3+")  # The principal type of the requester of the token
    token_requester_principal_name: str = string("3+")  # The principal name of the requester of the token
    issue_timestamp: int = int64()  # The token issue timestamp in ms
    expiry_timestamp: int = int64()  # The token expiry timestamp in ms
    max_timestamp: int = int64()  # The token maximum timestamp length in ms
    token_id: str = string()  # The token ID
    hmac: bytes = raw()  # The token HMAC
    # Those who are able to renew this token before it expires
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@dataclass(slots=True)
class DescribeDelegationTokenResponse(Message):
    """DescribeDelegationToken response.

    Version 2 is the first flexible version; version 3 adds owner and requester (KIP-373).
    """

    API_KEY = ApiKey.DESCRIBE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    error_code: int = int16()  # The error code, or 0 if there was no error
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)  # The tokens
    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
