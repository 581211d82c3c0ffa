"""DescribeAcls (key 29): which access control entries a filter means (KIP-140)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DescribeAclsRequest(Message):
    """The filter: null, or 1 in a number, takes anything. v3 lets users be resources (KIP-373)."""

    API_KEY = ApiKey.DESCRIBE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+", default=None)
    # 2: whatever holds for the resource of that name, 3: literal, 4: prefixed
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+", default=None)
    host_filter: str | None = string(nullable="0+", default=None)
    operation: int = int8()
    permission_type: int = int8()  # 2: deny, 3: allow


@dataclass(slots=True)
class AclDescription:
    """One entry of a resource."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True)
class DescribeAclsResource:
    """A resource, or a prefix of names, and its entries."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription)


@dataclass(slots=True)
class DescribeAclsResponse(Message):
    """The entries found, by resource. v3 may show users among the resources (KIP-373)."""

    API_KEY = ApiKey.DESCRIBE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
