"""DescribeDelegationToken (key 41): the delegation tokens of owners (KIP-48)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, raw, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DescribeDelegationTokenOwner:
    """A principal whose tokens are asked for."""

    principal_type: str = string()
    principal_name: str = string()


@dataclass(slots=True)
class DescribeDelegationTokenRequest(Message):
    """Ask for the tokens that the caller may see. Only the answer changes in v3."""

    API_KEY = ApiKey.DESCRIBE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    # null: whoever owns them
    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


@dataclass(slots=True)
class DescribedDelegationTokenRenewer:
    """A principal who may renew the token while it is valid."""

    principal_type: str = string()
    principal_name: str = string()


@dataclass(slots=True)
class DescribedDelegationToken:
    """A token. v3 says who requested it, which need not be its owner (KIP-373)."""

    # the owner
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    # Points in time, in ms, the last too: no renewal reaches past it
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = raw()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@dataclass(slots=True)
class DescribeDelegationTokenResponse(Message):
    """The tokens found."""

    API_KEY = ApiKey.DESCRIBE_DELEGATION_TOKEN
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
