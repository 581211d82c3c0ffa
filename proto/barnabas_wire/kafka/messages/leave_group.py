"""LeaveGroup (key 13): members leave a classic group.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string


@dataclass(slots=True)
class MemberIdentity:
    """List of leaving member identities."""

    member_id: str = string("3+")  # The member ID to remove from the group
    # The group instance ID to remove from the group
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None)  # The reason why the member left the group


@dataclass(slots=True)
class LeaveGroupRequest(Message):
    """LeaveGroup request.

    Version 1 and 2 are the same as version 0. Version 3 defines batch processing scheme with group.instance.id +
    member.id for identity Version 4 is the first flexible version. Version 5 adds the Reason field (KIP-800).
    """

    API_KEY = ApiKey.LEAVE_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 4

    group_id: str = string()  # The ID of the group to leave
    member_id: str = string("0-2")  # The member ID to remove from the group
    members: list[MemberIdentity] = array(MemberIdentity, "3+")  # List of leaving member identities


@dataclass(slots=True)
class MemberResponse:
    """List of leaving member responses."""

    member_id: str = string("3+")  # The member ID to remove from the group
    group_instance_id: str | None = string("3+", nullable="3+")  # The group instance ID to remove from the group
    error_code: int = int16("3+")  # The error code, or 0 if there was no error


@dataclass(slots=True)
class LeaveGroupResponse(Message):
    """LeaveGroup response.

    Version 1 adds the throttle time. Starting in version 2, on quota violation, brokers send out responses before
    throttling. Starting in version 3, we will make leave group request into batch mode and add group.instance.id.
    Version 4 is the first flexible version. Version 5 is the same as version 4.
    """

    API_KEY = ApiKey.LEAVE_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 4

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()  # The error code, or 0 if there was no error
    members: list[MemberResponse] = array(MemberResponse, "3+")  # List of leaving member responses
