"""Which offsets a member gets of the batches that were read: the rules of acquiring (KIP-932, KIP-1206).

May touch:  the window.               Must not touch: asyncio, clock, log, records.
Invariants: only what is ready is acquired, each offset by one member; by record limit no more than asked for, else less than a batch more;
            the window's end passes its bound by less than a batch, and by record limit not at all.
Read next:  partition.py, which asks.

Poison records are throttled as in Kafka 4.2 (KAFKA-17541): from max(2, ceil(limit / 2)) deliveries on, what was acquired together is
delivered in ever smaller parts and alone, and the last attempt of a record by itself.

Differences from Kafka: an offset that the log holds no more is archived as soon as a read shows it, in the middle of a read too, and so
never takes a place among max_records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from barnabas_coordination.share.window import Run, Window
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import DeliveryState
from barnabas_wire.kafka.ids import Offset

AVAILABLE, ACQUIRED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED, DeliveryState.ARCHIVED


class BatchSpan(NamedTuple):
    """A batch of the log, by its header."""

    base_offset: int
    last_offset: int
    position: int = 0
    """The position in its file, in bytes."""
    size_bytes: int = 0
    is_aborted: bool = False
    """Whether it is data of a transaction that was aborted, for a reader of committed records."""


class Acquired(NamedTuple):
    """Offsets that a member has from now on."""

    first: Offset
    last: Offset
    deliveries: int
    """This one included."""


class AcquireRequest(NamedTuple):
    """What a member asks of one partition."""

    member: str
    records_max: int
    batch_size: int
    """Offsets of a range from which on the next batch begins another one."""
    is_strict: bool
    """Acquire mode record_limit: no more than records_max."""


def room_in(window: Window, settings: ShareSettings, *, below: int) -> int:
    """How many more offsets may come into the window from `below` on; the offsets before that count as in it.

    Offsets that wait for their time do not count, nor, while some do, those that are complete behind them: as many as may wait.
    """
    in_flight = below - window.start
    if window.delayed:
        in_flight -= min(settings.delayed_records_max, window.delayed + window.complete)
    return settings.partition_max_record_locks - in_flight


class Acquisition:
    """One request at one partition, while it goes over the batches."""

    __slots__ = (
        "_due",
        "_examined",
        "_found",
        "_now_ms",
        "_open",
        "_request",
        "_settings",
        "_slice",
        "_slice_left",
        "_taken",
        "_window",
        "archived",
        "is_bound_by_delayed",
    )

    def __init__(
        self,
        window: Window,
        settings: ShareSettings,
        request: AcquireRequest,
        *,
        now_ms: int,
        examined: int | None = None,
        due: deque[tuple[int, int]] | None = None,
    ) -> None:
        """examined: up to which offset it is known which records are not due; None: all are due. due: (offset, when it is due), rising;
        taken from here as they come into the window."""
        self._window = window
        self._settings = settings
        self._request = request
        self._now_ms = now_ms
        self._examined = examined
        self._due: deque[tuple[int, int]] = deque() if due is None else due
        self._found: list[Acquired] = []
        self._taken = 0
        self._open: Run | None = None
        """New offsets that are not in the window yet."""
        self._slice: tuple[object, int] | None = None
        """The origin and the deliveries of what is throttled."""
        self._slice_left = 0
        self.archived: list[tuple[Offset, Offset]] = []
        """Offsets that turned out to be complete without a delivery: the log has them no more, or they were aborted."""
        self.is_bound_by_delayed = False
        """Whether it ended where one more record would have had to wait than may."""

    def over(self, spans: Iterable[BatchSpan], position: int) -> list[Acquired]:
        """Acquire from `position` on. No more of `spans` are asked for than are needed."""
        for span in spans:
            if span.last_offset < position:
                continue
            if span.base_offset > position and not self._pass_over(position, span.base_offset - 1):
                break
            first = max(span.base_offset, position)
            if span.is_aborted:
                if not self._archive(first, span.last_offset):
                    break
            elif not self._take_known(first, span.last_offset) or not self._take_new(span, first):
                break
            position = span.last_offset + 1
            if self._taken >= self._request.records_max:
                break
            if position <= self._window.end:  # thousands of batches may wait there for their time, or for others
                run = self._window.next_ready(self._window.index(position), self._window.end)
                if run is None and self._found:
                    break  # the next fetch begins behind the window
                position = self._window.end + 1 if run is None else max(position, run.first)
        self._close()
        return self._found

    # -- what is in the window ---------------------------------------------------------------------------------------

    def _take_known(self, first: int, last: int) -> bool:
        """Acquire what is ready of a batch; False where the request ends."""
        window = self._window
        stop = min(last, window.end)
        while first <= stop:
            run = window.next_ready(window.index(first), stop)
            if run is None:
                return True
            start = max(run.first, first)
            count, goes_on = self._count_of(run, min(run.last, stop) - start + 1)
            if count <= 0:
                return False
            self._acquire(start, start + count - 1)
            if not goes_on:
                return False
            first = start + count
        return True

    def _count_of(self, run: Run, count: int) -> tuple[int, bool]:
        """How many of the next `count` offsets of a run may be acquired, and whether the request continues behind
        them."""
        request, limit = self._request, self._settings.delivery_count_limit
        throttled_from = max(2, -(-limit // 2))
        if run.deliveries >= throttled_from:
            part = (run.origin, run.deliveries)
            if self._slice is None and not self._taken:
                self._slice = part
                size = run.origin[1] - run.origin[0] + 1
                is_last = limit > 2 and run.deliveries + 1 >= limit
                self._slice_left = 1 if is_last else max(1, size >> (run.deliveries - throttled_from + 1))
            if self._slice != part:
                return 0, False
            count = min(count, self._slice_left)
            self._slice_left -= count
        elif self._slice is not None:
            return 0, False
        if request.is_strict:
            count = min(count, request.records_max - self._taken)
            return count, self._taken + count < request.records_max
        return count, self._slice is None or self._slice_left > 0

    def _acquire(self, first: int, last: int) -> None:
        window, request = self._window, self._request
        start, stop = window.cut(first, last)
        for run in window.runs[start:stop]:
            window.count(run, -1)
            run.state = run.target = ACQUIRED
            run.deliveries += 1
            run.member = request.member
            run.acquired_ms = self._now_ms
            run.lock_ms = self._now_ms + self._settings.record_lock_duration_ms
            window.count(run, 1)
            before = self._found[-1] if self._found else None
            if (
                before is not None
                and before.last + 1 == run.first
                and before.deliveries == run.deliveries
                and run.first > run.origin[0]
            ):
                self._found[-1] = before._replace(last=Offset(run.last))
            else:
                self._found.append(Acquired(Offset(run.first), Offset(run.last), run.deliveries))
        self._taken += last - first + 1
        window.join(start, stop)

    # -- what is new -------------------------------------------------------------------------------------------------

    def _take_new(self, span: BatchSpan, first: int) -> bool:
        """Acquire the rest of a batch, behind the window's end; False where the request ends."""
        window = self._window
        end = window.end if self._open is None else self._open.last
        first, last = max(first, end + 1), span.last_offset
        if first > last:
            return True
        if self._slice is not None:
            return False
        has_end = True
        if self._examined is not None and last > self._examined:
            last, has_end = self._examined, False
        due = self._due
        while due and due[0][0] <= last:
            offset, due_ms = due[0]
            if due_ms <= self._now_ms or offset < first:  # its time has come meanwhile, or it was aborted
                due.popleft()
                continue
            if not self._take(first, offset - 1, span):
                return False
            if window.delayed >= self._settings.delayed_records_max:
                self.is_bound_by_delayed = True
                return False
            self._close()
            if window.runs and offset - window.start >= self._span_max:
                return False
            window.append(Run(offset, offset, AVAILABLE, due_ms=due_ms))
            due.popleft()
            first = offset + 1
        return self._take(first, last, span) and has_end

    def _take(self, first: int, last: int, span: BatchSpan) -> bool:
        """Acquire new offsets of one batch, as far as they may be; whether that is all of them."""
        if first > last:
            return True
        room = self._room(first)
        if room <= 0:
            return False
        count = last - first + 1
        if self._request.is_strict:
            count = min(count, room, self._request.records_max - self._taken)
            if count <= 0:
                return False
        self._grow(first, first + count - 1, span)
        return first + count > last

    def _grow(self, first: int, last: int, span: BatchSpan) -> None:
        """Note new offsets as acquired; a range ends where a batch begins, once it is long enough."""
        run = self._open
        if run is not None and first == span.base_offset and len(run) >= self._request.batch_size:
            self._close()
            run = None
        if run is None:
            now_ms, settings = self._now_ms, self._settings
            self._open = Run(
                first,
                last,
                ACQUIRED,
                1,
                member=self._request.member,
                lock_ms=now_ms + settings.record_lock_duration_ms,
                acquired_ms=now_ms,
            )
        else:
            run.last = last
        self._taken += last - first + 1

    def _close(self) -> None:
        run, self._open = self._open, None
        if run is not None:
            run.origin = (run.first, run.last)
            self._found.append(Acquired(Offset(run.first), Offset(run.last), 1))
            self._window.append(run)

    @property
    def _span_max(self) -> int:
        """Most offsets from the start offset to one that waits for its time."""
        return self._settings.partition_max_record_locks + self._settings.delayed_records_max

    def _room(self, below: int) -> int:
        window = self._window
        if not window.runs:  # it begins where its first offset is
            return self._settings.partition_max_record_locks - (0 if self._open is None else below - self._open.first)
        return room_in(window, self._settings, below=below)

    # -- what no member gets -----------------------------------------------------------------------------------------

    def _pass_over(self, first: int, last: int) -> bool:
        """The log has none of these offsets. False where the request ends."""
        window = self._window
        self._close()
        if not window.runs:
            window.start = Offset(last + 1)
            return True
        self._archive_known(first, last)
        first = max(first, window.end + 1)
        if first <= last:
            if self._room(last + 1) <= 0:
                return False
            self._append_archived(first, last)
        return True

    def _archive(self, first: int, last: int) -> bool:
        """No member may get these records. False where the request ends."""
        window = self._window
        self._close()
        self._archive_known(first, last)
        first = max(first, window.end + 1)
        if first <= last:
            if self._room(first) <= 0:
                return False
            self._append_archived(first, last)
        return True

    def _archive_known(self, first: int, last: int) -> None:
        window = self._window
        start, stop = window.cut(first, last)
        for run in window.runs[start:stop]:
            if run.state is AVAILABLE:
                window.count(run, -1)
                run.state = run.target = ARCHIVED
                run.due_ms = 0
                window.count(run, 1)
                self.archived.append((Offset(run.first), Offset(run.last)))
        window.join(start, stop)

    def _append_archived(self, first: int, last: int) -> None:
        self._window.append(Run(first, last, ARCHIVED))
        self.archived.append((Offset(first), Offset(last)))
