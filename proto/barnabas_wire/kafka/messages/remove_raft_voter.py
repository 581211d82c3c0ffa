"""RemoveRaftVoter (key 81): take a controller's vote in the metadata quorum (KIP-853)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class RemoveRaftVoterRequest(Message):
    """Ask to take a voter out. Its node id and directory id name it together."""

    API_KEY = ApiKey.REMOVE_RAFT_VOTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    cluster_id: str | None = string(nullable="0+")  # null: not checked
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


@dataclass(slots=True)
class RemoveRaftVoterResponse(Message):
    """Whether the vote was taken."""

    API_KEY = ApiKey.REMOVE_RAFT_VOTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
