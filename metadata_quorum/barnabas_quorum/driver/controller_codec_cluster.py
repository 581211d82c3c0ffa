"""Requests about features, controllers, quotas, ACLs, SCRAM and tokens to protobuf and back; controller_codec.py composes them.

May touch:  controller.requests_cluster, controller.requests_security, the protobuf of both.   Must not touch: asyncio, gRPC.
Invariants: those of controller_codec.py.
Read next:  controller_codec.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from barnabas_quorum.controller.requests_cluster import (
    FeatureUpdate,
    FeatureUpdateResult,
    FeatureUpgrade,
    RegisterController,
    RegisterControllerReply,
    UnregisterController,
    UnregisterControllerReply,
    UpdateFeatures,
    UpdateFeaturesReply,
)
from barnabas_quorum.controller.requests_security import (
    AlterClientQuotas,
    AlterClientQuotasReply,
    AlteredUser,
    AlterUserScramCredentials,
    AlterUserScramCredentialsReply,
    CreateAcls,
    CreateAclsReply,
    CreateDelegationToken,
    CreateDelegationTokenReply,
    DelegationTokenExpiry,
    DeleteAcls,
    DeleteAclsReply,
    DeletedAcls,
    ExpireDelegationToken,
    QuotaAlteration,
    RenewDelegationToken,
    ScramDeletion,
    ScramUpsertion,
)
from barnabas_quorum.driver.controller_verb import Verb, optional_error, optional_fault
from barnabas_quorum.image.acls import AccessControlEntry, AclFilter
from barnabas_quorum.records import FeatureRange
from barnabas_quorum.records_security import (
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    DelegationTokenRecord,
    QuotaEntityPart,
)
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Uuid
from barnabas_wire.rpc import controller_pb2 as pb


def _update_features_out(request: UpdateFeatures) -> dict[str, Any]:
    return {
        "updates": [pb.FeatureStep(name=u.name, level=u.level, kind=int(u.kind)) for u in request.updates],
        "validate_only": request.validate_only,
    }


def _update_features_in(message: Any) -> UpdateFeatures:
    return UpdateFeatures(
        updates=tuple(FeatureUpdate(name=u.name, level=u.level, kind=FeatureUpgrade(u.kind)) for u in message.updates),
        validate_only=message.validate_only,
    )


def _update_features_answer_out(reply: UpdateFeaturesReply) -> dict[str, Any]:
    return {"results": [pb.FeatureOutcome(fault=optional_fault(r.error), name=r.name) for r in reply.results]}


def _update_features_answer_in(message: Any) -> UpdateFeaturesReply:
    return UpdateFeaturesReply(
        results=tuple(FeatureUpdateResult(name=m.name, error=optional_error(m)) for m in message.results)
    )


def _register_controller_out(request: RegisterController) -> dict[str, Any]:
    return {
        "controller_id": request.controller_id,
        "cluster_id": request.cluster_id,
        "incarnation_id": bytes(request.incarnation_id),
        "listeners": [
            pb.Listener(name=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.endpoints
        ],
        "features": [pb.Feature(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in request.features],
    }


def _register_controller_in(message: Any) -> RegisterController:
    return RegisterController(
        controller_id=BrokerId(message.controller_id),
        cluster_id=message.cluster_id,
        incarnation_id=Uuid(message.incarnation_id),
        endpoints=tuple(Endpoint(m.name, m.host, m.port, m.security_protocol) for m in message.listeners),
        features=tuple(FeatureRange(m.name, m.min_level, m.max_level) for m in message.features),
    )


def _quotas_out(request: AlterClientQuotas) -> dict[str, Any]:
    return {
        "alterations": [
            pb.QuotaEdits(
                entity=[pb.QuotaPart(type=part.type, name=part.name) for part in alteration.entity],
                edits=[pb.QuotaEdit(key=key, value=value) for key, value in alteration.changes],
            )
            for alteration in request.alterations
        ],
        "validate_only": request.validate_only,
    }


def _quotas_in(message: Any) -> AlterClientQuotas:
    return AlterClientQuotas(
        alterations=tuple(
            QuotaAlteration(
                entity=tuple(QuotaEntityPart(p.type, p.name if p.HasField("name") else None) for p in m.entity),
                changes=tuple((edit.key, edit.value if edit.HasField("value") else None) for edit in m.edits),
            )
            for m in message.alterations
        ),
        validate_only=message.validate_only,
    )


def _outcomes_out(errors: Iterable[KafkaError | None]) -> dict[str, Any]:
    return {"outcomes": [pb.Outcome(fault=optional_fault(error)) for error in errors]}


def _outcomes_in(message: Any) -> tuple[KafkaError | None, ...]:
    return tuple(optional_error(outcome) for outcome in message.outcomes)


def _acl_out(acl: AccessControlEntry | AclFilter) -> Any:
    return pb.Acl(
        resource_type=int(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=int(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission=int(acl.permission),
    )


def _entry_in(message: Any) -> AccessControlEntry:
    return AccessControlEntry(
        resource_type=AclResourceType(message.resource_type),
        resource_name=message.resource_name,
        pattern_type=AclPatternType(message.pattern_type),
        principal=message.principal,
        host=message.host,
        operation=AclOperation(message.operation),
        permission=AclPermission(message.permission),
    )


def _filter_in(message: Any) -> AclFilter:
    return AclFilter(
        resource_type=AclResourceType(message.resource_type),
        resource_name=message.resource_name if message.HasField("resource_name") else None,
        pattern_type=AclPatternType(message.pattern_type),
        principal=message.principal if message.HasField("principal") else None,
        host=message.host if message.HasField("host") else None,
        operation=AclOperation(message.operation),
        permission=AclPermission(message.permission),
    )


def _deleted_acls_out(reply: DeleteAclsReply) -> dict[str, Any]:
    return {
        "results": [
            pb.GoneAcls(fault=optional_fault(result.error), entries=[_acl_out(entry) for entry in result.entries])
            for result in reply.results
        ]
    }


def _deleted_acls_in(message: Any) -> DeleteAclsReply:
    return DeleteAclsReply(
        results=tuple(
            DeletedAcls(error=optional_error(m), entries=tuple(_entry_in(entry) for entry in m.entries))
            for m in message.results
        )
    )


def _scram_out(request: AlterUserScramCredentials) -> dict[str, Any]:
    return {
        "deletions": [pb.ScramChange(name=d.name, mechanism=d.mechanism) for d in request.deletions],
        "upsertions": [
            pb.ScramChange(
                name=u.name,
                mechanism=u.mechanism,
                iterations=u.iterations,
                salt=u.salt,
                stored_key=u.stored_key,
                server_key=u.server_key,
            )
            for u in request.upsertions
        ],
    }


def _scram_in(message: Any) -> AlterUserScramCredentials:
    return AlterUserScramCredentials(
        deletions=tuple(ScramDeletion(name=m.name, mechanism=m.mechanism) for m in message.deletions),
        upsertions=tuple(
            ScramUpsertion(
                name=m.name,
                mechanism=m.mechanism,
                iterations=m.iterations,
                salt=m.salt,
                stored_key=m.stored_key,
                server_key=m.server_key,
            )
            for m in message.upsertions
        ),
    )


def _scram_answer_out(reply: AlterUserScramCredentialsReply) -> dict[str, Any]:
    return {"users": [pb.UserOutcome(fault=optional_fault(user.error), name=user.name) for user in reply.users]}


def _scram_answer_in(message: Any) -> AlterUserScramCredentialsReply:
    return AlterUserScramCredentialsReply(
        users=tuple(AlteredUser(name=m.name, error=optional_error(m)) for m in message.users)
    )


def _create_token_out(request: CreateDelegationToken) -> dict[str, Any]:
    return {
        "owner": request.owner,
        "requester": request.requester,
        "renewers": request.renewers,
        "max_lifetime_ms": request.max_lifetime_ms,
    }


def _create_token_in(message: Any) -> CreateDelegationToken:
    return CreateDelegationToken(
        owner=message.owner,
        requester=message.requester,
        renewers=tuple(message.renewers),
        max_lifetime_ms=message.max_lifetime_ms,
    )


def _token_answer_out(reply: CreateDelegationTokenReply) -> dict[str, Any]:
    token = reply.token
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": token.renewers,
        "issue_timestamp_ms": token.issue_timestamp_ms,
        "max_timestamp_ms": token.max_timestamp_ms,
        "expiration_timestamp_ms": token.expiration_timestamp_ms,
        "hmac": reply.hmac,
    }


def _token_answer_in(message: Any) -> CreateDelegationTokenReply:
    return CreateDelegationTokenReply(
        token=DelegationTokenRecord(
            token_id=message.token_id,
            owner=message.owner,
            requester=message.requester,
            renewers=tuple(message.renewers),
            issue_timestamp_ms=message.issue_timestamp_ms,
            max_timestamp_ms=message.max_timestamp_ms,
            expiration_timestamp_ms=message.expiration_timestamp_ms,
        ),
        hmac=message.hmac,
    )


def _expiry_out(reply: DelegationTokenExpiry) -> dict[str, Any]:
    return {"expiration_timestamp_ms": reply.expiration_timestamp_ms}


def _expiry_in(message: Any) -> DelegationTokenExpiry:
    return DelegationTokenExpiry(expiration_timestamp_ms=message.expiration_timestamp_ms)


def _verb(
    method: str,
    request_type: type,
    write_call: Callable[[Any], dict[str, Any]],
    read_call: Callable[[Any], Any],
    write_answer: Callable[[Any], dict[str, Any]],
    read_answer: Callable[[Any], Any],
) -> Verb:
    """By the rule of names: the messages are the method's with Call and Answer."""
    return Verb(
        method=method,
        request_type=request_type,
        call_type=getattr(pb, f"{method}Call"),
        answer_type=getattr(pb, f"{method}Answer"),
        write_call=write_call,
        read_call=read_call,
        write_answer=write_answer,
        read_answer=read_answer,
    )


CLUSTER_VERBS: tuple[Verb, ...] = (
    _verb(
        "UpdateFeatures",
        UpdateFeatures,
        _update_features_out,
        _update_features_in,
        _update_features_answer_out,
        _update_features_answer_in,
    ),
    _verb(
        "RegisterController",
        RegisterController,
        _register_controller_out,
        _register_controller_in,
        lambda reply: {},
        lambda message: RegisterControllerReply(),
    ),
    _verb(
        "UnregisterController",
        UnregisterController,
        lambda request: {"controller_id": request.controller_id},
        lambda message: UnregisterController(controller_id=BrokerId(message.controller_id)),
        lambda reply: {},
        lambda message: UnregisterControllerReply(),
    ),
    _verb(
        "AlterClientQuotas",
        AlterClientQuotas,
        _quotas_out,
        _quotas_in,
        lambda reply: _outcomes_out(reply.errors),
        lambda message: AlterClientQuotasReply(errors=_outcomes_in(message)),
    ),
    _verb(
        "CreateAcls",
        CreateAcls,
        lambda request: {"entries": [_acl_out(entry) for entry in request.entries]},
        lambda message: CreateAcls(entries=tuple(_entry_in(entry) for entry in message.entries)),
        lambda reply: _outcomes_out(reply.errors),
        lambda message: CreateAclsReply(errors=_outcomes_in(message)),
    ),
    _verb(
        "DeleteAcls",
        DeleteAcls,
        lambda request: {"filters": [_acl_out(wanted) for wanted in request.filters]},
        lambda message: DeleteAcls(filters=tuple(_filter_in(wanted) for wanted in message.filters)),
        _deleted_acls_out,
        _deleted_acls_in,
    ),
    _verb(
        "AlterUserScramCredentials",
        AlterUserScramCredentials,
        _scram_out,
        _scram_in,
        _scram_answer_out,
        _scram_answer_in,
    ),
    _verb(
        "CreateDelegationToken",
        CreateDelegationToken,
        _create_token_out,
        _create_token_in,
        _token_answer_out,
        _token_answer_in,
    ),
    _verb(
        "RenewDelegationToken",
        RenewDelegationToken,
        lambda request: {"requester": request.requester, "hmac": request.hmac, "period_ms": request.renew_period_ms},
        lambda m: RenewDelegationToken(requester=m.requester, hmac=m.hmac, renew_period_ms=m.period_ms),
        _expiry_out,
        _expiry_in,
    ),
    _verb(
        "ExpireDelegationToken",
        ExpireDelegationToken,
        lambda request: {"requester": request.requester, "hmac": request.hmac, "period_ms": request.expiry_period_ms},
        lambda m: ExpireDelegationToken(requester=m.requester, hmac=m.hmac, expiry_period_ms=m.period_ms),
        _expiry_out,
        _expiry_in,
    ),
)
"""Every unary call about the cluster as a whole and about security, in the order of the service."""
