"""Decisions about features and controllers, ACLs, quotas, SCRAM credentials and delegation tokens."""

from __future__ import annotations

import re
from typing import Any

import pytest

from barnabas_quorum.controller.requests import ConfigAlteration, ConfigChange, ConfigOperation, IncrementalAlterConfigs
from barnabas_quorum.controller.requests_cluster import (
    FeatureUpdate,
    FeatureUpgrade,
    RegisterController,
    UnregisterController,
    UpdateFeatures,
)
from barnabas_quorum.controller.requests_security import (
    AlterClientQuotas,
    AlterUserScramCredentials,
    CreateAcls,
    CreateDelegationToken,
    DeleteAcls,
    ExpireDelegationToken,
    QuotaAlteration,
    RenewDelegationToken,
    ScramDeletion,
    ScramUpsertion,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.acls import AccessControlEntry, AclFilter
from barnabas_quorum.image.authorizer import Authorizer
from barnabas_quorum.image.features import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    SUPPORTED_FEATURES,
)
from barnabas_quorum.records import ConfigResourceType, FeatureLevelRecord, FeatureRange
from barnabas_quorum.records_security import (
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    QuotaEntityPart,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint
from tests.support.decided_cluster import CLUSTER_ID, DecidedCluster, registration, uuid

UP, SAFE, UNSAFE = FeatureUpgrade
HOUR_MS = 3_600_000


def one(**config: Any) -> DecidedCluster:
    return DecidedCluster(**config).start_brokers(1)


def refused(cluster: DecidedCluster, request: Any) -> KafkaError:
    start = len(cluster.log)
    with pytest.raises(KafkaError) as caught:
        cluster.do(request)
    assert len(cluster.log) == start and caught.value.message
    return caught.value


# --- features -------------------------------------------------------------------------------------------------------------


def update(cluster: DecidedCluster, *updates: tuple[str, int, FeatureUpgrade], dry: bool = False) -> list[str]:
    request = UpdateFeatures(
        updates=tuple(FeatureUpdate(name=name, level=level, kind=kind) for name, level, kind in updates),
        validate_only=dry,
    )
    results = cluster.do(request).results
    return ["" if result.error is None else f"{result.error.code.name}: {result.error.message}" for result in results]


def without_elr() -> DecidedCluster:
    """A cluster that was made before there were ELRs."""
    cluster = one()
    gone = ControllerResult(records=[FeatureLevelRecord(name=ELR_VERSION, level=0)], response=None)
    cluster.commit(gone)
    return cluster


def test_a_feature_is_raised_and_a_dry_run_changes_nothing() -> None:
    cluster = without_elr()
    start = len(cluster.log)
    assert update(cluster, (ELR_VERSION, 1, UP), dry=True) == [""]
    assert len(cluster.log) == start
    assert update(cluster, (ELR_VERSION, 1, UP)) == [""]
    assert cluster.image.features.is_elr_enabled
    start = len(cluster.log)
    assert update(cluster, (ELR_VERSION, 1, UP)) == [""]
    assert len(cluster.log) == start


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ((ELR_VERSION, 0, UP), "INVALID_UPDATE_VERSION.*needs the upgrade type"),
        ((ELR_VERSION, 2, UP), "INVALID_UPDATE_VERSION.*the active controller serves .* 0 to 1"),
        ((GROUP_VERSION, 2, UP), "INVALID_UPDATE_VERSION.*serves group.version 0 to 1"),
        (("no.such", 1, UP), "INVALID_UPDATE_VERSION.*does not know no.such"),
        (("no.such", 0, SAFE), "INVALID_UPDATE_VERSION.*does not know no.such"),
        ((METADATA_VERSION, 1, SAFE), "INVALID_UPDATE_VERSION.*format a new cluster"),
        ((METADATA_VERSION, 1, UNSAFE), "INVALID_UPDATE_VERSION.*format a new cluster"),
        ((METADATA_VERSION, 0, SAFE), "INVALID_UPDATE_VERSION.*serves metadata.version 1 to 8"),
        ((KRAFT_VERSION, 0, SAFE), "INVALID_UPDATE_VERSION.*voter sets"),
        ((ELR_VERSION, 0, SAFE), "INVALID_UPDATE_VERSION.*never elect a leader"),
        ((ELR_VERSION, -1, SAFE), "INVALID_UPDATE_VERSION.*0 or greater"),
    ],
)
def test_an_impossible_update_names_the_obstacle_and_changes_nothing(
    step: tuple[str, int, FeatureUpgrade], words: str
) -> None:
    cluster = without_elr() if step[0] != ELR_VERSION else one()
    before = cluster.image.features
    outcomes = update(cluster, step, (ELR_VERSION, 1, UP)) if step[0] != ELR_VERSION else update(cluster, step)
    assert re.match(words, outcomes[0]), outcomes
    assert cluster.image.features == before


def test_a_broker_or_controller_that_is_too_old_holds_a_feature_back() -> None:
    cluster = without_elr()
    old = tuple(feature for feature in SUPPORTED_FEATURES if feature.name != ELR_VERSION)
    cluster.do(registration(2, features=old))
    assert "broker 2 (fenced) does not know" in update(cluster, (ELR_VERSION, 1, UP))[0]
    cluster = without_elr()
    cluster.do(controller(9, features=old))
    assert "controller 9 does not know" in update(cluster, (ELR_VERSION, 1, UP))[0]
    cluster.do(UnregisterController(controller_id=BrokerId(9)))
    assert update(cluster, (ELR_VERSION, 1, UP)) == [""]


def test_with_elrs_one_min_insync_replicas_applies_to_all_brokers() -> None:
    cluster = DecidedCluster(min_insync_replicas=2).start_brokers(1)
    assert cluster.image.configs.cluster_default == {"min.insync.replicas": "2"}
    removal = IncrementalAlterConfigs(
        resources=(
            ConfigAlteration(
                resource_type=ConfigResourceType.BROKER,
                resource_name="",
                changes=(ConfigChange(key="min.insync.replicas", operation=ConfigOperation.DELETE),),
            ),
        )
    )
    (answer,) = cluster.do(removal).resources
    assert answer.error is not None and "cannot be removed" in answer.error.message


def test_a_feature_named_twice_is_refused() -> None:
    assert all("named twice" in text for text in update(one(), (ELR_VERSION, 0, SAFE), (ELR_VERSION, 1, UP)))


# --- controllers ----------------------------------------------------------------------------------------------------------


def controller(controller_id: int, **more: Any) -> RegisterController:
    return RegisterController(
        **{
            "controller_id": BrokerId(controller_id),
            "cluster_id": CLUSTER_ID,
            "incarnation_id": uuid(7),
            "endpoints": (Endpoint("CONTROLLER", "h", 1),),
            "features": SUPPORTED_FEATURES,
            **more,
        }
    )


def test_a_controller_registers_once_per_process() -> None:
    cluster = one()
    cluster.do(controller(3))
    start = len(cluster.log)
    cluster.do(controller(3))
    assert len(cluster.log) == start
    cluster.do(controller(3, incarnation_id=uuid(8)))
    assert cluster.image.cluster.controllers[BrokerId(3)].incarnation_id == uuid(8)
    cluster.do(UnregisterController(controller_id=BrokerId(3)))
    assert cluster.image.cluster.controllers == {}
    assert refused(cluster, UnregisterController(controller_id=BrokerId(3))).code is ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"endpoints": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"features": ()}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": (FeatureRange(METADATA_VERSION, 5, 6),)}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_controller_that_does_not_fit_is_refused(what: dict[str, Any], code: ErrorCode) -> None:
    assert refused(one(), controller(3, **what)).code is code


# --- ACLs -----------------------------------------------------------------------------------------------------------------


def acl(**more: Any) -> AccessControlEntry:
    return AccessControlEntry(
        **{
            "resource_type": AclResourceType.TOPIC,
            "resource_name": "t",
            "pattern_type": AclPatternType.LITERAL,
            "principal": "User:a",
            "host": "*",
            "operation": AclOperation.READ,
            "permission": AclPermission.ALLOW,
            **more,
        }
    )


def acls_of(cluster: DecidedCluster) -> list[AccessControlEntry]:
    return [entry for _, entry in cluster.image.acls.sorted_entries()]


def test_an_acl_exists_once_and_goes_once() -> None:
    cluster = one()
    assert cluster.do(CreateAcls(entries=(acl(), acl(), acl(host="1.2.3.4")))).errors == (None, None, None)
    cluster.do(CreateAcls(entries=(acl(),)))
    assert acls_of(cluster) == [acl(host="*"), acl(host="1.2.3.4")]
    wanted = AclFilter(principal="User:a")
    gone = cluster.do(DeleteAcls(filters=(AclFilter(host="*"), wanted, wanted))).results
    assert [[entry.host for entry in result.entries] for result in gone] == [["*"], ["1.2.3.4"], []]
    assert acls_of(cluster) == []


@pytest.mark.parametrize(
    "what",
    [
        {"resource_type": AclResourceType.ANY},
        {"pattern_type": AclPatternType.MATCH},
        {"operation": AclOperation.ANY},
        {"permission": AclPermission.ANY},
        {"resource_name": ""},
        {"resource_type": AclResourceType.CLUSTER, "resource_name": "mine"},
        {"principal": "alice"},
        {"principal": "User:"},
        {"principal": "user:bob"},
        {"principal": "Group:admins"},
        {"host": ""},
        {"host": "10.0.0.0/8"},
        {"host": "client.example"},
        {"host": "127.0.0.1 "},
    ],
)
@pytest.mark.attack("A7", "an ACL that would match nobody is refused")
def test_an_acl_that_cannot_be_is_refused_alone(what: dict[str, Any]) -> None:
    cluster = one()
    bad, good = cluster.do(CreateAcls(entries=(acl(**what), acl()))).errors
    assert bad.code is ErrorCode.INVALID_REQUEST and bad.message.startswith("an ACL ") and good is None
    assert acls_of(cluster) == [acl()]


@pytest.mark.attack("A7", "an ACL's host is kept as connections have it")
def test_a_host_is_kept_and_found_as_connections_have_it() -> None:
    cluster = one()
    java, mapped = acl(host="0:0:0:0:0:0:0:1"), acl(host="::FFFF:127.0.0.1")
    assert cluster.do(CreateAcls(entries=(java, acl(host="::1"), mapped))).errors == (None, None, None)
    assert acls_of(cluster) == [acl(host="127.0.0.1"), acl(host="::1")]
    authorizer = Authorizer()
    authorizer.follow(cluster.image.acls.entries)
    assert authorizer.authorize("User:a", "::1", AclOperation.READ, AclResourceType.TOPIC, "t").is_allowed
    (gone,) = cluster.do(DeleteAcls(filters=(AclFilter(host="0:0:0:0:0:0:0:1"),))).results
    assert [entry.host for entry in gone.entries] == ["::1"]


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (AclPatternType.MATCH, "team-x", ["*", "team-", "team-x"]),
        (AclPatternType.MATCH, "other", ["*"]),
        (AclPatternType.LITERAL, "team-x", ["team-x"]),
        (AclPatternType.LITERAL, "*", ["*"]),
        (AclPatternType.PREFIXED, "team-x", []),
        (AclPatternType.PREFIXED, None, ["team-"]),
        (AclPatternType.ANY, "team-", ["team-"]),
        (AclPatternType.MATCH, None, ["*", "team-", "team-x"]),
    ],
)
def test_a_filter_means_what_kafkas_means(pattern: AclPatternType, name: str | None, found: list[str]) -> None:
    cluster = one()
    prefixed = acl(resource_name="team-", pattern_type=AclPatternType.PREFIXED)
    cluster.do(CreateAcls(entries=(acl(resource_name="*"), acl(resource_name="team-x"), prefixed)))
    wanted = AclFilter(resource_name=name, pattern_type=pattern)
    assert sorted(entry.resource_name for _, entry in cluster.image.acls.find(wanted)) == found


# --- quotas ---------------------------------------------------------------------------------------------------------------


def quota(entity: dict[str, str | None], **changes: float | None) -> QuotaAlteration:
    return QuotaAlteration(
        entity=tuple(QuotaEntityPart(kind, entity[kind]) for kind in sorted(entity)), changes=tuple(changes.items())
    )


def alter(cluster: DecidedCluster, *alterations: QuotaAlteration, **more: Any) -> list[ErrorCode | None]:
    errors = cluster.do(AlterClientQuotas(alterations=alterations, **more)).errors
    return [None if error is None else error.code for error in errors]


def test_quotas_are_set_changed_and_removed() -> None:
    cluster = one()
    both = {"user": "u", "client-id": None}
    assert alter(cluster, quota(both, producer_byte_rate=10.0, request_percentage=0.5)) == [None]
    start = len(cluster.log)
    assert alter(
        cluster, quota(both, producer_byte_rate=10.0), quota({"ip": "::1"}, connection_creation_rate=None)
    ) == [
        None,
        None,
    ]
    assert alter(cluster, quota(both, producer_byte_rate=11.0), validate_only=True) == [None]
    assert len(cluster.log) == start  # what is so already, or is only tried, writes nothing
    assert alter(cluster, quota(both, producer_byte_rate=None, request_percentage=None)) == [None]
    assert cluster.image.quotas.entities == {}


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "u", "ip": "1.2.3.4"}, {"connection_creation_rate": 1.0}),
        ({"ip": "localhost"}, {"connection_creation_rate": 1.0}),
        ({"ip": None}, {"producer_byte_rate": 1.0}),
        ({"user": "u"}, {"connection_creation_rate": 1.0}),
        ({"user": "u"}, {"producer_byte_rate": 0.0}),
        ({"user": "u"}, {"producer_byte_rate": 1.5}),
        ({"user": "u"}, {"producer_byte_rate": float("nan")}),
        ({"user": "u"}, {"request_percentage": float("inf")}),
    ],
)
def test_an_invalid_quota_is_refused_as_a_whole(
    entity: dict[str, str | None], changes: dict[str, float | None]
) -> None:
    cluster = one()
    other = quota({"user": "other"}, consumer_byte_rate=1.0)
    assert alter(cluster, quota(entity, **changes), other) == [ErrorCode.INVALID_REQUEST, None]
    assert list(cluster.image.quotas.entities) == [other.entity]


# --- SCRAM ----------------------------------------------------------------------------------------------------------------


def credential(name: str, **more: Any) -> ScramUpsertion:
    keys = {"stored_key": b"k" * 32, "server_key": b"l" * 32}
    return ScramUpsertion(**{"name": name, "mechanism": 1, "iterations": 4096, "salt": b"s", **keys, **more})


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"name": ""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 3}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ({"mechanism": 2}, ErrorCode.UNACCEPTABLE_CREDENTIAL),  # its keys are longer
        ({"iterations": 4095}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 16385}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"stored_key": b""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_credential_that_is_too_weak_or_unknown_is_refused(what: dict[str, Any], code: ErrorCode) -> None:
    cluster = one()
    bad = credential(**{"name": "bad", **what})
    users = cluster.do(AlterUserScramCredentials(upsertions=(bad, credential("good")))).users
    assert [None if user.error is None else user.error.code for user in users] == [code, None]
    assert cluster.image.scram.users() == ["good"]


def test_a_user_succeeds_or_fails_as_a_whole() -> None:
    cluster = one()
    twice = AlterUserScramCredentials(
        deletions=(ScramDeletion(name="a", mechanism=1),), upsertions=(credential("a"), credential("b"))
    )
    users = {user.name: user.error for user in cluster.do(twice).users}
    assert users["a"] is not None and users["a"].code is ErrorCode.DUPLICATE_RESOURCE and users["b"] is None
    gone = cluster.do(AlterUserScramCredentials(deletions=(ScramDeletion(name="b", mechanism=1),))).users
    assert gone[0].error is None and cluster.image.scram.users() == []


# --- tokens ---------------------------------------------------------------------------------------------------------------


def tokens(**config: Any) -> DecidedCluster:
    cluster = one(delegation_token_secret_key="s", **config)
    cluster.controller.wall_ms = 1000
    return cluster


def test_without_the_secret_key_there_are_no_tokens() -> None:
    for request in (
        CreateDelegationToken(owner="User:a", requester="User:a"),
        RenewDelegationToken(requester="User:a", hmac=b""),
    ):
        assert refused(one(), request).code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_a_token_is_renewed_up_to_its_end_expired_and_swept() -> None:
    cluster = tokens()
    made = cluster.do(
        CreateDelegationToken(owner="User:a", requester="User:a", renewers=("User:b",), max_lifetime_ms=30 * HOUR_MS)
    )
    assert made.token.expiration_timestamp_ms == 1000 + 24 * HOUR_MS
    cluster.controller.wall_ms += 20 * HOUR_MS
    renewed = cluster.do(RenewDelegationToken(requester="User:b", hmac=made.hmac))
    assert renewed.expiration_timestamp_ms == made.token.max_timestamp_ms == 1000 + 30 * HOUR_MS
    assert refused(cluster, RenewDelegationToken(requester="User:c", hmac=made.hmac)).code is (
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    )
    assert refused(cluster, RenewDelegationToken(requester="User:a", hmac=b"x")).code is (
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    )
    cluster.do(ExpireDelegationToken(requester="User:a", hmac=made.hmac, expiry_period_ms=5))
    cluster.commit(cluster.controller.sweep_tokens())
    assert len(cluster.image.tokens.tokens) == 1  # not over yet
    cluster.controller.wall_ms += 6
    assert refused(cluster, RenewDelegationToken(requester="User:a", hmac=made.hmac)).code is (
        ErrorCode.DELEGATION_TOKEN_EXPIRED
    )
    cluster.commit(cluster.controller.sweep_tokens())
    assert cluster.image.tokens.tokens == {}


def test_a_negative_expiry_removes_a_token_at_once() -> None:
    cluster = tokens()
    made = cluster.do(CreateDelegationToken(owner="User:a", requester="User:a"))
    assert made.token.max_timestamp_ms == 1000 + 7 * 24 * HOUR_MS
    cluster.do(ExpireDelegationToken(requester="User:a", hmac=made.hmac))
    assert cluster.image.tokens.tokens == {}


@pytest.mark.parametrize("who", [{"owner": "Group:a"}, {"renewers": ("b",)}, {"requester": "User:"}])
def test_tokens_are_for_users(who: dict[str, Any]) -> None:
    request = CreateDelegationToken(**{"owner": "User:a", "requester": "User:a", **who})
    assert refused(tokens(), request).code is ErrorCode.INVALID_PRINCIPAL_TYPE


# --- metadata.version -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        CreateAcls(entries=(acl(),)),
        AlterClientQuotas(alterations=()),
        AlterUserScramCredentials(),
        CreateDelegationToken(owner="User:a", requester="User:a"),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_cluster_of_the_first_metadata_version_gets_no_records_that_it_does_not_know(request_: Any) -> None:
    cluster = tokens()
    image = cluster.controller.replayed([FeatureLevelRecord(name=METADATA_VERSION, level=1)], timestamp_ms=0)
    cluster.controller.accept(image)
    cluster.controller.commit(image)
    error = refused(cluster, request_)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION and "features upgrade" in error.message
    assert update(cluster, (METADATA_VERSION, 2, UP)) == [""]
    cluster.do(request_)


# --- configs --------------------------------------------------------------------------------------------------------------


def test_overrides_that_contradict_each_other_are_refused_and_groups_have_configs() -> None:
    cluster = one()
    cluster.create("t", [1], configs={"a": "left"})

    def change(kind: ConfigResourceType, name: str, key: str, value: str) -> ErrorCode | None:
        alteration = ConfigAlteration(
            resource_type=kind,
            resource_name=name,
            changes=(ConfigChange(key=key, operation=ConfigOperation.SET, value=value),),
        )
        (answer,) = cluster.do(IncrementalAlterConfigs(resources=(alteration,))).resources
        return None if answer.error is None else answer.error.code

    assert change(ConfigResourceType.TOPIC, "t", "b", "right") is ErrorCode.INVALID_CONFIG
    assert change(ConfigResourceType.TOPIC, "t", "a", "other") is None
    assert change(ConfigResourceType.TOPIC, "t", "b", "right") is None
    assert change(ConfigResourceType.GROUP, "g", "k", "v") is None
    assert change(ConfigResourceType.GROUP, "g", "k", "bad") is ErrorCode.INVALID_CONFIG
    assert change(ConfigResourceType.GROUP, "", "k", "v") is ErrorCode.INVALID_REQUEST


def test_share_groups_go_off_and_on_again_but_not_below_a_key_that_a_topic_has() -> None:
    cluster = one()
    assert cluster.image.features.share_version == 2, "a new cluster has them"
    for level, kind in ((1, SAFE), (0, SAFE), (2, UP)):
        assert update(cluster, (SHARE_VERSION, level, kind)) == [""]
        assert cluster.image.features.share_version == level
    cluster.create("letters", [1], configs={"share.key": "x"})
    (refused,) = update(cluster, (SHARE_VERSION, 1, UNSAFE))
    assert refused.startswith("INVALID_UPDATE_VERSION") and "topic 'letters' has share.key" in refused
    assert cluster.image.features.share_version == 2
