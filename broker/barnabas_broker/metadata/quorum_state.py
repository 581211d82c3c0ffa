"""The quorum-state file: the hard state of one replica, as Kafka writes it.

May touch:  its arguments.          Must not touch: the Disk, the log.
Invariants: what cannot be read is refused, never taken for the initial state: a replica that forgets its vote votes twice.
Read next:  metadata_log.py, which reads and replaces the file; barnabas_quorum/raft/messages.py, HardState.

JSON, Kafka's version 1: {"leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version": 1}; -1 and the zero uuid
stand for none. Ours besides: "hasBegun", true once every initial voter was found blank (barnabas_quorum/raft/inquiry.py); what does not
know it leaves it out, and a log that is still empty then asks once more.
"""

from __future__ import annotations

import json

from barnabas_quorum.raft.messages import HardState
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Epoch, Uuid

QUORUM_STATE_FILE = "quorum-state"
DATA_VERSION = 1


class DamagedQuorumState(KafkaError):
    """The quorum-state file cannot be read. Without it this replica could vote twice in one epoch."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


def encode_hard_state(state: HardState) -> bytes:
    """The quorum-state file's content."""
    content = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": -1 if state.voted is None else state.voted.id,
        "votedDirectoryId": str(ZERO_UUID if state.voted is None else state.voted.directory_id),
        "data_version": DATA_VERSION,
    }
    if state.has_begun:
        content["hasBegun"] = True
    return json.dumps(content).encode()


def decode_hard_state(data: bytes, *, path: str) -> HardState:
    """What the file says. Raises DamagedQuorumState, naming `path` and what to do."""
    try:
        content = json.loads(data)
        if content["data_version"] != DATA_VERSION:
            raise ValueError(f"data_version {content['data_version']} is not {DATA_VERSION}")
        voted_id = int(content["votedId"])
        voted = None if voted_id < 0 else ReplicaKey(BrokerId(voted_id), Uuid.parse(content["votedDirectoryId"]))
        return HardState(
            Epoch(int(content["leaderEpoch"])),
            BrokerId(int(content["leaderId"])),
            voted,
            content.get("hasBegun") is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedQuorumState(
            f"{path} cannot be read ({error}). Do not delete it alone: this replica could vote twice. Restore it, or give "
            "the node a new, freshly formatted metadata directory and let the other controllers outvote it"
        ) from None
