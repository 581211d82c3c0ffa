"""ListGroups (key 16): groups that this broker coordinates.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string


@dataclass(slots=True)
class ListGroupsRequest(Message):
    """ListGroups request.

    Version 1 and 2 are the same as version 0. Version 3 is the first flexible version. Version 4 adds the
    StatesFilter field (KIP-518). Version 5 adds the TypesFilter field (KIP-848).
    """

    API_KEY = ApiKey.LIST_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    # The states of the groups we want to list. If empty, all groups are returned with their state
    states_filter: list[str] = array(string, "4+")
    # The types of the groups we want to list. If empty, all groups are returned with their type
    types_filter: list[str] = array(string, "5+")


@dataclass(slots=True)
class ListedGroup:
    """Each group in the response."""

    group_id: str = string()  # The group ID
    protocol_type: str = string()  # The group protocol type
    group_state: str = string("4+")  # The group state name
    group_type: str = string("5+")  # The group type name


@dataclass(slots=True)
class ListGroupsResponse(Message):
    """ListGroups response.

    Version 1 adds the throttle time. Starting in version 2, on quota violation, brokers send out responses before
    throttling. Version 3 is the first flexible version. Version 4 adds the GroupState field (KIP-518). Version 5
    adds the GroupType field (KIP-848).
    """

    API_KEY = ApiKey.LIST_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()  # The error code, or 0 if there was no error
    groups: list[ListedGroup] = array(ListedGroup)  # Each group in the response
