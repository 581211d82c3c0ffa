"""LeaveGroup (key 13): members leave a classic group."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class MemberIdentity:
    """One who leaves, or is made to."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)  # null: not a static member
    reason: str | None = string("5+", nullable="5+", default=None)  # for people to read (KIP-800)


@dataclass(slots=True)
class LeaveGroupRequest(Message):
    """Ask to leave a group; up to v2 for one member, from v3 on for many, static ones included."""

    API_KEY = ApiKey.LEAVE_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 4

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@dataclass(slots=True)
class MemberResponse:
    """Whether one member is out, under the ids it was named by."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@dataclass(slots=True)
class LeaveGroupResponse(Message):
    """The outcome, from v3 on by member."""

    API_KEY = ApiKey.LEAVE_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 4

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
