"""Batches of the metadata log: made, damaged, opened."""

from __future__ import annotations

import pytest

from barnabas_quorum.driver.committed import data_batch, leader_change_batch, open_batch, split_batches, take_fetched
from barnabas_quorum.image.bad_records import Fault
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.raft.journal import StoredBatch
from barnabas_quorum.raft.messages import EpochStart, FetchReply, LeaderChange, ReplyError
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from barnabas_wire.records.batch import CRC_START, HEADER_BYTES, CorruptBatch
from barnabas_wire.records.crc32c import crc32c

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


def test_a_batch_whose_checksum_is_wrong_is_not_opened_and_the_way_out_is_reported() -> None:
    rotten = bytearray(SECOND.data)
    rotten[-1] ^= 1
    with pytest.raises(CorruptBatch, match="Start the node again"):
        open_batch(SECOND._replace(data=bytes(rotten)))


def unopenable(*, body: bytes = b"no record", count: int = 3) -> StoredBatch:
    """A batch whose checksum is right and whose records are none."""
    data = bytearray(SECOND.data[:HEADER_BYTES] + body)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[23:27] = (count - 1).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[CRC_START:])).to_bytes(4, "big")
    return SECOND._replace(data=bytes(data), end_offset=Offset(5 + count))


def test_sound_batch_that_cannot_be_opened_is_bad_records_and_not_the_end_of_the_node() -> None:
    batch = unopenable()
    (taken,) = split_batches(batch.data)
    assert taken == batch, "every node takes it in"
    opened = open_batch(batch)
    assert opened is not None
    assert (opened.base_offset, opened.last_offset) == (5, 7)
    loader = MetadataLoader()
    loader.on_commit([opened])
    assert loader.blocked is not None
    assert (loader.blocked.record.offset, loader.blocked.record.fault) == (5, Fault.UNREADABLE)
    assert [record.offset for record in loader.blocking_records] == [5, 6, 7]
    other = open_batch(unopenable(body=b"another 1"))
    assert other is not None and other.records[0] != opened.records[0], "a sign-off names these bytes and no others"


def test_batch_that_says_it_holds_more_records_than_bytes_is_not_opened() -> None:
    with pytest.raises(CorruptBatch, match="says it holds 1000000 records"):
        open_batch(unopenable(count=1_000_000))
