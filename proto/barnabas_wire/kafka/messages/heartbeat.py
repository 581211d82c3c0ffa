"""Heartbeat (key 12): a group member is alive.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, string


@dataclass(slots=True)
class HeartbeatRequest(Message):
    """Heartbeat request.

    Version 1 and version 2 are the same as version 0. Starting from version 3, we add a new field called
    groupInstanceId to indicate member identity across restarts. Version 4 is the first flexible version.
    """

    API_KEY = ApiKey.HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 4

    group_id: str = string()  # The group id
    generation_id: int = int32()  # The generation of the group
    member_id: str = string()  # The member ID
    # The unique identifier of the consumer instance provided by end user
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@dataclass(slots=True)
class HeartbeatResponse(Message):
    """Heartbeat response.

    Version 1 adds throttle time. Starting in version 2, on quota violation, brokers send out responses before
    throttling. Starting from version 3, heartbeatRequest supports a new field called groupInstanceId to indicate
    member identity across restarts. Version 4 is the first flexible version.
    """

    API_KEY = ApiKey.HEARTBEAT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 4

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()  # The error code, or 0 if there was no error
