"""Idempotent producers: repeats, gaps, wraps, epochs, truncation and the snapshot file."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_log.errors import CorruptCheckpoint, InvalidProducerEpoch, OutOfOrderSequence
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail.producer_snapshots import (
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
    load_newest_snapshot,
    snapshot_path,
)
from barnabas_log.tail.producer_state import SEQUENCE_MAX, ProducerBatch, ProducerState
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.crc32c import crc32c


def send(
    state: ProducerState, sequence: int, count: int = 1, *, offset: int = 0, epoch: int = 0
) -> ProducerBatch | None:
    """What a leader does with a batch: judge it and, if it is new, remember it."""
    repeated = state.check(producer_id=7, epoch=epoch, first_sequence=sequence, record_count=count)
    if repeated is None:
        last = Offset(offset + count - 1)
        state.update(
            producer_id=7,
            epoch=epoch,
            first_sequence=sequence,
            last_offset=last,
            offset_delta=count - 1,
            timestamp_ms=offset,
        )
    return repeated


def test_the_last_five_batches_are_recognised_and_no_older_one() -> None:
    state = ProducerState()
    for n in range(7):
        assert send(state, 3 * n, 3, offset=100 + 3 * n) is None
    for n in range(2, 7):
        repeated = send(state, 3 * n, 3)
        assert repeated is not None and (repeated.first_offset, repeated.last_offset) == (100 + 3 * n, 102 + 3 * n)
    for n in (0, 1):
        with pytest.raises(OutOfOrderSequence):
            send(state, 3 * n, 3)


@pytest.mark.parametrize(("sequence", "count"), [(7, 1), (4, 1), (3, 2), (6, 1)])
def test_a_gap_and_a_part_of_a_batch_are_out_of_order(sequence: int, count: int) -> None:
    state = ProducerState()
    send(state, 0, 3)
    send(state, 3, 3, offset=3)
    if (sequence, count) == (6, 1):
        assert send(state, sequence, count, offset=6) is None
        return
    with pytest.raises(OutOfOrderSequence):
        send(state, sequence, count)


def test_sequences_wrap_to_zero() -> None:
    state = ProducerState()
    send(state, SEQUENCE_MAX - 1, 1)
    assert send(state, SEQUENCE_MAX, 3, offset=1) is None, "2^31-1, 0, 1"
    entry = state.get(7)
    assert entry is not None and (entry.last.first_sequence, entry.last.last_sequence) == (SEQUENCE_MAX, 1)
    assert send(state, SEQUENCE_MAX, 3) is not None, "its repeat"
    assert send(state, 2, 1, offset=4) is None


def test_zero_follows_the_greatest_sequence() -> None:
    state = ProducerState()
    send(state, SEQUENCE_MAX, 1)
    assert send(state, 0, 1, offset=1) is None


def test_an_unknown_producer_may_start_anywhere_and_a_new_epoch_only_at_zero() -> None:
    state = ProducerState()
    assert send(state, 55) is None
    with pytest.raises(OutOfOrderSequence):
        send(state, 56, epoch=1)
    assert send(state, 0, epoch=1) is None
    with pytest.raises(InvalidProducerEpoch):
        send(state, 56, epoch=0)
    assert send(state, 0, epoch=1) is not None


@given(st.lists(st.integers(1, 3), min_size=1, max_size=12), st.integers(0, 40))
@settings(max_examples=300, deadline=None)
def test_truncation_leaves_what_the_shorter_log_had_or_says_that_it_cannot(counts: list[int], target: int) -> None:
    state, shorter = ProducerState(), ProducerState()
    sequence = 0
    for count in counts:
        send(state, sequence, count, offset=sequence)
        if sequence + count <= target:
            send(shorter, sequence, count, offset=sequence)
        sequence += count
    if state.truncate_to(Offset(target)):
        mine, wanted = state.get(7), shorter.get(7)
        assert mine is not None and wanted is not None
        assert mine.last == wanted.last and list(mine.batches) == list(wanted.batches)[-len(mine.batches) :]
    else:
        entry = state.get(7)
        assert entry is not None and entry.batches[0].last_offset >= target


def test_the_silent_are_forgotten() -> None:
    state = ProducerState()
    send(state, 0, offset=1000)
    assert state.expire(now_ms=1000, expiration_ms=1000) == 0
    assert state.expire(now_ms=1999, expiration_ms=1000) == 0
    assert state.expire(now_ms=2000, expiration_ms=1000) == 1
    assert len(state) == 0


def test_a_producer_of_old_records_is_not_silent() -> None:
    """Of records replayed from last week Kafka forgets the producer while it writes: a retry then is a second write."""
    state = ProducerState()
    send(state, 0, offset=0)
    assert state.expire(now_ms=5000, expiration_ms=1000) == 0
    send(state, 1, offset=1)
    assert state.expire(now_ms=5990, expiration_ms=1000) == 0
    assert state.expire(now_ms=6989, expiration_ms=1000) == 0
    assert state.expire(now_ms=6990, expiration_ms=1000) == 1


def test_a_snapshot_has_kafkas_layout() -> None:
    state = ProducerState()
    send(state, 0, 2, offset=40, epoch=3)
    state.end_offset = Offset(42)
    content = encode_snapshot(state)
    assert struct.unpack_from(">hIi", content) == (1, crc32c(content[6:]), 1)
    assert struct.unpack_from(">qhiqiqiq", content, 10) == (7, 3, 1, 41, 1, 40, -1, -1)
    assert len(content) == 10 + 46


def test_a_snapshot_knows_every_batch_that_a_producer_may_send_again() -> None:
    state = ProducerState()
    for n in range(6):
        send(state, 2 * n, 2, offset=40 + 2 * n)
    again = decode_snapshot(encode_snapshot(state), Offset(52))
    assert [list(entry.batches) for entry in again] == [list(entry.batches) for entry in state]
    repeated = send(again, 4, 2)
    assert repeated is not None and repeated.first_offset == 44, "an answer that the power cut took is given again"
    assert send(again, 12, 2, offset=52) is None


def test_a_snapshot_is_read_whole_or_not_at_all() -> None:
    state = ProducerState()
    send(state, 0, 2, offset=40)
    content = encode_snapshot(state)
    again = decode_snapshot(content, Offset(42))
    assert [entry.last for entry in again] == [entry.last for entry in state] and again.end_offset == 42
    for cut in range(len(content)):
        with pytest.raises(CorruptCheckpoint):
            decode_snapshot(content[:cut], Offset(42))
    for position in range(len(content)):
        with pytest.raises(CorruptCheckpoint):
            decode_snapshot(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :], Offset(42))
    with pytest.raises(CorruptCheckpoint):
        decode_snapshot(content + b"x", Offset(42))


def test_the_newest_sound_snapshot_serves() -> None:
    disk = MemoryDisk()
    disk.make_directory("d")
    for offset in (10, 20, 30, 40):
        state = ProducerState()
        send(state, offset, offset=offset - 1)
        content = encode_snapshot(state)
        disk.write_file_atomically(snapshot_path("d", Offset(offset)), content[:-1] if offset == 30 else content)
    assert load_newest_snapshot(disk, "d", at_or_before=Offset(35)).end_offset == 20
    assert list_snapshots(disk, "d") == [10, 20, 40], "the torn one is gone"
    assert len(load_newest_snapshot(disk, "d", at_or_before=Offset(9))) == 0
