"""SyncGroup (key 14): hand out and receive the assignment of a generation.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, raw, string


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    """Each assignment."""

    member_id: str = string()  # The ID of the member to assign
    assignment: bytes = raw()  # The member assignment


@dataclass(slots=True)
class SyncGroupRequest(Message):
    """SyncGroup request.

    Versions 1 and 2 are the same as version 0. Starting from version 3, we add a new field called groupInstanceId
    to indicate member identity across restarts. Version 4 is the first flexible version. Starting from version 5,
    the client sends the Protocol Type and the Protocol Name to the broker (KIP-559). The broker will reject the
    request if they are inconsistent with the Type and Name known by the broker.
    """

    API_KEY = ApiKey.SYNC_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 4

    group_id: str = string()  # The unique group identifier
    generation_id: int = int32()  # The generation of the group
    member_id: str = string()  # The member ID assigned by the group
    # The unique identifier of the consumer instance provided by end user
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)  # The group protocol type
    protocol_name: str | None = string("5+", nullable="5+", default=None)  # The group protocol name
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)  # Each assignment


@dataclass(slots=True)
class SyncGroupResponse(Message):
    """SyncGroup response.

    Version 1 adds throttle time. Starting in version 2, on quota violation, brokers send out responses before
    throttling. Starting from version 3, syncGroupRequest supports a new field called groupInstanceId to indicate
    member identity across restarts. Version 4 is the first flexible version. Starting from version 5, the broker
    sends back the Protocol Type and the Protocol Name to the client (KIP-559).
    """

    API_KEY = ApiKey.SYNC_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 4

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()  # The error code, or 0 if there was no error
    protocol_type: str | None = string("5+", nullable="5+", default=None)  # The group protocol type
    protocol_name: str | None = string("5+", nullable="5+", default=None)  # The group protocol name
    assignment: bytes = raw()  # The member assignment
