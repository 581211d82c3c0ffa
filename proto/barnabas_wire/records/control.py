"""Control records: the records of a control batch, which steer readers and are never shown to users.

May touch:  its arguments.            Must not touch: sockets, files, clock.
Invariants: a type's number never changes; a type that is not known here is reported to the caller, never guessed at.
Read next:  batch.py (bit 5 of the attributes makes a batch a control batch).

Key of every control record:  int16 version (0), int16 type.
LeaderChange value (KIP-595): flexible; version 1 adds the voters' directory ids (KIP-853). Version 0 is written: Kafka 4.2
writes nothing newer, and its readers, the dump tool too, take every LeaderChange for version 0 without looking.
"""

from __future__ import annotations

import struct as struct_module
from enum import IntEnum

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.primitives import Buffer, MalformedMessage
from barnabas_wire.kafka.schema import (
    Message,
    array,
    decode,
    encode_request,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import Record, build_batch

_KEY = struct_module.Struct(">hh")
_TRANSACTION_END = struct_module.Struct(">hi")
LEADER_CHANGE_VERSION = 0
"""What is written."""
LEADER_CHANGE_VERSION_MAX = 1
"""What can be read."""


class ControlRecordType(IntEnum):
    """Second int16 of a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(slots=True)
class Voter:
    """One voter of the quorum as a LeaderChange names it."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+")


@dataclass(slots=True)
class LeaderChangeMessage(Message):
    """First record of every leader epoch of the metadata log."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, LEADER_CHANGE_VERSION_MAX, 0

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)  # all voters of this epoch
    granting_voters: list[Voter] = array(Voter)  # those who voted for the leader


@dataclass(slots=True)
class SnapshotHeader(Message):
    """First record of a metadata snapshot (KIP-630)."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    version: int = int16()
    last_contained_log_timestamp: int = int64()
    end_offset: int = int64(
        default=-1, tag=10_000
    )  # Barnabas's own: of the snapshot's name; -1: whoever wrote it did not say


@dataclass(slots=True)
class SnapshotFooter(Message):
    """Last record of a metadata snapshot: without it the snapshot is not whole."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    version: int = int16()


@dataclass(slots=True)
class KRaftVersion(Message):
    """Level of kraft.version: 1 means voters have directory ids (KIP-853)."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    version: int = int16()
    kraft_version: int = int16()


@dataclass(slots=True)
class VotersEndpoint:
    """One listener of a voter."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class VotersFeature:
    """Range of kraft.version that a voter supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


@dataclass(slots=True)
class VotersVoter:
    """One member of the voter set."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[VotersEndpoint] = array(VotersEndpoint)
    kraft_version_feature: VotersFeature = struct(VotersFeature)


@dataclass(slots=True)
class VotersRemoved:
    """A replica that an operator removed."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


@dataclass(slots=True)
class Voters(Message):
    """The whole voter set (KIP-853), and whom it has lost: a tagged field of Barnabas, which Kafka's readers skip."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    version: int = int16()
    voters: list[VotersVoter] = array(VotersVoter)
    removed: list[VotersRemoved] = array(VotersRemoved, tag=10_000)


def encode_control_key(kind: ControlRecordType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(0, kind)


def decode_control_key(key: Buffer) -> int:
    """The type number in a control record's key, known to ControlRecordType or not. Raises MalformedMessage."""
    if len(key) < _KEY.size:
        raise MalformedMessage(f"a control record key has {_KEY.size} bytes, not {len(key)}")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise MalformedMessage(f"control record key of version {version}")
    return int(kind)


def encode_transaction_end(*, coordinator_epoch: int) -> bytes:
    """The value of an ABORT or COMMIT record, a transaction's marker: int16 version 0, int32 coordinator epoch."""
    return _TRANSACTION_END.pack(0, coordinator_epoch)


def decode_transaction_end(value: Buffer) -> int:
    """The coordinator epoch in a transaction's marker, of whatever version. Raises MalformedMessage."""
    if len(value) < _TRANSACTION_END.size:
        raise MalformedMessage(f"a transaction's marker has {_TRANSACTION_END.size} bytes, not {len(value)}")
    version, coordinator_epoch = _TRANSACTION_END.unpack_from(value)
    if version < 0:
        raise MalformedMessage(f"a transaction's marker of version {version}")
    return int(coordinator_epoch)


def build_transaction_marker(
    *, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool, now_ms: int
) -> bytes:
    """The control batch that ends a transaction in one partition."""
    kind = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
    value = encode_transaction_end(coordinator_epoch=coordinator_epoch)
    return build_batch(
        [Record(0, now_ms, encode_control_key(kind), value)],
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def encode_leader_change(message: LeaderChangeMessage) -> bytes:
    """The value of a LeaderChange record in the version that Kafka writes; `version` is filled in."""
    message.version = LEADER_CHANGE_VERSION
    out = bytearray()
    encode_request(message, LEADER_CHANGE_VERSION, out)
    return bytes(out)


def decode_leader_change(value: Buffer) -> LeaderChangeMessage:
    """A LeaderChange from its record value, whose first int16 says its version. Raises MalformedMessage."""
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= LEADER_CHANGE_VERSION_MAX:
        raise MalformedMessage(f"LeaderChange of version {version}")
    message: LeaderChangeMessage = decode(LeaderChangeMessage, version, value)
    return message
