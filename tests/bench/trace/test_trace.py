"""The points are there, a mark changes nothing, and the stretches of a record add up."""

from __future__ import annotations

import pytest

from tests.bench.trace.path import STRETCHES, Journey, trace
from tests.bench.trace.points import POINTS, Marks, Moment, Point, PointGone, find, wrap


@pytest.mark.parametrize("point", POINTS, ids=lambda point: str(point.name))
def test_every_traced_function_is_there(point: Point) -> None:
    owner, function = find(point)
    assert callable(function) and function.__name__ == point.function and owner.__name__ == point.owner


def test_a_name_that_is_gone_is_said_with_what_to_do() -> None:
    gone = POINTS[0]._replace(function="buffer_renamed")
    with pytest.raises(PointGone, match=r"Connection\.buffer_renamed as 'listener receives', which is not there: name"):
        find(gone)


def test_a_wrapped_function_does_as_before_and_leaves_a_mark() -> None:
    class Slot:
        api_key = 1

        def fill(self, size: int, *, is_last: bool) -> int:
            if is_last:
                raise ValueError("full")
            return size + 1

    marks: Marks = []
    for moment, by in ((Moment.ENTER, ""), (Moment.EXIT, ""), (Moment.ENTER, "api_key")):
        wrapped = wrap(Slot.fill, Point("fill", "m", "Slot", "fill", moment, by), marks)
        assert wrapped(Slot(), 4, is_last=False) == 5
        with pytest.raises(ValueError, match="full"):
            wrapped(Slot(), 4, is_last=True)
    assert [name for _, name in marks] == ["fill"] * 4 + ["fill 1"] * 2
    assert sorted(marks) == marks


LEADER = (
    (10, "listener receives"),
    (20, "append asked"),
    (30, "leader appended"),
    (40, "write begins"),
    (50, "write ends"),
    (60, "parked fetches woken"),
    (70, "answer filled 1"),
    (80, "answer sent"),
    (90, "answer filled 1"),
    (100, "answer sent"),
    (170, "listener receives"),
    (220, "listener receives"),
    (230, "HW set"),
    (240, "answer filled 0"),
    (260, "answer sent"),
)
FOLLOWER = (
    (0, "fetcher receives"),
    (5, "answer taken in"),
    (30, "follower appended"),
    (40, "write ends"),
    (60, "fetch sent"),
)


def shifted(marks: tuple[tuple[int, str], ...], ns: int) -> Marks:
    return [(when + ns, name) for when, name in marks]


def test_the_slower_follower_decides_and_the_stretches_add_up() -> None:
    period = 10_000
    marks: dict[int, Marks] = {1: [], 2: [], 3: []}
    for index in range(3):
        marks[1] += shifted(LEADER, index * period)
        marks[2] += shifted(FOLLOWER, index * period + 95)
        marks[3] += shifted(FOLLOWER, index * period + 140)
    journeys = [Journey(index * period, index * period + 300) for index in range(3)]
    found = trace(journeys, marks, leader_id=1)
    assert (found.seen, found.left_out) == (3, 0)
    spent = [round(line.p50_us * 1000) for line in found.lines]
    assert spent == [10, 10, 10, 10, 10, 10, 30, 10, 40, 5, 35, 20, 20, 10, 10, 20, 40]
    assert sum(spent) == round(found.total.p50_us * 1000) == 300
    waits, steps = (
        round(sum(each.mean_us for each in found.lines if each.stretch.is_wait is kind) * 1000)
        for kind in (True, False)
    )
    assert [round(each.mean_us * 1000) for each in found.sums()] == [steps, waits]
    assert len(found.table().splitlines()) == 2 + len(STRETCHES) + 3


def test_a_follower_that_was_not_parked_finds_the_record_with_its_next_fetch() -> None:
    late = (*(mark for mark in LEADER if mark[1] != "parked fetches woken"), (85, "listener receives"))
    marks = {1: shifted(late, 0), 2: shifted(FOLLOWER, 95), 3: shifted(FOLLOWER, 140)}
    found = trace([Journey(0, 300)], marks | {1: [(-1, "parked fetches woken"), *marks[1]]}, leader_id=1)
    spent = {line.stretch.name: round(line.p50_us * 1000) for line in found.lines}
    assert spent["leader: HW looked at, parked fetch woken or next one awaited"] == 35
    assert spent["leader: read for the slower follower, answer made"] == 5


def test_a_record_whose_marks_are_not_all_there_is_left_out_and_counted() -> None:
    marks = {1: shifted(LEADER, 0), 2: shifted(FOLLOWER, 95), 3: shifted(FOLLOWER, 140)}
    found = trace([Journey(0, 300), Journey(10_000, 10_300)], marks, leader_id=1)
    assert (found.seen, found.left_out) == (1, 1)
    marks[3] = []
    with pytest.raises(ValueError, match="no record could be followed"):
        trace([Journey(0, 300)], marks, leader_id=1)
