"""The control batches of the metadata log and of its snapshots: voters, kraft.version, snapshot header and footer.

May touch:  its arguments.            Must not touch: asyncio, files, the core's state.
Invariants: what is built here is read here: read(build(x)) == x; a listener of the voters is always named CONTROLLER.
Read next:  snapshot_content.py.

Kafka's layouts (KIP-595, 630, 853): a v2 batch with the control bit; key int16 0, int16 type; values in control.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset
from barnabas_wire.kafka.schema import Message, decode, encode_request
from barnabas_wire.records.batch import Buffer, CorruptBatch, Record, build_batch, iterate_records
from barnabas_wire.records.control import (
    ControlRecordType,
    KRaftVersion,
    SnapshotFooter,
    SnapshotHeader,
    Voters,
    VotersEndpoint,
    VotersFeature,
    VotersRemoved,
    VotersVoter,
    decode_control_key,
    encode_control_key,
)

CONTROLLER_LISTENER = "CONTROLLER"
KRAFT_VERSION = 1
"""The level of kraft.version that this code writes and the highest it reads: voters have directory ids."""

ControlRecord = tuple[ControlRecordType, Message]


def control_batch(records: Sequence[ControlRecord], *, base_offset: Offset, epoch: Epoch, timestamp_ms: int) -> bytes:
    """One batch of control records."""
    return build_batch(
        [
            Record(base_offset + index, timestamp_ms, encode_control_key(kind), _encode(message))
            for index, (kind, message) in enumerate(records)
        ],
        leader_epoch=epoch,
        is_control=True,
    )


def voters_records(voters: VoterSet, *, writes_version: bool = True) -> list[ControlRecord]:
    """kraft.version and the voter set, as they stand together in the log and at the head of a snapshot; a set that
    replaces another of the same version stands alone."""
    members = [
        VotersVoter(
            voter_id=voter.key.id,
            voter_directory_id=voter.key.directory_id,
            endpoints=[VotersEndpoint(name=CONTROLLER_LISTENER, host=voter.host, port=voter.port)],
            kraft_version_feature=VotersFeature(max_supported_version=KRAFT_VERSION),
        )
        for voter in voters
    ]
    removed = [VotersRemoved(voter_id=key.id, voter_directory_id=key.directory_id) for key in voters.removed]
    stated: list[ControlRecord] = [(ControlRecordType.KRAFT_VOTERS, Voters(voters=members, removed=removed))]
    if writes_version:
        stated.insert(0, (ControlRecordType.KRAFT_VERSION, KRaftVersion(kraft_version=voters.kraft_version)))
    return stated


def header_record(*, last_contained_log_timestamp_ms: int, end_offset: int) -> ControlRecord:
    """What a snapshot begins with; the time is that of the last record whose effect it holds, the offset that in its name, -1 = unsaid."""
    return ControlRecordType.SNAPSHOT_HEADER, SnapshotHeader(
        last_contained_log_timestamp=last_contained_log_timestamp_ms, end_offset=end_offset
    )


def footer_record() -> ControlRecord:
    """What a whole snapshot ends with."""
    return ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooter()


def control_records(batch: Buffer) -> Iterator[tuple[Offset, int, bytes]]:
    """(offset, type, value) of each record of a control batch. Raises CorruptBatch, MalformedMessage."""
    for record in iterate_records(batch):
        yield Offset(record.offset), decode_control_key(record.key or b""), record.value or b""


def voter_sets_in(batch: Buffer) -> Iterator[tuple[Offset, VoterSet]]:
    """The voter sets that a control batch states, each with its record's offset. Raises CorruptBatch, MalformedMessage."""
    for offset, kind, value in control_records(batch):
        if kind == ControlRecordType.KRAFT_VOTERS:
            yield offset, decode_voters(value)


def decode_voters(value: Buffer) -> VoterSet:
    """A Voters record. Raises CorruptBatch, MalformedMessage when it is none, or holds no usable set."""
    try:
        record = decode(Voters, 0, value)
        removed = [ReplicaKey(BrokerId(gone.voter_id), gone.voter_directory_id) for gone in record.removed]
        return VoterSet([_voter(member) for member in record.voters], kraft_version=KRAFT_VERSION, removed=removed)
    except (ValueError, IndexError) as error:
        raise CorruptBatch(f"a Voters record states no voter set: {error}") from None


def decode_header(value: Buffer) -> SnapshotHeader:
    """A SnapshotHeader record. Raises MalformedMessage."""
    header: SnapshotHeader = decode(SnapshotHeader, 0, value)
    return header


def decode_kraft_version(value: Buffer) -> int:
    """The level in a KRaftVersion record."""
    return int(decode(KRaftVersion, 0, value).kraft_version)


def _voter(member: VotersVoter) -> Voter:
    key = ReplicaKey(BrokerId(member.voter_id), member.voter_directory_id)
    endpoint = next((each for each in member.endpoints if each.name == CONTROLLER_LISTENER), member.endpoints[0])
    return Voter(key, endpoint.host, endpoint.port)


def _encode(message: Message) -> bytes:
    out = bytearray()
    encode_request(message, 0, out)
    return bytes(out)
