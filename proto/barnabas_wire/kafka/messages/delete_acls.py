"""DeleteAcls (key 31): delete the access control entries that filters mean (KIP-140)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DeleteAclsFilter:
    """One filter; an entry goes when every field fits. A null name, principal or host fits all."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+", default=None)
    pattern_type_filter: int = int8("1+", default=3)  # 3: literal
    principal_filter: str | None = string(nullable="0+", default=None)
    host_filter: str | None = string(nullable="0+", default=None)
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True)
class DeleteAclsRequest(Message):
    """Delete whatever the filters find. From v3 a resource may be a user (KIP-373)."""

    API_KEY = ApiKey.DELETE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@dataclass(slots=True)
class DeleteAclsMatchingAcl:
    """An entry that a filter found, and whether it could be deleted."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)  # 3: literal
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True)
class DeleteAclsFilterResult:
    """What one filter found, or why it could not be applied."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@dataclass(slots=True)
class DeleteAclsResponse(Message):
    """The entries found, filter by filter. v3 can name users as resources (KIP-373)."""

    API_KEY = ApiKey.DELETE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)  # same order as the request's filters
