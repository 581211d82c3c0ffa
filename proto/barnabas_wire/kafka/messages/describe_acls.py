"""DescribeAcls (key 29): which access control entries a filter means (KIP-140).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string


@dataclass(slots=True)
class DescribeAclsRequest(Message):
    """DescribeAcls request.

    Version 1 adds resource pattern types, version 2 is the first flexible version, version 3 adds the user resource type (KIP-373).
    """

    API_KEY = ApiKey.DESCRIBE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

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
class AclDescription:
    """One entry of a resource."""

    principal: str = string()  # The ACL principal
    host: str = string()  # The ACL host
    operation: int = int8()  # The ACL operation
    permission_type: int = int8()  # The ACL permission type


@dataclass(slots=True)
class DescribeAclsResource:
    """Each resource that is referenced in an ACL."""

    resource_type: int = int8()  # The resource type
    resource_name: str = string()  # The resource name
    pattern_type: int = int8("1+", default=3)  # The resource pattern type
    acls: list[AclDescription] = array(AclDescription)  # The ACLs


@dataclass(slots=True)
class DescribeAclsResponse(Message):
    """DescribeAcls response.

    Version 1 adds resource pattern types, version 2 is the first flexible version, version 3 adds the user resource type (KIP-373).
    """

    API_KEY = ApiKey.DESCRIBE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The error code, or 0 if there was no error
    # The error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)  # Each resource that is referenced in an ACL
