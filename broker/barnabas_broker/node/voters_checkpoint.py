"""The first voters of a quorum as a file: Kafka's bootstrap checkpoint `00000000000000000000-0000000000.checkpoint`.

May touch:  its arguments.            Must not touch: files (storage.py writes them), the quorum.
Invariants: decode(encode(voters)) == voters; a checkpoint without its footer is not whole and is refused.
Read next:  storage.py.

Layout (KIP-630, KIP-853): v2 control batches of one record each, offsets from 0:
    SnapshotHeader, KRaftVersion (1), Voters, SnapshotFooter
"""

from __future__ import annotations

from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch
from barnabas_wire.kafka.schema import Message, decode, encode_request
from barnabas_wire.records.batch import Record, build_batch, crc_is_valid, iterate_batches, iterate_records
from barnabas_wire.records.control import (
    ControlRecordType,
    KRaftVersion,
    SnapshotFooter,
    SnapshotHeader,
    Voters,
    VotersEndpoint,
    VotersFeature,
    VotersVoter,
    decode_control_key,
    encode_control_key,
)

CONTROLLER_LISTENER = "CONTROLLER"
KRAFT_VERSION = 1


class DamagedCheckpoint(KafkaError):
    """The file is not a whole bootstrap checkpoint."""

    code = ErrorCode.CORRUPT_MESSAGE


def encode_voters(voters: VoterSet) -> bytes:
    """The checkpoint's bytes."""
    members = [
        VotersVoter(
            voter_id=voter.key.id,
            voter_directory_id=voter.key.directory_id,
            endpoints=[VotersEndpoint(name=CONTROLLER_LISTENER, host=voter.host, port=voter.port)],
            kraft_version_feature=VotersFeature(max_supported_version=KRAFT_VERSION),
        )
        for voter in voters
    ]
    records: list[tuple[ControlRecordType, Message]] = [
        (ControlRecordType.SNAPSHOT_HEADER, SnapshotHeader()),
        (ControlRecordType.KRAFT_VERSION, KRaftVersion(kraft_version=KRAFT_VERSION)),
        (ControlRecordType.KRAFT_VOTERS, Voters(voters=members)),
        (ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooter()),
    ]
    return b"".join(
        build_batch(
            [Record(offset, 0, encode_control_key(kind), _encode(message))],
            leader_epoch=Epoch(0),
            is_control=True,
        )
        for offset, (kind, message) in enumerate(records)
    )


def decode_voters(data: bytes) -> VoterSet:
    """The voters in a checkpoint; raises DamagedCheckpoint when it is cut, changed, or holds none."""
    found: VoterSet | None = None
    is_whole = False
    for position, header in iterate_batches(data):
        if not crc_is_valid(data, position, header):
            raise DamagedCheckpoint(f"the bootstrap checkpoint is damaged at byte {position}")
        for record in iterate_records(memoryview(data)[position : position + header.size_bytes]):
            kind = decode_control_key(record.key or b"")
            if kind == ControlRecordType.KRAFT_VOTERS:
                found = _voter_set(decode(Voters, 0, record.value or b""))
            is_whole = kind == ControlRecordType.SNAPSHOT_FOOTER
    if found is None or not is_whole:
        raise DamagedCheckpoint("the bootstrap checkpoint is cut short; restore it from another controller's directory")
    return found


def _voter_set(record: Voters) -> VoterSet:
    return VoterSet(
        [
            Voter(
                ReplicaKey(BrokerId(member.voter_id), member.voter_directory_id),
                member.endpoints[0].host,
                member.endpoints[0].port,
            )
            for member in record.voters
        ]
    )


def _encode(message: Message) -> bytes:
    out = bytearray()
    encode_request(message, 0, out)
    return bytes(out)
