"""The in-flight window of a share partition: what state each offset from the start offset to the last one delivered is in.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: runs ascend without holes from `start` to `end`; equal neighbours are one run; the counters are those of the runs; an offset
            below `start` is in no run.
Read next:  partition.py, which decides what changes.

Not obvious:
- A run is as long as its offsets are alike, be it one offset or thousands: a large batch that is acquired and acknowledged as a whole costs
  as much as one record. Kafka keeps batches, and a map of offsets for each that was split.
- A gap between states that were read is a run that was never delivered, so Kafka's gap window needs no rules here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from barnabas_coordination.share_state.messages import DeliveryState
from barnabas_wire.kafka.ids import Offset

NOT_EXAMINED: Final = -1
"""due_ms of an offset whose record may name a time and was not opened yet."""
_AVAILABLE, _ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
_TERMINAL = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class Change:
    """What one request changes of a partition: it counts as a whole, once it is written."""

    __slots__ = ("ranges", "token")

    def __init__(self, token: object) -> None:
        self.ranges: list[tuple[Offset, Offset]] = []
        self.token = token
        """What the caller needs when the change ends."""


class Run:
    """Neighbouring offsets in one state. Owned by its window."""

    __slots__ = (
        "acquired_ms",
        "change",
        "deliveries",
        "due_ms",
        "first",
        "is_posted",
        "is_rejected",
        "last",
        "lock_ms",
        "member",
        "origin",
        "state",
        "target",
        "target_due_ms",
    )

    def __init__(
        self,
        first: int,
        last: int,
        state: DeliveryState,
        deliveries: int = 0,
        *,
        due_ms: int = 0,
        member: str = "",
        lock_ms: int = 0,
        acquired_ms: int = 0,
        origin: tuple[int, int] | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        self.due_ms = due_ms
        """When an AVAILABLE run may be delivered, 0: now; or NOT_EXAMINED."""
        self.member = member
        """The member that has an ACQUIRED run, or ""; the next two fields say until when and since when."""
        self.lock_ms = lock_ms
        """When the lock ends."""
        self.acquired_ms = acquired_ms
        self.change: Change | None = None
        """What would change it, and is not written yet: until then it can neither be acquired nor acknowledged, nor does its lock end."""
        self.target = state
        """The state that it has then."""
        self.target_due_ms = 0
        self.is_rejected = False
        """Whether a member rejected it; of an ARCHIVING one, or one that will be."""
        self.is_posted = False
        """Whether an ARCHIVING one is among the dead letters to write."""
        self.origin = (first, last) if origin is None else origin
        """What was acquired together when it was first delivered: Kafka's batch in flight."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        target = "" if self.change is None else f"→{self.target.name}"
        due = f" due {self.due_ms}" if self.due_ms else ""
        member = f" {self.member} until {self.lock_ms}" if self.member else ""
        return f"<{self.first}..{self.last} {self.state.name}{target} {self.deliveries}{due}{member}>"

    def tail(self, first: int) -> Run:
        """A copy of what begins at `first`."""
        made = Run.__new__(Run)
        for name in Run.__slots__:
            setattr(made, name, getattr(self, name))
        made.first = first
        return made

    def is_like(self, other: Run) -> bool:
        """Whether both can be one run, if they are neighbours."""
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.change is other.change
            and self.target is other.target
            and self.due_ms == other.due_ms
            and self.member == other.member
            and self.lock_ms == other.lock_ms
            and self.acquired_ms == other.acquired_ms
            and self.target_due_ms == other.target_due_ms
            and self.is_rejected == other.is_rejected
            and self.is_posted == other.is_posted
            and (self.state in _TERMINAL or self.origin == other.origin)
        )


class Window:
    """All runs of one share partition."""

    __slots__ = ("_firsts", "completing", "counts", "delayed", "runs", "start")

    def __init__(self, start: Offset) -> None:
        self.start = start
        self.runs: list[Run] = []
        self._firsts: list[int] = []
        self.counts = [0] * len(DeliveryState)
        """Offsets by state."""
        self.delayed = 0
        """AVAILABLE offsets that wait for their time."""
        self.completing = 0
        """Offsets whose delivery is complete once a change is written."""

    @property
    def end(self) -> int:
        """The last offset; the one before `start` if there is none."""
        return self.runs[-1].last if self.runs else self.start - 1

    @property
    def complete(self) -> int:
        """Offsets whose delivery is complete."""
        return self.counts[DeliveryState.ACKNOWLEDGED] + self.counts[DeliveryState.ARCHIVED]

    @property
    def ready(self) -> int:
        """Offsets that may be acquired again now."""
        return self.counts[_AVAILABLE] - self.delayed

    def next_ready(self, place: int, last: int) -> Run | None:
        """The first run from a place on that may be acquired, of those that begin at `last` or before."""
        runs = self.runs
        if not self.ready:
            return None
        for each in range(place, len(runs)):
            run = runs[each]
            if run.first > last:
                return None
            if run.state is _AVAILABLE and not run.due_ms:
                return run
        return None

    def index(self, offset: int) -> int:
        """Place of the run that holds the offset; of the first run for one below, len(runs) for one above."""
        runs = self.runs
        place = bisect_right(self._firsts, offset) - 1
        if place < 0:
            return 0
        return place if offset <= runs[place].last else place + 1

    def within(self, first: int, last: int) -> Iterator[Run]:
        """The runs that overlap a range. Nothing may be added or taken away meanwhile."""
        runs = self.runs
        for place in range(self.index(first), len(runs)):
            if runs[place].first > last:
                return
            yield runs[place]

    def cut(self, first: int, last: int) -> tuple[int, int]:
        """Make runs begin at `first` and end at `last`, as far as the window reaches: the places from which on, and up to which, they lie
        within."""
        self._split(first)
        self._split(last + 1)
        return self.index(first), self.index(last + 1)

    def _split(self, offset: int) -> None:
        place = bisect_right(self._firsts, offset) - 1
        if place < 0:
            return
        run = self.runs[place]
        if run.first < offset <= run.last:
            self.runs.insert(place + 1, run.tail(offset))
            self._firsts.insert(place + 1, offset)
            run.last = offset - 1

    def append(self, run: Run) -> None:
        """Grow at the end, where the run must begin; an empty window begins with it."""
        if not self.runs:
            assert run.first >= self.start, f"{run} is before the start offset {self.start}"
            self.start = Offset(run.first)
        assert run.first == self.end + 1 or not self.runs, f"{run} leaves a hole after {self.end}"
        self.count(run, 1)
        self.runs.append(run)
        self._firsts.append(run.first)
        self.join(len(self.runs) - 1, len(self.runs))

    def count(self, run: Run, sign: int) -> None:
        """Before (-1) and after (1) a run is changed: keep the counters."""
        size = sign * (run.last - run.first + 1)
        self.counts[run.state] += size
        if run.due_ms:
            self.delayed += size
        if run.change is not None and run.target in _TERMINAL:
            self.completing += size

    def join(self, start: int, stop: int) -> None:
        """Make one run of equal neighbours, after runs[start:stop] were changed."""
        runs, firsts = self.runs, self._firsts
        place = max(start, 1)
        stop = min(stop + 1, len(runs))
        while place < stop:
            before, run = runs[place - 1], runs[place]
            if before.is_like(run):
                before.last = run.last
                del runs[place], firsts[place]
                stop -= 1
            else:
                place += 1

    def advance(self) -> bool:
        """Move the start offset over what is complete at the beginning; whether it moved."""
        runs = self.runs
        count = 0
        for run in runs:
            if run.state not in _TERMINAL:
                break
            count += 1
        if not count:
            return False
        self.drop_below(runs[count - 1].last + 1)
        return True

    def drop_below(self, offset: int) -> list[Run]:
        """Begin at that offset; returns the runs that are gone, the last one up to there."""
        if offset <= self.start:
            return []
        self._split(offset)
        place = self.index(offset)
        gone = self.runs[:place]
        for run in gone:
            self.count(run, -1)
        del self.runs[:place], self._firsts[:place]
        self.start = Offset(offset)
        return gone
