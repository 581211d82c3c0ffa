"""CreateAcls (key 30): make access control entries (KIP-140)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class AclCreation:
    """An entry to make; types and operations are numbered as in Kafka's AclOperation and ResourceType."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)  # 3: literal, 4: prefixed
    principal: str = string()  # such as User:anna
    host: str = string()  # *: any
    operation: int = int8()
    permission_type: int = int8()  # 2: deny, 3: allow


@dataclass(slots=True)
class CreateAclsRequest(Message):
    """Ask for new entries. v3 knows users as a resource (KIP-373)."""

    API_KEY = ApiKey.CREATE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    creations: list[AclCreation] = array(AclCreation)


@dataclass(slots=True)
class AclCreationResult:
    """Whether one entry was made."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class CreateAclsResponse(Message):
    """What became of each entry."""

    API_KEY = ApiKey.CREATE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)  # ordered as the creations
