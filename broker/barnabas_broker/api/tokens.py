"""CreateDelegationToken v1-3, RenewDelegationToken v1-2, ExpireDelegationToken v1-2, DescribeDelegationToken v1-3 (KIP-48).

May touch:  the image's tokens, the controller client.    Must not touch: clock, logs, with an HMAC.
Invariants: an HMAC goes only to who may hold it: never to an anonymous caller; changes are decided by the controller.
Read next:  metadata_quorum/controller/tokens.py, which decides.

Behaviour: as in Kafka, who has not logged in gets DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; without delegation.token.secret.key
the answer is DELEGATION_TOKEN_AUTH_DISABLED. A client that describes sees tokens that are its own, or that it may
renew; with an authorizer also those that an ACL lets it see. Without one no client makes tokens for another.
"""

from __future__ import annotations

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.controller.requests_security import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from barnabas_quorum.controller.tokens import token_hmac
from barnabas_quorum.image.rights import CREATE_TOKENS, DESCRIBE, DESCRIBE_TOKENS, TOKEN, USER
from barnabas_quorum.records_security import DelegationTokenRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas_wire.kafka.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas_wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas_wire.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3))
async def create_token(
    services: BrokerServices, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """A token for the caller, or for the owner it names."""
    requester = _authenticated(context)
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    if owner != requester and (context.access.is_open or not context.access.may(CREATE_TOKENS, USER, owner)):
        raise KafkaError.of(
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            f"{requester} may not make tokens for {owner}: that takes an ACL CREATE_TOKENS, and authorizer.class.name to be set",
        )
    reply = await services.ask(
        context,
        CreateDelegationToken(
            owner=owner,
            requester=requester,
            renewers=tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers),
            max_lifetime_ms=request.max_lifetime_ms,
        ),
    )
    token = reply.token
    owner_type, owner_name = _parts(token.owner)
    requester_type, requester_name = _parts(token.requester)
    return CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=token.issue_timestamp_ms,
        expiry_timestamp_ms=token.expiration_timestamp_ms,
        max_timestamp_ms=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=reply.hmac,
    )


@handles(ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2))
async def renew_token(
    services: BrokerServices, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Let a token live longer."""
    asked = RenewDelegationToken(
        requester=_authenticated(context), hmac=bytes(request.hmac), renew_period_ms=request.renew_period_ms
    )
    reply = await services.ask(context, asked)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=reply.expiration_timestamp_ms)


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2))
async def expire_token(
    services: BrokerServices, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Let a token live shorter, or end it."""
    asked = ExpireDelegationToken(
        requester=_authenticated(context), hmac=bytes(request.hmac), expiry_period_ms=request.expiry_time_period_ms
    )
    reply = await services.ask(context, asked)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=reply.expiration_timestamp_ms)


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3))
def describe_tokens(
    services: BrokerServices, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """The tokens of the owners named, or of all, that the caller may see."""
    caller = _authenticated(context)
    secret_key = services.config.delegation_token_secret_key
    if not secret_key:
        raise KafkaError.of(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
            "delegation tokens are off; set delegation.token.secret.key, the same on every node",
        )
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, token_hmac(secret_key, token.token_id))
            for token in services.metadata.image.tokens.sorted_tokens()
            if (owners is None or token.owner in owners) and _may_see(context, caller, token)
        ]
    )


def _may_see(context: RequestContext, caller: str, token: DelegationTokenRecord) -> bool:
    if caller in (token.owner, token.requester, *token.renewers):
        return True
    access = context.access
    return not access.is_open and (
        access.may(DESCRIBE, TOKEN, token.token_id, is_noted=False)
        or access.may(DESCRIBE_TOKENS, USER, token.owner, is_noted=False)
    )


def _authenticated(context: RequestContext) -> str:
    if context.principal == ANONYMOUS:
        raise KafkaError.of(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "delegation tokens are for who has logged in; use a listener with SASL",
        )
    if context.session is not None and context.session.is_by_delegation_token:
        raise KafkaError.of(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "who has logged in with a delegation token may not make, renew, expire or list any: log in as its owner",
        )
    return context.principal


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _described(token: DelegationTokenRecord, hmac: bytes) -> DescribedDelegationToken:
    owner_type, owner_name = _parts(token.owner)
    requester_type, requester_name = _parts(token.requester)
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiration_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in (_parts(renewer) for renewer in token.renewers)
        ],
    )
