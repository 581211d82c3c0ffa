"""ACLs, quotas, SCRAM users, tokens and features over the Kafka protocol, decided by a real controller."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from barnabas_broker.api import tokens as token_handlers
from barnabas_broker.api.config import ApiConfig
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.kafka_levels import KAFKA_METADATA_VERSIONS
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.features import BOOTSTRAP_LEVELS, METADATA_VERSION, METADATA_VERSION_LATEST
from barnabas_quorum.records import FeatureLevelRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages import alter_client_quotas as alter_quotas
from barnabas_wire.kafka.messages import describe_client_quotas as describe_quotas
from barnabas_wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas_wire.kafka.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas_wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas_wire.kafka.messages.describe_acls import DescribeAclsRequest
from barnabas_wire.kafka.messages.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas_wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas_wire.kafka.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas_wire.kafka.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.decided_cluster import DecidedCluster
from tests.support.listener import connected, make_services

SECRET = "not-for-the-eyes-of-any-log"


class Decided:
    """ActiveController and MetadataSource over a controller whose decisions are committed at once."""

    def __init__(self) -> None:
        self.cluster = DecidedCluster(delegation_token_secret_key=SECRET).start_brokers(1)

    @property
    def image(self) -> Any:
        return self.cluster.image

    async def ask(self, request: Any, *, principal: str = "", client_host: str = "") -> Any:
        assert SECRET not in repr(request)
        return self.cluster.do(request)


def services_of(decided: Decided) -> Any:
    return make_services(controller=decided, metadata=decided, config=ApiConfig(delegation_token_secret_key=SECRET))


async def asked(decided: Decided, *requests: tuple[Any, int]) -> list[Any]:
    async with connected(services_of(decided)) as (_, client):
        return [await client.call(request, version) for request, version in requests]


ALICE = AclCreation(
    resource_type=2,
    resource_name="t",
    resource_pattern_type=3,
    principal="User:alice",
    host="*",
    operation=3,
    permission_type=3,
)
ANY: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_acls_are_created_described_and_deleted(version: int) -> None:
    odd = AclCreation(resource_type=99, resource_name="t", resource_pattern_type=3)
    nameless = AclCreation(
        resource_type=2, resource_pattern_type=3, principal="User:a", host="*", operation=3, permission_type=3
    )
    created, described, deleted, after = await asked(
        Decided(),
        (CreateAclsRequest(creations=[odd, ALICE, nameless]), version),
        (DescribeAclsRequest(**ANY), version),
        (DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY, principal_filter="User:alice")]), version),
        (DescribeAclsRequest(**ANY), version),
    )
    assert [result.error_code for result in created.results] == [42, 0, 42]
    (resource,) = described.resources
    assert (resource.resource_type, resource.resource_name, resource.acls[0].principal) == (2, "t", "User:alice")
    assert [acl.principal for acl in deleted.filter_results[0].matching_acls] == ["User:alice"]
    assert after.resources == []


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_described_and_removed(version: int) -> None:
    entity = [
        alter_quotas.EntityData(entity_type="user", entity_name="u"),
        alter_quotas.EntityData(entity_type="client-id", entity_name=None),
    ]
    set_ = alter_quotas.OpData(key="producer_byte_rate", value=1024.0)
    bad = alter_quotas.OpData(key="producer_byte_rate", value=-1.0)
    other = [alter_quotas.EntityData(entity_type="user", entity_name="v")]
    users = describe_quotas.ComponentData(entity_type="user", match_type=2)
    altered, described, strict = await asked(
        Decided(),
        (
            alter_quotas.AlterClientQuotasRequest(
                entries=[
                    alter_quotas.EntryData(entity=entity, ops=[set_]),
                    alter_quotas.EntryData(entity=other, ops=[bad]),
                ]
            ),
            version,
        ),
        (describe_quotas.DescribeClientQuotasRequest(components=[users]), version),
        (describe_quotas.DescribeClientQuotasRequest(components=[users], strict=True), version),
    )
    assert [entry.error_code for entry in altered.entries] == [0, 42]
    (entry,) = described.entries
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("client-id", None), ("user", "u")]
    assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 1024.0)]
    assert strict.entries == []


async def test_scram_users_are_made_described_and_deleted_and_the_keys_are_those_of_rfc_5802() -> None:
    # the example of RFC 7677
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    decided = Decided()
    made = ScramCredentialUpsertion(name="user", mechanism=1, iterations=4096, salt=salt, salted_password=salted)
    few = ScramCredentialUpsertion(name="few", mechanism=1, iterations=100, salt=salt, salted_password=salted)
    altered, described, gone, after = await asked(
        decided,
        (AlterUserScramCredentialsRequest(upsertions=[made, few]), 0),
        (DescribeUserScramCredentialsRequest(users=None), 0),
        (AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="user", mechanism=2)]), 0),
        (DescribeUserScramCredentialsRequest(users=[UserName(name="nobody")]), 0),
    )
    assert {result.user: result.error_code for result in altered.results} == {"user": 0, "few": 93}
    (user,) = described.results
    assert (user.user, [(info.mechanism, info.iterations) for info in user.credential_infos]) == ("user", [(1, 4096)])
    assert [result.error_code for result in gone.results] == [91]
    assert [result.error_code for result in after.results] == [91]
    ((_, credential),) = decided.image.scram.of_user("user")
    # what a server computes of the client's proof in that example must be the stored key
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(credential.stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    verifier = base64.b64encode(hmac.digest(credential.server_key, message, "sha256"))
    assert verifier == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    for secret in (credential.stored_key, credential.server_key, salt):
        assert repr(secret) not in repr(decided.image.scram) + repr(decided.cluster.log)


async def test_tokens_are_not_for_the_anonymous() -> None:
    for answer in await asked(
        Decided(),
        (CreateDelegationTokenRequest(max_lifetime_ms=-1), 3),
        (DescribeDelegationTokenRequest(owners=None), 3),
        (RenewDelegationTokenRequest(hmac=b"x"), 2),
    ):
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def context(principal: str) -> RequestContext:
    return RequestContext(
        api_key=ApiKey.CREATE_DELEGATION_TOKEN,
        api_version=3,
        correlation_id=1,
        client_id="",
        listener_name="SASL",
        client_host="127.0.0.1",
        now_ms=0,
        principal=principal,
    )


async def test_who_has_logged_in_gets_tokens_of_its_own_and_sees_no_others() -> None:
    decided = Decided()
    services = services_of(decided)
    made = await token_handlers.create_token(
        services, context("User:alice"), CreateDelegationTokenRequest(max_lifetime_ms=-1)
    )
    assert made.hmac == hmac.digest(SECRET.encode(), made.token_id.encode(), "sha512")
    seen: dict[str, Any] = {
        who: token_handlers.describe_tokens(services, context(who), DescribeDelegationTokenRequest(owners=None))
        for who in ("User:alice", "User:bob")
    }
    assert [token.hmac for token in seen["User:alice"].tokens] == [made.hmac] and seen["User:bob"].tokens == []
    with pytest.raises(KafkaError) as refused:
        await token_handlers.renew_token(services, context("User:bob"), RenewDelegationTokenRequest(hmac=made.hmac))
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    theirs = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=-1)
    with pytest.raises(KafkaError) as refused:
        await token_handlers.create_token(services, context("User:alice"), theirs)
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


async def test_features_are_updated_all_or_none_and_shown() -> None:
    raised = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1)
    decided = Decided()
    level = FeatureLevelRecord(name="eligible.leader.replicas.version", level=0)
    decided.cluster.commit(ControllerResult(records=[level], response=None))
    unknown = FeatureUpdateKey(feature="group.version", max_version_level=2)
    refused, dry, old, done, shown = await asked(
        decided,
        (UpdateFeaturesRequest(feature_updates=[raised, unknown]), 2),
        (UpdateFeaturesRequest(feature_updates=[raised], validate_only=True), 2),
        (UpdateFeaturesRequest(feature_updates=[raised, unknown]), 1),
        (UpdateFeaturesRequest(feature_updates=[raised]), 2),
        (ApiVersionsRequest(), 4),
    )
    assert (
        refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        and "group.version cannot become 2" in refused.error_message
    )
    assert dry.error_code == 0 and done.error_code == 0
    assert [result.error_code for result in old.results] == [96, 95]
    levels = {feature.name: feature.max_version_level for feature in shown.finalized_features}
    assert levels == {**BOOTSTRAP_LEVELS, METADATA_VERSION: 29}, "4.2-IV1, as Kafka's tools call it"
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in shown.supported_features}
    assert supported[METADATA_VERSION] == (22, 29)


async def test_kafkas_number_of_a_metadata_version_means_ours_and_no_other() -> None:
    decided = Decided()
    decided.cluster.commit(
        ControllerResult(records=[FeatureLevelRecord(name=METADATA_VERSION, level=3)], response=None)
    )

    def raised(level: int) -> tuple[UpdateFeaturesRequest, int]:
        return UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(METADATA_VERSION, level, upgrade_type=1)]), 2

    ours, newer, done = await asked(decided, raised(4), raised(30), raised(26))
    for refused in (ours, newer):
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "26 (4.1-IV0)" in refused.error_message and "barnabas cluster features" in refused.error_message
    assert done.error_code == 0
    assert decided.cluster.image.features.metadata_version == 5


def test_every_level_of_ours_stands_for_a_higher_one_of_kafkas() -> None:
    assert list(KAFKA_METADATA_VERSIONS) == list(range(1, METADATA_VERSION_LATEST + 1))
    kafka = [level for level, _ in KAFKA_METADATA_VERSIONS.values()]
    assert kafka == sorted(set(kafka))
