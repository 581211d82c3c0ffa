"""DescribeAcls v1-3, CreateAcls v1-3, DeleteAcls v1-3 (KIP-140).

May touch:  the image's ACLs, the controller client.    Must not touch: what an ACL permits.
Invariants: every entry and every filter of a request is answered once; changes are decided by the controller.
Read next:  metadata_quorum/image/acls.py, which says what a filter means.

Behaviour: reads are answered from this broker's image. Differences from Kafka: ACLs are kept without an authorizer, too, so that a
cluster can be prepared before authorizer.class.name is set; Kafka answers SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.controller.requests_security import (
    CreateAcls,
    DeleteAcls,
)
from barnabas_quorum.image.acls import AccessControlEntry, AclFilter
from barnabas_quorum.records_security import AclOperation, AclPatternType, AclPermission, AclResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas_wire.kafka.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas_wire.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@handles(ApiKey.DESCRIBE_ACLS, versions=(1, 3))
def describe_acls(
    services: BrokerServices, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """The entries that the filter means, by resource."""
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for _, entry in services.metadata.image.acls.find(_filter(request)):
        key = (entry.resource_type, entry.resource_name, entry.pattern_type)
        resource = resources.setdefault(
            key,
            DescribeAclsResource(
                resource_type=entry.resource_type,
                resource_name=entry.resource_name,
                pattern_type=entry.pattern_type,
            ),
        )
        resource.acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


@handles(
    ApiKey.CREATE_ACLS,
    versions=(1, 3),
    on_error=lambda request, error: CreateAclsResponse(
        results=[AclCreationResult(**error_fields(error)) for _ in request.creations]
    ),
)
async def create_acls(
    services: BrokerServices, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    """Make entries; each succeeds or fails alone."""
    outcomes: list[KafkaError | None] = []
    wanted: list[AccessControlEntry] = []
    places: list[int] = []
    for index, creation in enumerate(request.creations):
        try:
            wanted.append(_entry(creation))
        except KafkaError as refusal:
            outcomes.append(refusal)
            continue
        places.append(index)
        outcomes.append(None)
    if wanted:
        reply = await services.ask(context, CreateAcls(entries=tuple(wanted)))
        for index, error in zip(places, reply.errors, strict=True):
            outcomes[index] = error
    return CreateAclsResponse(results=[AclCreationResult(**error_fields(error)) for error in outcomes])


@handles(
    ApiKey.DELETE_ACLS,
    versions=(1, 3),
    on_error=lambda request, error: DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(**error_fields(error)) for _ in request.filters]
    ),
)
async def delete_acls(
    services: BrokerServices, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Delete what each filter means."""
    filters = tuple(_filter(wanted) for wanted in request.filters)
    reply = await services.ask(context, DeleteAcls(filters=filters))
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                **error_fields(result.error),
                matching_acls=[
                    DeleteAclsMatchingAcl(
                        resource_type=entry.resource_type,
                        resource_name=entry.resource_name,
                        pattern_type=entry.pattern_type,
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission,
                    )
                    for entry in result.entries
                ],
            )
            for result in reply.results
        ]
    )


def _entry(creation: AclCreation) -> AccessControlEntry:
    try:
        return AccessControlEntry(
            resource_type=AclResourceType(creation.resource_type),
            resource_name=creation.resource_name,
            pattern_type=AclPatternType(creation.resource_pattern_type),
            principal=creation.principal,
            host=creation.host,
            operation=AclOperation(creation.operation),
            permission=AclPermission(creation.permission_type),
        )
    except ValueError as error:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"an ACL that this version does not know: {error}") from None


def _filter(wanted: Any) -> AclFilter:
    """The filter of a DescribeAcls request, or one filter of DeleteAcls, whose fields have the same names."""
    try:
        return AclFilter(
            resource_type=AclResourceType(wanted.resource_type_filter),
            resource_name=wanted.resource_name_filter,
            pattern_type=AclPatternType(wanted.pattern_type_filter),
            principal=wanted.principal_filter,
            host=wanted.host_filter,
            operation=AclOperation(wanted.operation),
            permission=AclPermission(wanted.permission_type),
        )
    except ValueError as error:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"an ACL filter that this version does not know: {error}"
        ) from None
