"""The records of records_security.py to protobuf and back; record_codec.py composes these tables into its own.

May touch:  records_security, barnabas_wire.rpc.metadata_records_pb2.   Must not touch: image, controller, asyncio.
Invariants: those of record_codec.py.
Read next:  record_codec.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas_quorum.records_security import (
    AccessControlEntryRecord,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntityPart,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    ScramMechanism,
    SecurityRecord,
    UserScramCredentialRecord,
)
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.rpc import metadata_records_pb2 as pb


def _quota(record: ClientQuotaRecord) -> Any:
    entity = [pb.QuotaEntityPartValue(type=part.type, name=part.name) for part in record.entity]
    return pb.MetadataRecord(client_quota=pb.ClientQuota(entity=entity, key=record.key, value=record.value))


def _read_quota(message: Any) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=tuple(
            QuotaEntityPart(part.type, part.name if part.HasField("name") else None) for part in message.entity
        ),
        key=message.key,
        value=message.value if message.HasField("value") else None,
    )


def _acl(record: AccessControlEntryRecord) -> Any:
    return pb.MetadataRecord(
        access_control_entry=pb.AccessControlEntry(
            id=bytes(record.id),
            resource_type=int(record.resource_type),
            resource_name=record.resource_name,
            pattern_type=int(record.pattern_type),
            principal=record.principal,
            host=record.host,
            operation=int(record.operation),
            permission=int(record.permission),
        )
    )


def _read_acl(message: Any) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid(message.id),
        resource_type=AclResourceType(message.resource_type),
        resource_name=message.resource_name,
        pattern_type=AclPatternType(message.pattern_type),
        principal=message.principal,
        host=message.host,
        operation=AclOperation(message.operation),
        permission=AclPermission(message.permission),
    )


def _remove_acl(record: RemoveAccessControlEntryRecord) -> Any:
    return pb.MetadataRecord(remove_access_control_entry=pb.RemoveAccessControlEntry(id=bytes(record.id)))


def _read_remove_acl(message: Any) -> RemoveAccessControlEntryRecord:
    return RemoveAccessControlEntryRecord(id=Uuid(message.id))


def _scram(record: UserScramCredentialRecord) -> Any:
    return pb.MetadataRecord(
        user_scram_credential=pb.UserScramCredential(
            name=record.name,
            mechanism=int(record.mechanism),
            salt=record.salt,
            stored_key=record.stored_key,
            server_key=record.server_key,
            iterations=record.iterations,
        )
    )


def _read_scram(message: Any) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=message.name,
        mechanism=ScramMechanism(message.mechanism),
        salt=message.salt,
        stored_key=message.stored_key,
        server_key=message.server_key,
        iterations=message.iterations,
    )


def _remove_scram(record: RemoveUserScramCredentialRecord) -> Any:
    return pb.MetadataRecord(
        remove_user_scram_credential=pb.RemoveUserScramCredential(name=record.name, mechanism=int(record.mechanism))
    )


def _read_remove_scram(message: Any) -> RemoveUserScramCredentialRecord:
    return RemoveUserScramCredentialRecord(name=message.name, mechanism=ScramMechanism(message.mechanism))


def _token(record: DelegationTokenRecord) -> Any:
    return pb.MetadataRecord(
        delegation_token=pb.DelegationToken(
            token_id=record.token_id,
            owner=record.owner,
            requester=record.requester,
            renewers=record.renewers,
            issue_timestamp_ms=record.issue_timestamp_ms,
            max_timestamp_ms=record.max_timestamp_ms,
            expiration_timestamp_ms=record.expiration_timestamp_ms,
        )
    )


def _read_token(message: Any) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        token_id=message.token_id,
        owner=message.owner,
        requester=message.requester,
        renewers=tuple(message.renewers),
        issue_timestamp_ms=message.issue_timestamp_ms,
        max_timestamp_ms=message.max_timestamp_ms,
        expiration_timestamp_ms=message.expiration_timestamp_ms,
    )


def _remove_token(record: RemoveDelegationTokenRecord) -> Any:
    return pb.MetadataRecord(remove_delegation_token=pb.RemoveDelegationToken(token_id=record.token_id))


def _read_remove_token(message: Any) -> RemoveDelegationTokenRecord:
    return RemoveDelegationTokenRecord(token_id=message.token_id)


SECURITY_ENCODERS: dict[type, Callable[[Any], Any]] = {
    ClientQuotaRecord: _quota,
    AccessControlEntryRecord: _acl,
    RemoveAccessControlEntryRecord: _remove_acl,
    UserScramCredentialRecord: _scram,
    RemoveUserScramCredentialRecord: _remove_scram,
    DelegationTokenRecord: _token,
    RemoveDelegationTokenRecord: _remove_token,
}

SECURITY_DECODERS: dict[str, Callable[[Any], SecurityRecord]] = {
    "client_quota": _read_quota,
    "access_control_entry": _read_acl,
    "remove_access_control_entry": _read_remove_acl,
    "user_scram_credential": _read_scram,
    "remove_user_scram_credential": _read_remove_scram,
    "delegation_token": _read_token,
    "remove_delegation_token": _read_remove_token,
}
