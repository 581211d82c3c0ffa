"""Control record keys and LeaderChange against kio."""

from __future__ import annotations

import uuid

import pytest
from kio.schema.end_txn_marker.v0.data import EndTxnMarker
from kio.schema.leader_change_message.v0 import data as kio_v0
from kio.schema.leader_change_message.v1 import data as kio_v1

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.records.batch import TRANSACTIONAL_FLAG, Record, iterate_records, read_header
from barnabas_wire.records.control import (
    ControlRecordType,
    LeaderChangeMessage,
    Voter,
    build_transaction_marker,
    decode_control_key,
    decode_leader_change,
    decode_transaction_end,
    encode_control_key,
    encode_leader_change,
    encode_transaction_end,
)
from tests.proto import oracle


def test_control_keys() -> None:
    assert encode_control_key(ControlRecordType.LEADER_CHANGE) == b"\0\0\0\2"
    assert decode_control_key(memoryview(b"\0\0\0\1")) == ControlRecordType.COMMIT
    assert decode_control_key(b"\0\1\0\x63more") == 99, "newer keys and types are reported, not refused"
    for key in (b"", b"\0\0\0", b"\xff\xff\0\1"):
        with pytest.raises(MalformedMessage):
            decode_control_key(key)


def test_a_transactions_marker_is_kafkas() -> None:
    data = encode_transaction_end(coordinator_epoch=7)
    assert data == b"\0\0" + oracle.kio_encode(EndTxnMarker(coordinator_epoch=7))
    assert decode_transaction_end(data) == 7
    assert decode_transaction_end(b"\0\1\0\0\0\7more") == 7, "newer versions add to the end"
    for broken in (b"", data[:5], b"\xff\xff\0\0\0\7"):
        with pytest.raises(MalformedMessage):
            decode_transaction_end(broken)
    batch = build_transaction_marker(producer_id=9, producer_epoch=3, coordinator_epoch=7, is_commit=True, now_ms=1_000)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert header.is_control
    assert header.attributes & TRANSACTIONAL_FLAG
    assert list(iterate_records(batch)) == [Record(0, 1_000, b"\0\0\0\1", data)]


def test_leader_change_is_written_as_kafka_writes_it() -> None:
    ours = LeaderChangeMessage(leader_id=1, voters=[Voter(1), Voter(2)], granting_voters=[Voter(1)])
    theirs = tuple(kio_v0.Voter(voter_id=number) for number in (1, 2))
    data = encode_leader_change(ours)
    entity = kio_v0.LeaderChangeMessage(version=0, leader_id=1, voters=theirs, granting_voters=theirs[:1])
    assert oracle.kio_encode(entity) == data
    assert decode_leader_change(memoryview(data)) == ours
    for cut in range(len(data)):
        with pytest.raises(MalformedMessage):
            decode_leader_change(data[:cut])
    with pytest.raises(MalformedMessage):
        decode_leader_change(b"\0\7" + data[2:])


def test_leader_change_with_directories_is_read() -> None:
    directories = [Uuid(bytes([number]) * 16) for number in (1, 2)]
    theirs = tuple(
        kio_v1.Voter(voter_id=number, voter_directory_id=uuid.UUID(bytes=bytes(raw)))
        for number, raw in zip((1, 2), directories, strict=True)
    )
    entity = kio_v1.LeaderChangeMessage(version=1, leader_id=1, voters=theirs, granting_voters=theirs[:1])
    assert decode_leader_change(oracle.kio_encode(entity)) == LeaderChangeMessage(
        version=1,
        leader_id=1,
        voters=[Voter(1, directories[0]), Voter(2, directories[1])],
        granting_voters=[Voter(1, directories[0])],
    )
