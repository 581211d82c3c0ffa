"""DeleteGroups (key 42): delete empty groups.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string


@dataclass(slots=True)
class DeleteGroupsRequest(Message):
    """DeleteGroups request.

    Version 1 is the same as version 0. Version 2 is the first flexible version.
    """

    API_KEY = ApiKey.DELETE_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    groups_names: list[str] = array(string)  # The group names to delete


@dataclass(slots=True)
class DeletableGroupResult:
    """The deletion results."""

    group_id: str = string()  # The group id
    error_code: int = int16()  # The deletion error, or 0 if the deletion succeeded


@dataclass(slots=True)
class DeleteGroupsResponse(Message):
    """DeleteGroups response.

    Starting in version 1, on quota violation, brokers send out responses before throttling. Version 2 is the first
    flexible version.
    """

    API_KEY = ApiKey.DELETE_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)  # The deletion results
