"""The way of one record through the marks of all processes, and what all records together spent on each stretch of it.

May touch:  its arguments.            Must not touch: sockets, processes, files.
Invariants: one record is on its way at a time, so a mark belongs to the record whose time it falls in; the stretches of a
            record add up to its latency; a record whose marks are not all there is left out and counted.
Read next:  __main__.py.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from tests.bench.peer.results import percentile
from tests.bench.trace.points import Marks

PRODUCE, FETCH = "answer filled 0", "answer filled 1"


class Journey(NamedTuple):
    """A record as its client sees it, in ns of CLOCK_MONOTONIC."""

    sent: int
    answered: int


class Stretch(NamedTuple):
    """One line of the table."""

    name: str
    is_wait: bool
    """Nobody computes for the record: kernel, another process's turn, the end of a turn of the loop."""


STRETCHES = (
    Stretch("client's socket to the leader's loop", True),
    Stretch("leader: request parsed", False),
    Stretch("leader: checked and appended", False),
    Stretch("leader: end of the turn (drain)", True),
    Stretch("leader: written", False),
    Stretch("leader: HW looked at, parked fetch woken or next one awaited", False),
    Stretch("leader: read for the slower follower, answer made", False),
    Stretch("leader: end of the turn (flush)", True),
    Stretch("leader's socket to the slower follower's loop", True),
    Stretch("follower: answer parsed, fetcher's task woken", False),
    Stretch("follower: appended and written", False),
    Stretch("follower: flushed if durable, next fetch made", False),
    Stretch("follower's socket to the leader's loop", True),
    Stretch("leader: fetch parsed, HW moved", False),
    Stretch("leader: produce released, answer made", False),
    Stretch("leader: end of the turn (flush), second", True),
    Stretch("leader's socket to the client", True),
)


class Timeline:
    """The marks of one process, by point."""

    def __init__(self, marks: Marks) -> None:
        self._times: dict[str, list[int]] = {}
        for when, name in marks:
            self._times.setdefault(name, []).append(when)
        for times in self._times.values():
            times.sort()

    def next(self, name: str, after: int) -> int:
        """The first of that point at or after a time. Raises LookupError."""
        times = self._times.get(name, [])
        place = bisect_left(times, after)
        if place == len(times):
            raise LookupError(name)
        return times[place]

    def last(self, name: str, before: int) -> int:
        """The last of that point at or before a time. Raises LookupError."""
        times = self._times.get(name, [])
        place = bisect_right(times, before)
        if place == 0:
            raise LookupError(name)
        return times[place - 1]


def follow(journey: Journey, leader: Timeline, followers: Sequence[Timeline]) -> list[int] | None:
    """The times at which the stretches of a record end, its start first; None where the marks do not tell."""
    try:
        asked = leader.next("append asked", journey.sent)
        received = leader.last("listener receives", asked)
        appended = leader.next("leader appended", asked)
        writing = leader.next("write begins", appended)
        written = leader.next("write ends", writing)
        came = max((_fetched_on(follower, written) for follower in followers), key=itemgetter(-1))
        sent = leader.last("answer sent", came[0])
        filled = leader.last(FETCH, sent)
        woken = _woken(leader, written, filled)
        moved = leader.next("HW set", came[-1])
        heard = leader.last("listener receives", moved)
        released = leader.next(PRODUCE, moved)
        answered = leader.next("answer sent", released)
    except LookupError:
        return None
    times = [
        *(journey.sent, received, asked, appended, writing, written, woken, filled, sent),
        *came,
        *(heard, moved, released, answered, journey.answered),
    ]
    return times if times == sorted(times) else None


def _woken(leader: Timeline, written: int, filled: int) -> int:
    """When the leader took up a follower's fetch: parked ones are woken, one that comes later finds the record there."""
    taken_up = [leader.last(name, filled) for name in ("parked fetches woken", "listener receives")]
    return max([when for when in taken_up if when >= written], default=written)


def _fetched_on(follower: Timeline, after: int) -> tuple[int, ...]:
    """When a follower does what with the data that the leader has written at that time, up to its next fetch."""
    appended = follower.next("follower appended", after)
    taken = follower.last("answer taken in", appended)
    received = follower.last("fetcher receives", taken)
    written = follower.next("write ends", appended)
    return received, taken, written, follower.next("fetch sent", written)


class Line(NamedTuple):
    """One stretch over all records, in µs."""

    stretch: Stretch
    p50_us: float
    p99_us: float
    mean_us: float


class Trace(NamedTuple):
    """All records."""

    lines: list[Line]
    total: Line
    seen: int
    left_out: int

    def table(self) -> str:
        """Markdown."""
        rows = ["| | | p50 µs | p99 µs | mean µs |", "|---|---|---|---|---|"]
        for line in (*self.lines, *self.sums(), self.total):
            kind = "wait" if line.stretch.is_wait else "step"
            kind = "" if line is self.total else kind
            rows.append(
                f"| {line.stretch.name} | {kind} | {line.p50_us:.0f} | {line.p99_us:.0f} | {line.mean_us:.0f} |"
            )
        return "\n".join(rows)

    def sums(self) -> list[Line]:
        """Steps and waits, each together. Of medians only the sum is meaningful to a few µs."""
        found = []
        for is_wait in (False, True):
            chosen = [line for line in self.lines if line.stretch.is_wait is is_wait]
            name = "all waits" if is_wait else "all steps"
            sums = (
                sum(column)
                for column in zip(*((each.p50_us, each.p99_us, each.mean_us) for each in chosen), strict=True)
            )
            found.append(Line(Stretch(name, is_wait), *sums))
        return found


def trace(journeys: Sequence[Journey], marks: Mapping[int, Marks], leader_id: int) -> Trace:
    """Follow every record. Raises ValueError when the marks tell of none."""
    timelines = {node_id: Timeline(found) for node_id, found in marks.items()}
    followers = [timeline for node_id, timeline in timelines.items() if node_id != leader_id]
    ways = [way for each in journeys if (way := follow(each, timelines[leader_id], followers)) is not None]
    if not ways:
        raise ValueError("no record could be followed: do the points still stand in this order?")
    columns = zip(*([later - earlier for earlier, later in pairwise(way)] for way in ways), strict=True)
    lines = [_line(stretch, list(column)) for stretch, column in zip(STRETCHES, columns, strict=True)]
    total = _line(Stretch("sent to acknowledged", False), [way[-1] - way[0] for way in ways])
    return Trace(lines, total, len(ways), len(journeys) - len(ways))


def _line(stretch: Stretch, spent_ns: list[int]) -> Line:
    ordered = sorted(spent_ns)
    mean = sum(ordered) / len(ordered) / 1e3
    return Line(stretch, percentile(ordered, 0.5) / 1e3, percentile(ordered, 0.99) / 1e3, mean)
