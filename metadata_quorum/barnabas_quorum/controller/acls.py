"""ACLs: create and delete. Image in, records out.

May touch:  image, features.           Must not touch: the caller's identity, everything that waits.
Invariants: an entry exists once, whatever its id; an id is never reused.
Read next:  image/acls.py.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from barnabas_quorum.controller.decisions import RECORDS_PER_BATCH_MAX, DecisionContext, decides
from barnabas_quorum.controller.features import require_metadata_version
from barnabas_quorum.controller.requests_security import (
    CreateAcls,
    CreateAclsReply,
    DeleteAcls,
    DeleteAclsReply,
    DeletedAcls,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.acls import AccessControlEntry, normal_host, why_in_vain
from barnabas_quorum.image.features import METADATA_VERSION_SECURITY
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import Record
from barnabas_quorum.records_security import (
    AccessControlEntryRecord,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    RemoveAccessControlEntryRecord,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid

CLUSTER_RESOURCE_NAME = "kafka-cluster"


@decides(CreateAcls)
def create_acls(
    image: MetadataImage, request: CreateAcls, context: DecisionContext
) -> ControllerResult[CreateAclsReply]:
    """Each entry succeeds or fails on its own (INVALID_REQUEST); an existing entry stays as it is. Raises POLICY_VIOLATION,
    UNSUPPORTED_VERSION."""
    require_metadata_version(image, METADATA_VERSION_SECURITY, "ACLs")
    _check_count(len(request.entries))
    taken = set(image.acls.entries)
    present = set(image.acls.entries.values())
    records: list[Record] = []
    errors: list[KafkaError | None] = []
    for entry in request.entries:
        try:
            entry = _checked(entry)
        except KafkaError as refusal:
            errors.append(refusal)
            continue
        errors.append(None)
        if entry in present:
            continue
        present.add(entry)
        acl_id = _new_id(taken, context.random)
        records.append(
            AccessControlEntryRecord(
                id=acl_id,
                resource_type=entry.resource_type,
                resource_name=entry.resource_name,
                pattern_type=entry.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission=entry.permission,
            )
        )
    return ControllerResult(records=records, response=CreateAclsReply(errors=tuple(errors)))


@decides(DeleteAcls)
def delete_acls(
    image: MetadataImage, request: DeleteAcls, context: DecisionContext
) -> ControllerResult[DeleteAclsReply]:
    """Delete the entries that each filter matches. An entry that two filters match counts for the first. Raises
    POLICY_VIOLATION."""
    gone: set[Uuid] = set()
    records: list[Record] = []
    results: list[DeletedAcls] = []
    for wanted in request.filters:
        found = [(acl_id, entry) for acl_id, entry in image.acls.find(wanted) if acl_id not in gone]
        gone.update(acl_id for acl_id, _ in found)
        records += [RemoveAccessControlEntryRecord(id=acl_id) for acl_id, _ in found]
        results.append(DeletedAcls(entries=tuple(entry for _, entry in found)))
    _check_count(len(records))
    return ControllerResult(records=records, response=DeleteAclsReply(results=tuple(results)))


def _check_count(count: int) -> None:
    if count > RECORDS_PER_BATCH_MAX:
        raise KafkaError.of(
            ErrorCode.POLICY_VIOLATION,
            f"one request may create or delete at most {RECORDS_PER_BATCH_MAX} ACLs, not {count}; split it into several",
        )


def _new_id(taken: set[Uuid], random: Random) -> Uuid:
    while True:
        acl_id = Uuid(random.randbytes(16))
        if acl_id not in taken:
            taken.add(acl_id)
            return acl_id


def _checked(entry: AccessControlEntry) -> AccessControlEntry:
    """The entry, its host in normal form. Raises INVALID_REQUEST for one that is none, and for one that would match nobody: a DENY
    of that kind fails open."""

    def refuse(reason: str) -> KafkaError:
        return KafkaError.of(ErrorCode.INVALID_REQUEST, f"an ACL {reason}")

    if entry.resource_type is AclResourceType.ANY:
        raise refuse("needs one type of resource; ANY is for filters")
    if entry.pattern_type not in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
        raise refuse(f"needs pattern type literal or prefixed; {entry.pattern_type.name} is for filters")
    if entry.operation is AclOperation.ANY or entry.permission is AclPermission.ANY:
        raise refuse("needs one operation and allow or deny; ANY is for filters")
    if not entry.resource_name:
        raise refuse("needs a resource name; * with pattern type literal means all")
    is_cluster = entry.resource_type is AclResourceType.CLUSTER
    if is_cluster and entry.resource_name != CLUSTER_RESOURCE_NAME:
        raise refuse(f"for the cluster must name {CLUSTER_RESOURCE_NAME}, not {entry.resource_name!r}")
    if not entry.host:
        raise refuse("needs a host address; * means all hosts")
    reason = why_in_vain(entry)
    if reason is not None:
        raise refuse(reason)
    return replace(entry, host=normal_host(entry.host))
