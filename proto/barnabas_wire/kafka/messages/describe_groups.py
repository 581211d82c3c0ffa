"""DescribeGroups (key 15): state and members of classic groups."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, raw, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DescribeGroupsRequest(Message):
    """Ask about classic groups by id."""

    API_KEY = ApiKey.DESCRIBE_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 5

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


@dataclass(slots=True)
class DescribedGroupMember:
    """One member, with what it joined with and what it was given."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None)  # null: not a static member
    client_id: str = string()  # as of its last JoinGroup
    client_host: str = string()
    # Opaque to the broker: what the member sent for the protocol in force, and what the group's leader gave it
    member_metadata: bytes = raw()
    member_assignment: bytes = raw()


@dataclass(slots=True)
class DescribedGroup:
    """What the coordinator knows about one group."""

    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    # Each of the three may be empty
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()  # the protocol in force, for consumers the assignor's name
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)  # bit n: ACL operation n; the default: not asked for


@dataclass(slots=True)
class DescribeGroupsResponse(Message):
    """The groups asked about; from v6 an unknown one is GROUP_ID_NOT_FOUND (KIP-1043).

    From v2 a broker over quota answers at once and throttles afterwards.
    """

    API_KEY = ApiKey.DESCRIBE_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 5

    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)
