"""Delegation tokens: create, renew, expire, sweep (KIP-48). Image and wall time in, records out.

May touch:  image, features, hmac.     Must not touch: clock (the time is an argument), everything that waits.
Invariants: no token outlives its max timestamp; the HMAC is the bearer's password, so only answers contain it, and only
            owner, requester and renewers may renew or expire a token.
Read next:  image/tokens.py.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from random import Random

from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.features import require_metadata_version
from barnabas_quorum.controller.requests_security import (
    CreateDelegationToken,
    CreateDelegationTokenReply,
    DelegationTokenExpiry,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.features import METADATA_VERSION_SECURITY
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import Record
from barnabas_quorum.records_security import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid

USER_TYPE = "User"


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """The password of a token: HMAC-SHA-512 of its id (KIP-48)."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


@decides(CreateDelegationToken)
def create_token(
    image: MetadataImage, request: CreateDelegationToken, context: DecisionContext
) -> ControllerResult[CreateDelegationTokenReply]:
    """Raises DELEGATION_TOKEN_AUTH_DISABLED, INVALID_PRINCIPAL_TYPE, UNSUPPORTED_VERSION."""
    secret_key = _secret_key(context.config)
    require_metadata_version(image, METADATA_VERSION_SECURITY, "delegation tokens")
    for principal in (request.owner, request.requester, *request.renewers):
        kind, _, name = principal.partition(":")
        if kind != USER_TYPE or not name:
            raise KafkaError.of(
                ErrorCode.INVALID_PRINCIPAL_TYPE, f"{principal!r} is not a user; tokens are for principals User:NAME"
            )
    longest = context.config.delegation_token_max_lifetime_ms
    lifetime = longest if request.max_lifetime_ms <= 0 else min(request.max_lifetime_ms, longest)
    max_timestamp = context.wall_ms + lifetime
    token = DelegationTokenRecord(
        token_id=_new_id(image, context.random),
        owner=request.owner,
        requester=request.requester,
        renewers=tuple(dict.fromkeys(request.renewers)),
        issue_timestamp_ms=context.wall_ms,
        max_timestamp_ms=max_timestamp,
        expiration_timestamp_ms=min(max_timestamp, context.wall_ms + context.config.delegation_token_expiry_time_ms),
    )
    reply = CreateDelegationTokenReply(token=token, hmac=token_hmac(secret_key, token.token_id))
    return ControllerResult(records=[token], response=reply)


@decides(RenewDelegationToken)
def renew_token(
    image: MetadataImage, request: RenewDelegationToken, context: DecisionContext
) -> ControllerResult[DelegationTokenExpiry]:
    """Raises DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH,
    DELEGATION_TOKEN_EXPIRED."""
    token = _owned_token(image, request.hmac, request.requester, config=context.config)
    _check_not_over(token, context.wall_ms)
    period = request.renew_period_ms if request.renew_period_ms >= 0 else context.config.delegation_token_expiry_time_ms
    return _expiring(token, min(token.max_timestamp_ms, context.wall_ms + period))


@decides(ExpireDelegationToken)
def expire_token(
    image: MetadataImage, request: ExpireDelegationToken, context: DecisionContext
) -> ControllerResult[DelegationTokenExpiry]:
    """Raises as renew_token. A negative period removes the token at once."""
    token = _owned_token(image, request.hmac, request.requester, config=context.config)
    if request.expiry_period_ms < 0:
        return ControllerResult(
            records=[RemoveDelegationTokenRecord(token_id=token.token_id)],
            response=DelegationTokenExpiry(expiration_timestamp_ms=context.wall_ms),
        )
    _check_not_over(token, context.wall_ms)
    return _expiring(token, min(token.max_timestamp_ms, context.wall_ms + request.expiry_period_ms))


def sweep_tokens(image: MetadataImage, *, wall_ms: int, records_max: int) -> ControllerResult[None]:
    """Remove expired tokens; at most `records_max`, the next sweep removes the rest."""
    records: list[Record] = [
        RemoveDelegationTokenRecord(token_id=token.token_id)
        for token in image.tokens.sorted_tokens()
        if _is_over(token, wall_ms)
    ]
    return ControllerResult(records=records[:records_max], response=None)


def _secret_key(config: ControllerConfig) -> str:
    if not config.delegation_token_secret_key:
        raise KafkaError.of(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
            "delegation tokens are off; set delegation.token.secret.key, the same on every node",
        )
    return config.delegation_token_secret_key


def _owned_token(
    image: MetadataImage, presented: bytes, requester: str, *, config: ControllerConfig
) -> DelegationTokenRecord:
    secret_key = _secret_key(config)
    for token in image.tokens.sorted_tokens():
        if hmac.compare_digest(token_hmac(secret_key, token.token_id), presented):
            if requester not in (token.owner, token.requester, *token.renewers):
                raise KafkaError.of(
                    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
                    f"{requester} is not the owner, requester or renewer of token {token.token_id}",
                )
            return token
    raise KafkaError.of(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "no token has this HMAC; it may have expired")


def _is_over(token: DelegationTokenRecord, wall_ms: int) -> bool:
    return min(token.expiration_timestamp_ms, token.max_timestamp_ms) < wall_ms


def _check_not_over(token: DelegationTokenRecord, wall_ms: int) -> None:
    if _is_over(token, wall_ms):
        raise KafkaError.of(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"token {token.token_id} has expired; create a new one")


def _expiring(token: DelegationTokenRecord, expiration_ms: int) -> ControllerResult[DelegationTokenExpiry]:
    changed = replace(token, expiration_timestamp_ms=expiration_ms)
    return ControllerResult(
        records=[] if changed == token else [changed],
        response=DelegationTokenExpiry(expiration_timestamp_ms=expiration_ms),
    )


def _new_id(image: MetadataImage, random: Random) -> str:
    while True:
        token_id = str(Uuid(random.randbytes(16)))
        if token_id not in image.tokens.tokens:
            return token_id
