"""SyncGroup (key 14): hand out and receive the assignment of a generation."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, raw, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    """What the leader gives to one member."""

    member_id: str = string()
    assignment: bytes = raw()  # for the broker just bytes; the protocol says how to read them


@dataclass(slots=True)
class SyncGroupRequest(Message):
    """Wait for one's own share; the leader brings everyone's. v3 knows static members (KIP-345)."""

    API_KEY = ApiKey.SYNC_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 4

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()  # the one JoinGroup gave out
    group_instance_id: str | None = string("3+", nullable="3+", default=None)  # set by static members only
    # Refused when the group has others (KIP-559)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)  # empty from all but the leader


@dataclass(slots=True)
class SyncGroupResponse(Message):
    """The asking member's share; from v5 on with the group's protocol (KIP-559)."""

    API_KEY = ApiKey.SYNC_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 4

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = raw()
