"""CreateAcls (key 30): make access control entries (KIP-140).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string


@dataclass(slots=True)
class AclCreation:
    """An ACL that we want to create."""

    resource_type: int = int8()  # The type of the resource
    resource_name: str = string()  # The resource name for the ACL
    resource_pattern_type: int = int8("1+", default=3)  # The pattern type for the ACL
    principal: str = string()  # The ACL principal
    host: str = string()  # The ACL host
    operation: int = int8()  # The ACL operation
    permission_type: int = int8()  # The ACL permission type


@dataclass(slots=True)
class CreateAclsRequest(Message):
    """CreateAcls request.

    Version 1 adds resource pattern types, version 2 is the first flexible version, version 3 adds the user resource type (KIP-373).
    """

    API_KEY = ApiKey.CREATE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    creations: list[AclCreation] = array(AclCreation)  # The ACLs that we want to create


@dataclass(slots=True)
class AclCreationResult:
    """The result for one ACL creation."""

    error_code: int = int16()  # The error code, or 0 if there was no error
    # The error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class CreateAclsResponse(Message):
    """CreateAcls response.

    Version 1 adds resource pattern types, version 2 is the first flexible version, version 3 adds the user resource type (KIP-373).
    """

    API_KEY = ApiKey.CREATE_ACLS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 3, 2

    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)  # The results for each ACL creation, in order
