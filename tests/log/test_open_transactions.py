"""Which transactions a partition has open: kept on append, in the snapshot, at a truncation and when replayed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_log.errors import InvalidProducerEpoch, OutOfOrderSequence
from barnabas_log.tail.producer_replay import note_producer
from barnabas_log.tail.producer_snapshots import decode_snapshot, encode_snapshot
from barnabas_log.tail.producer_state import ProducerState
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import BatchHeader, Record, build_batch, read_header
from barnabas_wire.records.control import build_transaction_marker

COMMIT = build_transaction_marker(producer_id=7, producer_epoch=0, coordinator_epoch=1, is_commit=True, now_ms=0)
"""The bytes of a marker: its header is read from elsewhere."""


def data(offset: int, *, producer_id: int = 7, epoch: int = 0, sequence: int = 0) -> BatchHeader:
    batch = build_batch(
        [Record(0, offset, None, b"v")],
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return read_header(batch, 0)._replace(base_offset=Offset(offset))


def marker(offset: int, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    batch = build_transaction_marker(
        producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=1, is_commit=True, now_ms=offset
    )
    return read_header(batch, 0)._replace(base_offset=Offset(offset))


def replay(log: list[BatchHeader]) -> ProducerState:
    state = ProducerState()
    for header in log:
        note_producer(state, header, COMMIT)
    state.end_offset = Offset(len(log))
    return state


def test_the_first_batch_opens_a_transaction_and_the_marker_ends_it() -> None:
    assert replay([data(0), data(1, sequence=1)]).open_transactions == {7: 0}
    assert replay([data(0), data(1, sequence=1), marker(2)]).open_transactions == {}


def test_a_markers_epoch_fences_the_one_before_and_starts_at_sequence_zero() -> None:
    state = replay([data(0), marker(1, epoch=1)])
    with pytest.raises(InvalidProducerEpoch):
        state.check(producer_id=7, epoch=0, first_sequence=1, record_count=1)
    with pytest.raises(OutOfOrderSequence):
        state.check(producer_id=7, epoch=1, first_sequence=1, record_count=1)
    assert state.check(producer_id=7, epoch=1, first_sequence=0, record_count=1) is None


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    state = replay([data(0), marker(1, producer_id=8)])
    assert [state.expire(now_ms=now, expiration_ms=10) for now in (0, 100)] == [0, 1]
    assert state.get(7) is not None and state.get(8) is None


STEPS = st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=12)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.data())
def test_what_is_kept_equals_what_is_replayed(steps: list[tuple[int, bool]], drawn: st.DataObject) -> None:
    log: list[BatchHeader] = []
    epochs = dict.fromkeys((1, 2, 3), 0)
    sequences = dict.fromkeys((1, 2, 3), 0)
    for producer, is_end in steps:
        if is_end:
            epochs[producer] += 1
            sequences[producer] = 0
            log.append(marker(len(log), producer_id=producer, epoch=epochs[producer]))
        else:
            log.append(data(len(log), producer_id=producer, epoch=epochs[producer], sequence=sequences[producer]))
            sequences[producer] += 1
    through_a_snapshot = decode_snapshot(encode_snapshot(replay(log)), Offset(len(log)))
    assert encode_snapshot(through_a_snapshot) == encode_snapshot(replay(log))
    end = drawn.draw(st.integers(0, len(log)))
    for state in (replay(log), through_a_snapshot):
        if state.truncate_to(Offset(end)):
            assert state.open_transactions == replay(log[:end]).open_transactions
