"""RemoveRaftVoter (key 81): take a controller's vote in the metadata quorum (KIP-853).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, string, uuid


@dataclass(slots=True)
class RemoveRaftVoterRequest(Message):
    """RemoveRaftVoter request."""

    API_KEY = ApiKey.REMOVE_RAFT_VOTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    cluster_id: str | None = string(nullable="0+")  # The cluster id of the request
    voter_id: int = int32()  # The replica id of the voter getting removed from the topic partition
    voter_directory_id: Uuid = uuid()  # The directory id of the voter getting removed from the topic partition


@dataclass(slots=True)
class RemoveRaftVoterResponse(Message):
    """RemoveRaftVoter response."""

    API_KEY = ApiKey.REMOVE_RAFT_VOTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The error code, or 0 if there was no error
    error_message: str | None = string(nullable="0+", default=None)  # The error message, or null if there was no error
