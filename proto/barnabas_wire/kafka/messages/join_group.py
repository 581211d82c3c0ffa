"""JoinGroup (key 11): enter a classic group, and wait for its next generation.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, raw, string


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    """The list of protocols that the member supports."""

    name: str = string()  # The protocol name
    metadata: bytes = raw()  # The protocol metadata


@dataclass(slots=True)
class JoinGroupRequest(Message):
    """JoinGroup request.

    Version 1 adds RebalanceTimeoutMs. Version 2 and 3 are the same as version 1. Starting from version 4, the
    client needs to issue a second request to join group Starting from version 5, we add a new field called
    groupInstanceId to indicate member identity across restarts. with assigned id. Version 6 is the first flexible
    version. Version 7 is the same as version 6. Version 8 adds the Reason field (KIP-800). Version 9 is the same as
    version 8.
    """

    API_KEY = ApiKey.JOIN_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 9, 6

    group_id: str = string()  # The group identifier
    # The coordinator considers the consumer dead if it receives no heartbeat after this timeout in milliseconds
    session_timeout_ms: int = int32()
    # The maximum time in milliseconds that the coordinator will wait for each member to rejoin when rebalancing the
    # group
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()  # The member id assigned by the group coordinator
    # The unique identifier of the consumer instance provided by end user
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    # The unique name the for class of protocols implemented by the group we want to join
    protocol_type: str = string()
    # The list of protocols that the member supports
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)  # The reason why the member (re-)joins the group


@dataclass(slots=True)
class JoinGroupResponseMember:
    """The group members."""

    member_id: str = string()  # The group member ID
    # The unique identifier of the consumer instance provided by end user
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = raw()  # The group member metadata


@dataclass(slots=True)
class JoinGroupResponse(Message):
    """JoinGroup response.

    Version 1 is the same as version 0. Version 2 adds throttle time. Starting in version 3, on quota violation,
    brokers send out responses before throttling. Starting in version 4, the client needs to issue a second request
    to join group with assigned id. Version 5 is bumped to apply group.instance.id to identify member across
    restarts. Version 6 is the first flexible version. Starting from version 7, the broker sends back the Protocol
    Type to the client (KIP-559). Version 8 is the same as version 7. Version 9 adds the SkipAssignment field.
    """

    API_KEY = ApiKey.JOIN_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 9, 6

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()  # The error code, or 0 if there was no error
    generation_id: int = int32(default=-1)  # The generation ID of the group
    protocol_type: str | None = string("7+", nullable="7+", default=None)  # The group protocol name
    protocol_name: str | None = string(nullable="7+")  # The group protocol selected by the coordinator
    leader: str = string()  # The leader of the group
    skip_assignment: bool = boolean("9+")  # True if the leader must skip running the assignment
    member_id: str = string()  # The member ID assigned by the group coordinator
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)  # The group members
