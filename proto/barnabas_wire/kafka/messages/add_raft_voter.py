"""AddRaftVoter (key 80): let a controller vote in the metadata quorum (KIP-853).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string, uint16, uuid


@dataclass(slots=True)
class Listener:
    """The endpoints that can be used to communicate with the voter."""

    name: str = string()  # The name of the endpoint
    host: str = string()  # The hostname
    port: int = uint16()  # The port


@dataclass(slots=True)
class AddRaftVoterRequest(Message):
    """AddRaftVoter request.

    Version 1 adds the AckWhenCommitted field (KIP-1186).
    """

    API_KEY = ApiKey.ADD_RAFT_VOTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    cluster_id: str | None = string(nullable="0+")  # The cluster id
    timeout_ms: int = int32()  # The maximum time to wait for the request to complete before returning
    voter_id: int = int32()  # The replica id of the voter getting added to the topic partition
    voter_directory_id: Uuid = uuid()  # The directory id of the voter getting added to the topic partition
    listeners: list[Listener] = array(Listener)  # The endpoints that can be used to communicate with the voter
    # When true, return a response after the new voter set is committed. Otherwise, return after the leader writes the
    # changes locally
    ack_when_committed: bool = boolean("1+", default=True)


@dataclass(slots=True)
class AddRaftVoterResponse(Message):
    """AddRaftVoter response. Version 1 is the same as version 0."""

    API_KEY = ApiKey.ADD_RAFT_VOTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The error code, or 0 if there was no error
    error_message: str | None = string(nullable="0+", default=None)  # The error message, or null if there was no error
