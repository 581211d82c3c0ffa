"""What filters leave of the ranges: never less than what they let through."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_barnabas import pushdown
from pyspark_barnabas.offsets import OffsetRange, SourcePartition
from pyspark_barnabas.pushdown import Pruning, narrowed

COMPARE: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda x, y: x == y,
    GreaterThan: lambda x, y: x > y,
    GreaterThanOrEqual: lambda x, y: x >= y,
    LessThan: lambda x, y: x < y,
    LessThanOrEqual: lambda x, y: x <= y,
}
OFFSET, PARTITION, TIMESTAMP, TOPIC = ("offset",), ("partition",), ("timestamp",), ("topic",)


@given(st.lists(st.tuples(st.sampled_from(list(COMPARE)), st.booleans(), st.integers(-2, 12)), max_size=5))
def test_no_record_that_passes_the_filters_is_left_out(asked: list[tuple[type[Filter], bool, int]]) -> None:
    filters = [cast(Any, kind)(PARTITION if by else OFFSET, value) for kind, by, value in asked]
    pruning = narrowed(filters)
    for index in range(3):
        kept = pruning.of_range(OffsetRange(SourcePartition("t", index), 0, 10))
        held = set() if kept is None else set(range(kept.start, kept.end))
        for offset in range(10):
            passes = all(COMPARE[kind](index if by else offset, value) for kind, by, value in asked)
            assert offset in held or not passes


def test_ranges_shrink_to_what_offset_partition_and_topic_allow() -> None:
    pruning = narrowed(
        [
            IsNotNull(OFFSET),
            GreaterThanOrEqual(OFFSET, 3),
            LessThan(OFFSET, 9),
            EqualTo(PARTITION, 1),
            In(TOPIC, ("t", "u")),
            Not(EqualTo(OFFSET, 5)),
        ]
    )
    assert pruning == Pruning(frozenset({"t", "u"}), frozenset({1}), 3, 9, None)
    assert pruning.of_range(OffsetRange(SourcePartition("t", 1), 0, 20)) == OffsetRange(SourcePartition("t", 1), 3, 9)
    assert pruning.of_range(OffsetRange(SourcePartition("t", 0), 0, 20)) is None
    assert pruning.of_range(OffsetRange(SourcePartition("v", 1), 0, 20)) is None
    assert pruning.of_range(OffsetRange(SourcePartition("t", 1), 9, 20)) is None


def test_a_time_says_where_to_begin_and_nothing_about_the_end() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    since = int(at.timestamp() * 1000)
    assert narrowed([GreaterThan(TIMESTAMP, at + timedelta(microseconds=1999))]).timestamp_ms_min == since + 1
    assert narrowed([EqualTo(TIMESTAMP, at)]).timestamp_ms_min == since
    assert narrowed([LessThan(TIMESTAMP, at)]).timestamp_ms_min is None
    assert narrowed([GreaterThan(TIMESTAMP, at.replace(tzinfo=None))]).timestamp_ms_min is None, "of which zone?"


def test_outside_of_sparks_planner_nobody_tells_filters() -> None:
    assert not pushdown.is_on()
