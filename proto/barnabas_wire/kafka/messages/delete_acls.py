"""DeleteAcls (key 31): delete the access control entries that filters mean (KIP-140).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string


@dataclass(slots=True)
class DeleteAclsFilter:
    """The filter to use when deleting ACLs."""

    resource_type_filter: int = int8()  # The resource type
    # The resource name, or null to match any resource name
    resource_name_filter: str | None = string(nullable="0+", default=None)
    pattern_type_filter: int = int8("1+", default=3)  # The resource pattern to match
    # The principal to match, or null to match any principal
    principal_filter: str | None = string(nullable="0+", default=None)
    host_filter: str | None = string(nullable="0+", default=None)  # The host to match, or null to match any host
    operation: int = int8()  # The operation to match
    permission_type: int = int8()  # The permission type to match


@dataclass(slots=True)
class DeleteAclsRequest(Message):
    """DeleteAcls request.

    Version 1 adds resource pattern types, version 2 is the first flexible version, version 3 adds the user resource type (KIP-373).
    """

    API_KEY = ApiKey.DELETE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)  # The filters to use when deleting ACLs


@dataclass(slots=True)
class DeleteAclsMatchingAcl:
    """An ACL which matched the filter."""

    error_code: int = int16()  # The error code, or 0 if there was no error
    # The error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()  # The ACL resource type
    resource_name: str = string()  # The ACL resource name
    pattern_type: int = int8("1+", default=3)  # The ACL resource pattern type
    principal: str = string()  # The ACL principal
    host: str = string()  # The ACL host
    operation: int = int8()  # The ACL operation
    permission_type: int = int8()  # The ACL permission type


@dataclass(slots=True)
class DeleteAclsFilterResult:
    """The result for one filter."""

    error_code: int = int16()  # The error code, or 0 if there was no error
    # The error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)  # The ACLs which matched this filter


@dataclass(slots=True)
class DeleteAclsResponse(Message):
    """DeleteAcls response.

    Version 1 adds resource pattern types, version 2 is the first flexible version, version 3 adds the user resource type (KIP-373).
    """

    API_KEY = ApiKey.DELETE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
    # The results for each filter, in order
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
