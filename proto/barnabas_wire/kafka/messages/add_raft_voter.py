"""AddRaftVoter (key 80): let a controller vote in the metadata quorum (KIP-853)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string, uint16, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class Listener:
    """Where the new voter can be reached."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class AddRaftVoterRequest(Message):
    """Ask the quorum's leader to take in one more voter."""

    API_KEY = ApiKey.ADD_RAFT_VOTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    cluster_id: str | None = string(nullable="0+")  # null: not checked
    timeout_ms: int = int32()
    voter_id: int = int32()  # its node id
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    # True: answer once the new set of voters is committed, False: as soon as it is in the leader's own log (KIP-1186)
    ack_when_committed: bool = boolean("1+", default=True)


@dataclass(slots=True)
class AddRaftVoterResponse(Message):
    """Whether the voter was taken in."""

    API_KEY = ApiKey.ADD_RAFT_VOTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
