"""ShareGroupHeartbeat (key 76): a member of a share group (KIP-932) is there, and gets its assignment."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.consumer_group_heartbeat import Assignment
from barnabas_wire.kafka.schema import Message, array, int16, int32, string, struct
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ShareGroupHeartbeatRequest(Message):
    """Join, stay or leave. Null fields have not changed since the last heartbeat."""

    API_KEY = ApiKey.SHARE_GROUP_HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 1, 0

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()  # 0 joins, -1 leaves
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


@dataclass(slots=True)
class ShareGroupHeartbeatResponse(Message):
    """The member's epoch and, where it changed, its assignment."""

    API_KEY = ApiKey.SHARE_GROUP_HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 1, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
