"""DescribeGroups (key 15): state and members of classic groups.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, raw, string


@dataclass(slots=True)
class DescribeGroupsRequest(Message):
    """DescribeGroups request.

    Versions 1 and 2 are the same as version 0. Starting in version 3, authorized operations can be requested.
    Starting in version 4, the response will include group.instance.id info for members. Version 5 is the first
    flexible version. Version 6 returns error code GROUP_ID_NOT_FOUND if the group ID is not found (KIP-1043).
    """

    API_KEY = ApiKey.DESCRIBE_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 5

    groups: list[str] = array(string)  # The names of the groups to describe
    include_authorized_operations: bool = boolean("3+")  # Whether to include authorized operations


@dataclass(slots=True)
class DescribedGroupMember:
    """The group members."""

    member_id: str = string()  # The member id
    # The unique identifier of the consumer instance provided by end user
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string()  # The client ID used in the member's latest join group request
    client_host: str = string()  # The client host
    member_metadata: bytes = raw()  # The metadata corresponding to the current group protocol in use
    member_assignment: bytes = raw()  # The current assignment provided by the group leader


@dataclass(slots=True)
class DescribedGroup:
    """Each described group."""

    error_code: int = int16()  # The describe error, or 0 if there was no error
    # The describe error message, or null if there was no error
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()  # The group ID string
    group_state: str = string()  # The group state string, or the empty string
    protocol_type: str = string()  # The group protocol type, or the empty string
    protocol_data: str = string()  # The group protocol data, or the empty string
    members: list[DescribedGroupMember] = array(DescribedGroupMember)  # The group members
    # 32-bit bitfield to represent authorized operations for this group
    authorized_operations: int = int32("3+", default=-2147483648)


@dataclass(slots=True)
class DescribeGroupsResponse(Message):
    """DescribeGroups response.

    Version 1 added throttle time. Starting in version 2, on quota violation, brokers send out responses before
    throttling. Starting in version 3, brokers can send authorized operations. Starting in version 4, the response
    will optionally include group.instance.id info for members. Version 5 is the first flexible version. Version 6
    returns error code GROUP_ID_NOT_FOUND if the group ID is not found (KIP-1043).
    """

    API_KEY = ApiKey.DESCRIBE_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 5

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)  # Each described group
