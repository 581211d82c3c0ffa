"""DescribeUserScramCredentials v0, AlterUserScramCredentials v0 (KIP-554).

May touch:  the image's credentials, the controller client.    Must not touch: passwords in the clear; logs, with a secret.
Invariants: no answer holds a salt or a key; the salted password ends here: only the keys derived from it are passed on.
Read next:  metadata_quorum/controller/scram.py, which decides.

As in Kafka, credentials are kept whether or not a listener uses SASL.
"""

from __future__ import annotations

from collections import Counter

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.controller.requests_security import (
    AlterUserScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from barnabas_quorum.controller.scram import ScramKeys, derive_keys
from barnabas_quorum.records_security import ScramMechanism
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from barnabas_wire.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0))
def describe_credentials(
    services: BrokerServices, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of users; no users named means all that have a credential."""
    image = services.metadata.image.scram
    names = [user.name for user in request.users] if request.users else image.users()
    times = Counter(names)
    return DescribeUserScramCredentialsResponse(
        results=[_described(services, name, is_twice=count > 1) for name, count in times.items()]
    )


def _described(services: BrokerServices, name: str, *, is_twice: bool) -> DescribeUserScramCredentialsResult:
    if is_twice:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"user {name} is named twice in one request; once will do",
        )
    found = services.metadata.image.scram.of_user(name)
    if not found:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"user {name} has no SCRAM credential",
        )
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations) for mechanism, credential in found
        ],
    )


@handles(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    on_error=lambda request, error: AlterUserScramCredentialsResponse(
        results=[
            _altered(name, error)
            for name in dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
        ]
    ),
)
async def alter_credentials(
    services: BrokerServices, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Make, replace and delete credentials; each user succeeds or fails as a whole."""
    reply = await services.ask(
        context,
        AlterUserScramCredentials(
            deletions=tuple(
                ScramDeletion(name=change.name, mechanism=change.mechanism) for change in request.deletions
            ),
            upsertions=tuple(_upsertion(change) for change in request.upsertions),
        ),
    )
    return AlterUserScramCredentialsResponse(results=[_altered(user.name, user.error) for user in reply.users])


def _upsertion(change: ScramCredentialUpsertion) -> ScramUpsertion:
    try:
        keys = derive_keys(ScramMechanism(change.mechanism), bytes(change.salted_password))
    except ValueError:
        keys = ScramKeys(b"", b"")  # the controller refuses the mechanism
    if not change.salted_password:
        keys = ScramKeys(b"", b"")  # and a password that is not there
    return ScramUpsertion(
        name=change.name,
        mechanism=change.mechanism,
        iterations=change.iterations,
        salt=bytes(change.salt),
        stored_key=keys.stored_key,
        server_key=keys.server_key,
    )


def _altered(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=name, **error_fields(error))
