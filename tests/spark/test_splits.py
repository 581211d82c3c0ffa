"""Ranges are cut without a gap, limits of bytes hold, and no partition starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_barnabas.offsets import OffsetRange, SourcePartition
from pyspark_barnabas.splits import cuts, end_within_bytes, pieces

A, B = SourcePartition("a", 0), SourcePartition("b", 1)


@given(
    st.integers(0, 50),
    st.integers(1, 200),
    st.lists(st.integers(-5, 300), max_size=9),
    st.none() | st.integers(1, 60),
)
def test_pieces_follow_each_other_and_cover_the_range(start: int, size: int, at: list[int], most: int | None) -> None:
    whole = OffsetRange(A, start, start + size)
    found = pieces(whole, at, records_max=most)
    assert [offset for part in found for offset in range(part.start, part.end)] == list(range(start, start + size))
    assert all(part.start < part.end and (most is None or part.end - part.start <= most) for part in found)


def test_heavy_partitions_are_cut_into_more_pieces() -> None:
    wanted = [OffsetRange(A, 0, 1000), OffsetRange(B, 500, 1500)]
    assert cuts(wanted, {A: 9000.0, B: 1000.0}, parts_min=10, records_max=None) == [
        [111, 222, 333, 444, 555, 666, 777, 888],
        [],
    ]
    assert cuts(wanted, {}, parts_min=4, records_max=None) == [[500], [1000]]
    assert cuts(wanted, {}, parts_min=2, records_max=None) == [[], []], "as many tasks as partitions are there already"
    assert cuts(wanted, {}, parts_min=None, records_max=400) == [[333, 666], [833, 1166]]
    assert cuts([OffsetRange(A, 0, 3)], {}, parts_min=100, records_max=None) == [[1, 2]], "no piece is empty"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**9), st.floats(0.5, 5000), st.floats(0.5, 5000))
def test_a_limit_of_bytes_holds_but_moves_each_partition(
    a: int, b: int, most: int, dense_a: float, dense_b: float
) -> None:
    start, latest = {A: 7, B: 0}, {A: 7 + a, B: b}
    density = {A: dense_a, B: dense_b}
    end = end_within_bytes(start, latest, density, most)
    assert all(start[key] <= end[key] <= latest[key] for key in end)
    assert all(end[key] > start[key] for key in end if latest[key] > start[key])
    taken = sum((end[key] - start[key]) * density[key] for key in end)
    assert taken <= most + sum(density.values()) + 1
    if a * dense_a + b * dense_b <= most:
        assert end == latest
