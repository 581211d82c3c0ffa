"""Positions, losses and limits: the arithmetic that decides what a micro-batch covers."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pyspark_barnabas.offsets import (
    OffsetRange,
    Offsets,
    Position,
    SourcePartition,
    carried,
    clipped,
    from_json,
    limited_end,
    losses,
    missing,
    range_losses,
    ranges,
    stripped,
    to_json,
)

A0, A1, B0 = SourcePartition("a", 0), SourcePartition("a", 1), SourcePartition("b", 0)
partitions = st.builds(SourcePartition, st.sampled_from(["a", "b", "c.d"]), st.integers(0, 12))
offsets = st.dictionaries(partitions, st.integers(0, 10**12), max_size=10)


@given(offsets, st.dictionaries(st.sampled_from(["a", "b", "c.d"]), st.text(min_size=1, max_size=5)), offsets)
def test_json_and_back_is_the_same_position(found: Offsets, ids: dict[str, str], begun: Offsets) -> None:
    known = {topic: ids[topic] for topic in {key.topic for key in found} & set(ids)}
    position = Position(found, known, {key: at for key, at in begun.items() if key in found})
    assert from_json(json.loads(json.dumps(to_json(position)))) == position
    assert from_json(stripped(to_json(position))) == Position(found)


def test_equal_positions_are_equal_text() -> None:
    """Spark compares offsets as text: another order would look like new data."""
    one = to_json(Position({A0: 1, A1: 2, B0: 3}, {"a": "x", "b": "y"}))
    two = to_json(Position({B0: 3, A1: 2, A0: 1}, {"b": "y", "a": "x"}))
    assert json.dumps(one) == json.dumps(two) == '{"a": {"id": "x", "0": 1, "1": 2}, "b": {"id": "y", "0": 3}}'


def test_a_checkpoint_of_sparks_kafka_source_is_understood() -> None:
    assert from_json({"a": {"0": 5, "1": 6}}) == Position({A0: 5, A1: 6}, {})


def test_nothing_is_lost_while_topics_grow() -> None:
    then = Position({A0: 5}, {"a": "x"})
    now = Position({A0: 9, A1: 4, B0: 1}, {"a": "x", "b": "y"})
    assert losses(then, now) == []
    assert carried(then, now) == {A0: 5}
    assert missing(now.offsets, carried(then, now)) == [A1, B0]


def test_a_topic_made_again_is_lost_even_when_it_is_longer_now() -> None:
    then, now = Position({A0: 5, B0: 1}, {"a": "x", "b": "y"}), Position({A0: 500, B0: 2}, {"a": "z", "b": "y"})
    assert losses(then, now) == ["topic a was deleted and made again"]
    assert carried(then, now) == {B0: 1}


def test_without_ids_a_topic_is_taken_by_its_name() -> None:
    then, now = Position({A0: 5}), Position({A0: 6}, {"a": "z"})
    assert (losses(then, now), carried(then, now)) == ([], {A0: 5})


def test_gone_and_shortened_partitions_are_lost() -> None:
    then, now = Position({A0: 5, A1: 5, B0: 1}, {"a": "x"}), Position({A0: 3}, {"a": "x"})
    assert losses(then, now) == ["a-0 ends at 3, the query is at 5", "a-1 is gone", "b-0 is gone"]
    assert carried(then, now) == {A0: 3}


def test_without_a_limit_the_end_is_the_latest() -> None:
    assert limited_end({A0: 0, A1: 7}, {A0: 9, A1: 7}, None) == {A0: 9, A1: 7}


def test_a_limit_is_shared_by_backlog() -> None:
    assert limited_end({A0: 100, A1: 0}, {A0: 400, A1: 100}, 40) == {A0: 130, A1: 10}


def test_no_partition_that_lags_is_left_behind() -> None:
    assert limited_end({A0: 0, A1: 0, B0: 5}, {A0: 1_000_000, A1: 1, B0: 5}, 10) == {A0: 9, A1: 1, B0: 5}


@given(
    st.dictionaries(partitions, st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=8),
    st.integers(1, 10**6),
)
def test_a_limited_end_is_within_bounds_and_every_laggard_moves(
    spans: dict[SourcePartition, tuple[int, int]], limit: int
) -> None:
    start = {key: at for key, (at, _) in spans.items()}
    latest = {key: at + more for key, (at, more) in spans.items()}
    end = limited_end(start, latest, limit)
    assert end.keys() == latest.keys()
    assert all(start[key] <= end[key] <= latest[key] for key in end)
    assert all(end[key] > start[key] for key in end if latest[key] > start[key])
    assert sum(end[key] - start[key] for key in end) <= limit + len(spans)


@given(
    st.dictionaries(partitions, st.integers(0, 500), min_size=1, max_size=6),
    st.integers(1, 100),
)
def test_limited_micro_batches_cover_everything_once(latest: Offsets, limit: int) -> None:
    at = dict.fromkeys(latest, 0)
    seen = dict.fromkeys(latest, 0)
    for _ in range(3100):
        end = limited_end(at, latest, limit)
        for key, first, last in ranges(at, end):
            assert first == seen[key]
            seen[key] = last
        if end == at:
            break
        at = end
    assert seen == latest


def test_ranges_leave_out_what_is_empty_or_went_back() -> None:
    assert ranges({A0: 1, A1: 5, B0: 3}, {B0: 3, A1: 9, A0: 0}) == [OffsetRange(A1, 5, 9)]


def test_a_range_is_judged_at_both_ends_and_cut_to_what_is_there() -> None:
    wanted = [OffsetRange(A0, 2, 9), OffsetRange(A1, 0, 5), OffsetRange(B0, 3, 4)]
    earliest, latest = {A0: 4, A1: 0, B0: 7}, {A0: 12, A1: 3, B0: 9}
    assert range_losses(wanted, earliest, latest) == [
        "a-0 begins at 4, offsets from 2 on were removed",
        "a-1 ends at 3, but was to be read up to 5",
        "b-0 begins at 7, offsets from 3 on were removed",
    ]
    assert clipped(wanted, earliest, latest) == [OffsetRange(A0, 4, 9), OffsetRange(A1, 0, 3)]
    assert range_losses(wanted, {A0: 2, A1: 0, B0: 0}, {A0: 9, A1: 5, B0: 4}) == []
