"""The rules of share state: merging against a fold of each offset, what a snapshot amounts to, and who is shut out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_coordination.share_state import state as rules
from barnabas_coordination.share_state.messages import DeliveryState, ShareKey, StateBatch
from barnabas_coordination.share_state.state import Change, KeptState, ShareRecord, ShareSnapshot, ShareUpdate, merge
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset, Uuid

KEY = ShareKey("workers", Uuid(bytes(range(16))), 3)
AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = (
    DeliveryState.AVAILABLE,
    DeliveryState.ACKNOWLEDGED,
    DeliveryState.ARCHIVING,
    DeliveryState.ARCHIVED,
)
WRITTEN = (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED)
Word = tuple[int, int, int]
"""What is said of an offset: deliveries, state, due time."""


def batch(first: int, last: int, state: DeliveryState = AVAILABLE, deliveries: int = 1, due_ms: int = 0) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, deliveries, due_ms)


batches = st.builds(
    lambda first, size, state, deliveries, due: batch(first, first + size, state, deliveries, due),
    st.integers(0, 30),
    st.integers(0, 8),
    st.sampled_from(WRITTEN),
    st.integers(0, 3),
    st.sampled_from((0, 0, 7, 9)),
)
starts = st.integers(-1, 30)


def fold(words: dict[int, Word], changes: list[StateBatch], start: int) -> dict[int, Word]:
    """The rule, offset by offset."""
    words = dict(words)
    for change in changes:
        for offset in range(change.first, change.last + 1):
            words[offset] = max(words.get(offset, (-1, -1, -1)), (change.deliveries, change.state, change.due_ms))
    return {offset: word for offset, word in words.items() if offset >= start}


def opened(kept: tuple[StateBatch, ...]) -> dict[int, Word]:
    """Batches offset by offset; they ascend, do not overlap, and none could be one with the next."""
    found: dict[int, Word] = {}
    for before, after in pairwise(kept):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:]
    for each in kept:
        assert each.first <= each.last
        for offset in range(each.first, each.last + 1):
            found[offset] = (each.deliveries, each.state, each.due_ms)
    return found


@given(st.lists(st.tuples(st.lists(batches, max_size=6), starts), max_size=8))
def test_merging_is_the_fold_of_every_offset(rounds: list[tuple[list[StateBatch], int]]) -> None:
    kept: tuple[StateBatch, ...] = ()
    words: dict[int, Word] = {}
    start = -1
    for changes, moved in rounds:
        start = max(start, moved)
        kept = merge(kept, changes, start_offset=Offset(start))
        words = fold(words, changes, start)
        assert opened(kept) == words


@given(st.lists(batches, max_size=8))
def test_the_order_of_words_does_not_matter(changes: list[StateBatch]) -> None:
    """An answer that was lost is asked for again, behind what came after it."""
    turned = [*reversed(changes)]
    together = merge((), changes, start_offset=NO_OFFSET)
    one_by_one: tuple[StateBatch, ...] = ()
    for change in turned:
        one_by_one = merge(one_by_one, [change], start_offset=NO_OFFSET)
    assert one_by_one == together == merge(together, changes, start_offset=NO_OFFSET)


def test_one_change_leaves_the_rest_of_a_window_as_it_is() -> None:
    kept = tuple(batch(2 * index, 2 * index, ACKNOWLEDGED) for index in range(1000))
    merged = merge(kept, [batch(501, 501, ACKNOWLEDGED)], start_offset=Offset(0))
    assert merged == (*kept[:250], batch(500, 502, ACKNOWLEDGED), *kept[252:])
    assert all(before is after for before, after in zip(kept[:250], merged[:250], strict=True))


# ---- records ---------------------------------------------------------------------------------------------------------


def replayed(records: list[ShareRecord]) -> KeptState | None:
    """What records come to."""
    known: KeptState | None = None
    for record in records:
        known = rules.updated(known, record) if isinstance(record, ShareUpdate) else record.state
    return known


def begun(*, state_epoch: int = 1, start: int = -1) -> KeptState:
    record = rules.initialize(KEY, None, state_epoch=Epoch(state_epoch), start_offset=Offset(start), now_ms=5)
    assert record.state is not None
    return record.state


def change(
    *changed: StateBatch, state_epoch: int = 1, leader_epoch: int = 0, start: int = -1, count: int = -1
) -> Change:
    return Change(Epoch(state_epoch), Epoch(leader_epoch), Offset(start), count, changed)


changes = st.builds(
    lambda changed, start, count: change(*changed, start=start, count=count),
    st.lists(batches, max_size=3),
    starts,
    st.integers(-1, 20),
)


@given(st.lists(changes, max_size=12), st.integers(0, 4))
def test_a_snapshot_is_what_came_before_it(wanted: list[Change], updates_max: int) -> None:
    """With snapshots now and then, the state is as with none, and as from the last snapshot on."""
    records: list[ShareRecord] = [rules.initialize(KEY, None, state_epoch=Epoch(1), start_offset=NO_OFFSET, now_ms=5)]
    plain = list(records)
    for each in wanted:
        records.append(rules.write(KEY, replayed(records), each, updates_max=updates_max, now_ms=6))
        plain.append(rules.write(KEY, replayed(plain), each, updates_max=500, now_ms=6))
        last = max(index for index, record in enumerate(records) if isinstance(record, ShareSnapshot))
        assert len(records) - 1 - last <= updates_max
        known, other, short = replayed(records), replayed(plain), replayed(records[last:])
        assert known is not None and other is not None
        assert short == known
        assert (known.summary, known.batches) == (other.summary, other.batches)
    words: dict[int, Word] = {}
    start = -1
    for each in wanted:
        start = max(start, each.start_offset)
        words = fold(words, list(each.batches), start)
    known = replayed(records)
    assert known is not None
    assert (opened(known.batches), known.start_offset) == (words, start)


def written(known: KeptState, each: Change) -> KeptState:
    record = rules.write(KEY, known, each, updates_max=500, now_ms=6)
    assert isinstance(record, ShareUpdate)
    return rules.updated(known, record)


def test_the_start_offset_never_falls_and_the_count_goes_with_it() -> None:
    known = written(begun(start=10), change(start=20, count=4))
    assert (known.start_offset, known.complete_count) == (20, 4)
    for each, expected in (
        (change(start=15, count=9), (20, 4)),
        (change(start=-1, count=9), (20, 4)),
        (change(start=20, count=3), (20, 4)),
        (change(start=20, count=5), (20, 5)),
        (change(start=21, count=0), (21, 0)),
        (change(start=21, count=-1), (21, -1)),
    ):
        after = written(known, each)
        assert (after.start_offset, after.complete_count) == expected, each


def test_a_state_that_is_begun_anew_has_nothing_of_the_former_but_who_is_shut_out() -> None:
    known = written(begun(start=10), change(batch(12, 14), start=11, count=1))
    record = rules.read(KEY, known, leader_epoch=Epoch(7), updates_max=500, now_ms=6)
    assert isinstance(record, ShareUpdate)
    known = rules.updated(known, record)
    again = rules.initialize(KEY, known, state_epoch=Epoch(2), start_offset=Offset(3), now_ms=8).state
    assert again == KeptState(1, Epoch(2), Epoch(7), Offset(3), 0, 8, 8)
    assert rules.initialize(KEY, None, state_epoch=Epoch(2), start_offset=NO_OFFSET, now_ms=8).state == KeptState(
        0, Epoch(2), Epoch(0), NO_OFFSET, -1, 8, 8
    )


def test_who_was_replaced_is_shut_out() -> None:
    known = begun(state_epoch=4)
    record = rules.read(KEY, known, leader_epoch=Epoch(7), updates_max=500, now_ms=6)
    assert record == ShareUpdate(KEY, 0, Epoch(7), NO_OFFSET, -1)
    known = rules.updated(known, record)
    assert rules.read(KEY, known, leader_epoch=Epoch(7), updates_max=500, now_ms=6) is None
    with pytest.raises(KafkaError) as old_reader:
        rules.read(KEY, known, leader_epoch=Epoch(6), updates_max=500, now_ms=6)
    with pytest.raises(KafkaError) as old_leader:
        rules.write(KEY, known, change(state_epoch=4, leader_epoch=6), updates_max=500, now_ms=6)
    with pytest.raises(KafkaError) as old_state:
        rules.write(KEY, known, change(state_epoch=3, leader_epoch=7), updates_max=500, now_ms=6)
    with pytest.raises(KafkaError) as old_beginning:
        rules.initialize(KEY, known, state_epoch=Epoch(3), start_offset=NO_OFFSET, now_ms=6)
    assert [each.value.code for each in (old_reader, old_leader, old_state, old_beginning)] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
    ]
    rules.write(KEY, known, change(state_epoch=5, leader_epoch=8), updates_max=500, now_ms=6)


@pytest.mark.parametrize(
    "each",
    [
        change(batch(5, 4)),
        change(batch(-1, 4)),
        change(batch(1, 4, DeliveryState.ACQUIRED)),
        change(batch(1, 4, deliveries=-1)),
        change(batch(1, 4, due_ms=-1)),
        change(leader_epoch=-1),
        change(state_epoch=-1),
        change(start=-2),
        change(count=-2),
    ],
)
def test_what_is_no_change_is_refused(each: Change) -> None:
    with pytest.raises(KafkaError) as error:
        rules.write(KEY, begun(), each, updates_max=500, now_ms=6)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_what_was_never_begun_can_be_neither_read_nor_written() -> None:
    for attempt in (
        lambda: rules.write(KEY, None, change(), updates_max=500, now_ms=6),
        lambda: rules.read(KEY, None, leader_epoch=Epoch(1), updates_max=500, now_ms=6),
    ):
        with pytest.raises(KafkaError, match="never initialized") as error:
            attempt()
        assert error.value.code is ErrorCode.INVALID_REQUEST


def test_a_cold_snapshot_says_the_same_again() -> None:
    known = written(begun(start=10), change(batch(12, 14), start=11, count=1))
    again = rules.repeat(KEY, known, now_ms=99).state
    assert again is not None and again.is_cold and not known.is_cold
    assert again == known._replace(snapshot_epoch=1, written_ms=99, updates=0)
