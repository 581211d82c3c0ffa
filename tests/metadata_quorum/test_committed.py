"""Batches of the metadata log: made, damaged, opened."""

from __future__ import annotations

import pytest

from barnabas_quorum.driver.committed import data_batch, leader_change_batch, open_batch, split_batches, take_fetched
from barnabas_quorum.raft.messages import EpochStart, FetchReply, LeaderChange, ReplyError
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from barnabas_wire.records.batch import CorruptBatch

KEY = ReplicaKey(BrokerId(1), Uuid(b"\1" * 16))
FIRST = leader_change_batch(
    LeaderChange(KEY, (KEY,), (KEY,)), base_offset=Offset(4), epoch=Epoch(2), timestamp_ms=1_000
)
SECOND = data_batch([b"a", b"", b"c"], base_offset=Offset(5), epoch=Epoch(2), timestamp_ms=2_000)
THIRD = data_batch([b"d"], base_offset=Offset(8), epoch=Epoch(3), timestamp_ms=3_000)


def reply(payload: bytes) -> FetchReply:
    return FetchReply(
        1, KEY, KEY, Epoch(3), KEY.id, ReplyError.NONE, Offset(0), Offset(4), Offset(4), None, (), payload
    )


def test_what_is_made_is_opened_again() -> None:
    assert open_batch(FIRST) is None
    opened = open_batch(SECOND)
    assert opened is not None
    assert opened.records == (b"a", b"", b"c")
    assert (opened.base_offset, opened.last_offset, opened.epoch, opened.append_timestamp_ms) == (5, 7, 2, 2_000)


def test_fetched_bytes_become_batches_with_their_epochs() -> None:
    got = reply(FIRST.data + SECOND.data + THIRD.data)
    take_fetched(got)
    assert got.payload == [FIRST, SECOND, THIRD]
    assert got.end_offset == 9
    assert EpochStart(Epoch(3), Offset(8)) in got.epochs


def test_no_bytes_are_no_records() -> None:
    got = reply(b"")
    take_fetched(got)
    assert (got.payload, got.end_offset) == (None, 4)


def test_every_damaged_byte_is_noticed() -> None:
    whole = SECOND.data + THIRD.data
    for position in range(len(whole)):
        if position % len(SECOND.data) in range(8) or position % len(SECOND.data) in range(12, 16):
            continue  # base offset and epoch lie outside the checksum; offsets are judged by their order
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        got = reply(bytes(damaged))
        take_fetched(got)
        assert got.payload is None, f"byte {position}"
        assert got.epochs == () and got.end_offset > got.base_offset, "so that the core refuses it"


@pytest.mark.parametrize("cut", [1, 60, 61, len(SECOND.data) - 1])
def test_cut_off_bytes_are_refused(cut: int) -> None:
    with pytest.raises(CorruptBatch):
        split_batches(FIRST.data + SECOND.data[:cut])


def test_gap_between_batches_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        split_batches(FIRST.data + THIRD.data)


def test_a_batch_whose_checksum_is_wrong_is_not_opened_and_the_way_out_is_told() -> None:
    rotten = bytearray(SECOND.data)
    rotten[-1] ^= 1
    with pytest.raises(CorruptBatch, match="Start the node again"):
        open_batch(SECOND._replace(data=bytes(rotten)))
