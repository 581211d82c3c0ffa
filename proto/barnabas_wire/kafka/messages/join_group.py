"""JoinGroup (key 11): enter a classic group, and wait for its next generation."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, raw, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    """An assignor that the member can work with."""

    name: str = string()
    metadata: bytes = raw()  # for the group's leader; a consumer puts its subscription here


@dataclass(slots=True)
class JoinGroupRequest(Message):
    """Join or rejoin a group. From v4 on a dynamic newcomer is first only given an id, with which it has to come again.

    v5 brings static members, v8 the reason (KIP-800).
    """

    API_KEY = ApiKey.JOIN_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 9, 6

    group_id: str = string()
    session_timeout_ms: int = int32()  # silent for longer, a member is dropped
    rebalance_timeout_ms: int = int32("1+", default=-1)  # how long members have to come back; v0: as the session
    member_id: str = string()  # given out by the coordinator; empty the first time
    group_instance_id: str | None = string("5+", nullable="5+", default=None)  # set by the user, outlives restarts
    protocol_type: str = string()  # "consumer" for consumers; all members share it
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)


@dataclass(slots=True)
class JoinGroupResponseMember:
    """A member as the leader gets to see it."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = raw()  # what it sent for the chosen protocol


@dataclass(slots=True)
class JoinGroupResponse(Message):
    """The generation entered. Over quota, v3 answers first and throttles after; v7 names the type (KIP-559)."""

    API_KEY = ApiKey.JOIN_GROUP
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 9, 6

    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")  # the coordinator's choice
    leader: str = string()  # a member id
    skip_assignment: bool = boolean("9+")  # for the leader: it is not to compute an assignment
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)  # empty but for the leader
