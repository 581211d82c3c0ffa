"""ListGroups (key 16): groups that this broker coordinates."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ListGroupsRequest(Message):
    """Ask a broker for its groups, from v4 on by state (KIP-518), from v5 on by type (KIP-848)."""

    API_KEY = ApiKey.LIST_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    # empty: any
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


@dataclass(slots=True)
class ListedGroup:
    """A group, with what kind it is and how it stands."""

    group_id: str = string()
    protocol_type: str = string()  # "consumer" for groups of consumers
    group_state: str = string("4+")
    group_type: str = string("5+")  # such as "classic" or "consumer"


@dataclass(slots=True)
class ListGroupsResponse(Message):
    """The groups that passed both filters. From v2 on a broker over quota answers first and throttles after."""

    API_KEY = ApiKey.LIST_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
