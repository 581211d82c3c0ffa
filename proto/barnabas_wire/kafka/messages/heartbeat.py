"""Heartbeat (key 12): a group member is alive."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class HeartbeatRequest(Message):
    """A member of a classic group says that it is still there."""

    API_KEY = ApiKey.HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 4

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    # Chosen by the user, so that a restarted consumer is known as the same member
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@dataclass(slots=True)
class HeartbeatResponse(Message):
    """Whether the member may carry on. Before v2 a throttled answer is sent late, from then on at once."""

    API_KEY = ApiKey.HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 4

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
