"""One share partition on its leader: which member has which record, until when, and what is to be written.

May touch:  the window.               Must not touch: asyncio, clock, log, network, records.
Invariants: what an acknowledgement asks for counts once it is written, as a whole or not at all; a lock ends; a record that was delivered
            as often as it may be is never available again; the start offset never falls; an offset is among the dead letters only after
            it was written as ARCHIVING, and ARCHIVED only after that.
Read next:  acquiring.py, window.py, waiting_letters.py; led_partition.py, which performs what this decides.

One write is under way at a time; what changes meanwhile goes out with the next one, whatever the number of requests.

Differences from Kafka 4.4, on purpose:
- A lock ends at its time, and not up to 200 ms later; an acknowledgement after that is refused.
- What changes without an acknowledgement (a lock ended, a member left) is written again until that succeeds: Kafka tries once.
- A member that leaves lets go of its records at once, as if their locks had ended; a write that fails does not give them back to it.
- A request that fails changes nothing, its renewals included.
- Offsets that were never delivered cannot be acknowledged; Kafka says yes after a leader moved, and delivers them later.
- Offsets that the start offset has passed cannot be acknowledged, unless the log lost them: Kafka says yes to a member whose lock ended,
  though another member settled the record, perhaps the other way.
- A record that retention took is forgotten; when it waited for its dead letter, that is written all the same, once a write has shown
  that this broker still leads: a later leader may have delivered the record again.
- Ours alone: a record that was released may have to wait (share.retry.backoff.ms), and a failed dead letter holds its record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from barnabas_coordination.share.acquiring import Acquired, AcquireRequest, Acquisition, BatchSpan, room_in
from barnabas_coordination.share.waiting_letters import Letter, WaitingLetters
from barnabas_coordination.share.window import NOT_EXAMINED, Change, Run, Window
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import DeliveryState, ShareState, StateBatch
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.kafka.messages.share_acknowledge import AcknowledgeType

AVAILABLE, ACQUIRED, ACKNOWLEDGED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED, DeliveryState.ACKNOWLEDGED
ARCHIVING, ARCHIVED = DeliveryState.ARCHIVING, DeliveryState.ARCHIVED
WRITE_RETRY_MS: Final = 1_000
"""Pause, in ms, after a write failed that no request waits for."""


class InvalidRecordState(KafkaError):
    """The record is not one that the member has."""

    code = ErrorCode.INVALID_RECORD_STATE


class InvalidAcknowledgement(KafkaError):
    """The offsets were never delivered."""

    code = ErrorCode.INVALID_REQUEST


class Acknowledgement(NamedTuple):
    """What became of a range of offsets, inclusive at both ends."""

    first: Offset
    last: Offset
    type: AcknowledgeType


class Write(NamedTuple):
    """What the persister is to keep."""

    start_offset: Offset
    complete_count: int
    batches: tuple[StateBatch, ...]
    changes: tuple[Change, ...]
    """Those that count once it is kept."""
    others: tuple[tuple[Offset, Offset], ...]
    """What it has that no request waits for."""


class SharePartition:
    """The core. Every method is synchronous; now_ms is the wall clock, ms since 1970."""

    def __init__(self, state: ShareState, settings: ShareSettings, *, start_offset: Offset) -> None:
        """state: as it was read. start_offset: of the state, or what the group's reset says. Raises ValueError for a state that cannot
        be one."""
        self.settings = settings
        self.window = Window(start_offset)
        self._log_start = Offset(0)
        """Where the log begins, as far as log_starts_at told. An acknowledgement of what lies below changes nothing and is not refused."""
        self._hint = int(start_offset)
        """No offset below it is ready."""
        self._alarms: list[tuple[int, int, int]] = []
        """Heap of (ms, first, last): a lock ends then or a record is due, perhaps."""
        self._queued: list[Change] = []
        self._dirty: list[tuple[Offset, Offset]] = []
        """Changed without an acknowledgement, and not written."""
        self._write: Write | None = None
        """Under way."""
        self._retry_ms = 0
        self.letters = WaitingLetters()
        self._unopened = int(start_offset)
        """No offset below it lies in a gap of the state that was read and is still to be opened."""
        self._examined = int(start_offset) - 1
        """Up to here it is known which records are not due."""
        self._due: deque[tuple[int, int]] = deque()
        """(offset, when it is due) of those that are not in the window yet; rising."""
        self._is_bound = False
        self._load(state.batches)

    def _load(self, batches: Sequence[StateBatch]) -> None:
        window = self.window
        next_offset = int(window.start)
        gap_due_ms = NOT_EXAMINED if self.settings.deliver_at_header else 0
        for batch in batches:
            if batch.first < next_offset or batch.last < batch.first or batch.state is ACQUIRED:
                raise ValueError(f"{batch} cannot follow {next_offset - 1}")
            if batch.first > next_offset:
                window.append(Run(next_offset, batch.first - 1, AVAILABLE, due_ms=gap_due_ms))
            run = Run(batch.first, batch.last, batch.state, batch.deliveries)
            if batch.state is AVAILABLE:
                run.due_ms = batch.due_ms
                if not batch.deliveries and not batch.due_ms:
                    run.due_ms = gap_due_ms
                if batch.due_ms > 0:
                    heappush(self._alarms, (batch.due_ms, batch.first, batch.last))
            elif batch.state is ARCHIVING:
                run.is_rejected = batch.deliveries < self.settings.delivery_count_limit
                run.is_posted = True
                self.letters.add(run)
            window.append(run)
            next_offset = batch.last + 1
        self._examined = window.end
        window.advance()

    def follow(self, settings: ShareSettings) -> None:
        """The group's configs are these from now on."""
        before, self.settings = self.settings, settings
        if bool(before.deliver_at_header) == bool(settings.deliver_at_header):
            return
        window = self.window
        self._due.clear()
        self._examined = window.end
        for run in window.runs if window.delayed else ():
            if run.due_ms == NOT_EXAMINED:
                self._set(run, AVAILABLE)
        window.join(0, len(window.runs))

    # -- acquiring ---------------------------------------------------------------------------------------------------

    @property
    def is_bound_by_delayed(self) -> bool:
        """Whether nothing new is delivered because as many records wait for their time as may."""
        return self._is_bound and self.window.delayed >= self.settings.delayed_records_max

    @property
    def is_full(self) -> bool:
        """Whether nothing new is delivered until something is complete."""
        window = self.window
        return bool(window.runs) and room_in(window, self.settings, below=window.end + 1) <= 0

    def fetch_offset(self) -> Offset | None:
        """Where to read for the next member; None while there is nothing to acquire, whatever the log has."""
        window = self.window
        run = window.next_ready(window.index(self._hint), window.end)
        if run is not None:
            self._hint = run.first
            return Offset(self._hint)
        self._hint = window.end + 1
        if self.is_bound_by_delayed or self.is_full:
            return None
        return Offset(window.end + 1)

    def acquire(
        self, spans: Iterable[BatchSpan], request: AcquireRequest, *, from_offset: Offset, now_ms: int
    ) -> list[Acquired]:
        """Give a member what it may have of these batches, which were read from `from_offset` on, a result of fetch_offset."""
        self.tick(now_ms)
        settings = self.settings
        acquisition = Acquisition(
            self.window,
            settings,
            request,
            now_ms=now_ms,
            examined=self._examined if settings.deliver_at_header else None,
            due=self._due,
        )
        end = self.window.end
        found = acquisition.over(spans, from_offset)
        self._is_bound = acquisition.is_bound_by_delayed
        self._dirty += acquisition.archived
        if found:
            lock_ms = now_ms + settings.record_lock_duration_ms
            for first, last, _ in found:
                self._wake_at(lock_ms, first, last)
        if settings.deliver_at_header and self.window.end > end:
            for run in self.window.within(end + 1, self.window.end):
                if run.due_ms > 0:
                    self._wake_at(run.due_ms, run.first, run.last)
        return found

    def examine_from(self) -> Offset | None:
        """Where records are to be opened, to see when they are due, before more can be acquired; None: nowhere."""
        if not self.settings.deliver_at_header:
            return None
        window = self.window
        for run in window.within(self._unopened, window.end):
            if run.due_ms == NOT_EXAMINED:
                self._unopened = run.first
                return Offset(run.first)
        self._unopened = window.end + 1
        if self._examined > window.end or self.is_bound_by_delayed:
            return None
        return None if self.is_full else Offset(window.end + 1)

    def delay(self, first: Offset, last: Offset, due: Sequence[tuple[Offset, int]], *, now_ms: int) -> None:
        """The records of a range were opened: these offsets are due at that ms, rising; all others are now.

        Offsets that the log does not hold count as due, too.
        """
        waiting: dict[int, int] = {offset: due_ms for offset, due_ms in due if due_ms > now_ms}
        window = self.window
        borders: list[int] = sorted({first, *waiting, *(offset + 1 for offset in waiting), last + 1})
        if window.delayed:
            for start, stop in pairwise(borders):
                begin, end = window.cut(start, stop - 1)
                for run in window.runs[begin:end]:
                    if run.state is AVAILABLE and run.due_ms == NOT_EXAMINED:
                        self._set(run, AVAILABLE, due_ms=waiting.get(start, 0))
                window.join(begin, end)
        if last > max(self._examined, window.end):
            self._due.extend((offset, due_ms) for offset, due_ms in waiting.items() if offset > window.end)
            self._examined = last

    # -- acknowledging -----------------------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, batches: Sequence[Acknowledgement], token: object, *, now_ms: int
    ) -> Change | None:
        """Take a member's acknowledgements: all of them or, when it raises, none. Ranges rise.

        Returns what counts once it is written; None where nothing is to be written. Raises InvalidRecordState, InvalidAcknowledgement.
        """
        self.tick(now_ms)
        pieces = [
            Acknowledgement(max(first, self._log_start), last, type_)
            for first, last, type_ in batches
            if last >= self._log_start
        ]
        before = -1
        for piece in pieces:
            if piece.first <= before:
                raise InvalidRecordState(f"offset {piece.first} is acknowledged twice in one request")
            self._check(member, piece)
            before = piece.last
        change = Change(token)
        for piece in pieces:
            if piece.type is AcknowledgeType.RENEW:
                self._renew(piece, now_ms)
            else:
                self._begin(change, piece, now_ms)
        if not change.ranges:
            return None
        self._queued.append(change)
        return change

    def _check(self, member: str, piece: Acknowledgement) -> None:
        first, last, type_ = piece
        window = self.window
        if first < window.start:
            raise InvalidRecordState(f"offset {first} was settled before: the start offset is {window.start}")
        if not window.runs:
            raise InvalidRecordState(f"offset {first} is not acquired")
        if last > window.end:
            raise InvalidAcknowledgement(f"offset {last} was never delivered, the last one is {window.end}")
        if type_ is AcknowledgeType.RENEW and not self.settings.may_renew:
            raise InvalidRecordState("this group does not renew locks: share.renew.acknowledge.enable is false")
        for run in window.within(first, last):
            if run.state is ARCHIVED and not run.deliveries:
                continue  # there is no record
            if run.state is not ACQUIRED or run.member != member:
                raise InvalidRecordState(f"offset {max(first, run.first)} is not acquired by the member")
            if run.change is not None:
                raise InvalidRecordState(f"offset {max(first, run.first)} was acknowledged just now")

    def _renew(self, piece: Acknowledgement, now_ms: int) -> None:
        window = self.window
        start, stop = window.cut(piece.first, piece.last)
        lock_ms = now_ms + self.settings.record_lock_duration_ms
        for run in window.runs[start:stop]:
            if run.state is ACQUIRED:
                run.lock_ms = lock_ms
        window.join(start, stop)
        self._wake_at(lock_ms, piece.first, piece.last)

    def _begin(self, change: Change, piece: Acknowledgement, now_ms: int) -> None:
        first, last, type_ = piece
        window = self.window
        start, stop = window.cut(first, last)
        for run in window.runs[start:stop]:
            if run.state is not ACQUIRED:
                continue
            window.count(run, -1)
            run.change = change
            if type_ is AcknowledgeType.ACCEPT:
                run.target = ACKNOWLEDGED
            elif type_ is AcknowledgeType.RELEASE and run.deliveries < self.settings.delivery_count_limit:
                run.target = AVAILABLE
                run.target_due_ms = self._due_again_ms(run.deliveries, now_ms)
            else:
                run.is_rejected = type_ is AcknowledgeType.REJECT
                run.target = ARCHIVED if type_ is AcknowledgeType.GAP else self._given_up
            window.count(run, 1)
        window.join(start, stop)
        change.ranges.append((first, last))

    @property
    def _given_up(self) -> DeliveryState:
        return ARCHIVING if self.settings.dead_letter_topic else ARCHIVED

    def _due_again_ms(self, deliveries: int, now_ms: int) -> int:
        settings = self.settings
        if not settings.retry_backoff_ms:
            return 0
        wait_ms = settings.retry_backoff_ms * settings.retry_backoff_factor ** (deliveries - 1)
        return now_ms + int(min(wait_ms, max(settings.retry_backoff_max_ms, settings.retry_backoff_ms)))

    # -- time, and members that leave --------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """End the locks whose time has come, and make records available that are due."""
        alarms = self._alarms
        while alarms and alarms[0][0] <= now_ms:
            _, first, last = heappop(alarms)
            window = self.window
            start, stop = window.cut(first, last)
            for run in window.runs[start:stop]:
                if run.state is ACQUIRED and run.change is None and run.lock_ms <= now_ms:
                    self._let_go(run)
                elif run.state is AVAILABLE and 0 < run.due_ms <= now_ms:
                    self._set(run, AVAILABLE)
            window.join(start, stop)

    @property
    def alarm_ms(self) -> int | None:
        """When to call again, be it tick, take_write or take_letters; None: when something happens."""
        times = [self._alarms[0][0]] if self._alarms else []
        letters_ms = self.letters.next_ms
        if letters_ms is not None:
            times.append(letters_ms)
        if (self._dirty or self.letters.is_owing) and self._write is None:
            times.append(self._retry_ms)
        return min(times, default=None)

    def release(self, member: str, *, now_ms: int) -> None:
        """The member has left: what it has acquired is let go of, but for what it has acknowledged."""
        self.tick(now_ms)
        window = self.window
        if not window.counts[ACQUIRED]:
            return
        for run in window.runs:
            if run.state is not ACQUIRED or run.member != member:
                continue
            if run.change is None:
                self._let_go(run)
            else:
                run.member = ""  # a write that fails gives it to no member
        window.join(0, len(window.runs))

    def _let_go(self, run: Run) -> None:
        """A lock has ended, by its time or with its member."""
        if run.deliveries < self.settings.delivery_count_limit:
            self._set(run, AVAILABLE)
        else:
            self._set(run, self._given_up)
        self._dirty.append((Offset(run.first), Offset(run.last)))

    def _set(self, run: Run, state: DeliveryState, *, due_ms: int = 0) -> None:
        """It is in that state from now on. The caller joins."""
        window = self.window
        window.count(run, -1)
        run.state = run.target = state
        run.change = None
        run.member = ""
        run.lock_ms = run.acquired_ms = run.target_due_ms = 0
        run.due_ms = due_ms
        if state is not ARCHIVING:
            run.is_rejected = run.is_posted = False
        window.count(run, 1)
        if state is AVAILABLE:
            if due_ms:
                self._wake_at(due_ms, run.first, run.last)
            else:
                self._hint = min(self._hint, run.first)

    def _wake_at(self, at_ms: int, first: int, last: int) -> None:
        alarms = self._alarms
        heappush(alarms, (at_ms, first, last))
        if len(alarms) > 4 * len(self.window.runs) + 64:  # of what was acknowledged long ago
            self._alarms = alarms = []
            for run in self.window.runs:
                if run.lock_ms or run.due_ms > 0:
                    alarms.append((run.lock_ms or run.due_ms, run.first, run.last))
            heapify(alarms)

    # -- the log -----------------------------------------------------------------------------------------------------

    def log_starts_at(self, offset: Offset) -> None:
        """The log begins there: what is below is gone."""
        self._log_start = max(self._log_start, offset)
        gone = self.window.drop_below(offset)
        for run in gone:
            if run.target is ARCHIVING and not run.is_posted:
                self.letters.owe(run)
        if gone:
            self.window.advance()
        self._examined = max(self._examined, self.window.start - 1)
        self._hint = max(self._hint, self.window.start)
        while self._due and self._due[0][0] < offset:
            self._due.popleft()

    # -- writing -----------------------------------------------------------------------------------------------------

    def has_to_write(self, now_ms: int) -> bool:
        """Whether take_write has something to do."""
        is_due = bool(self._dirty or self.letters.is_owing) and now_ms >= self._retry_ms
        return self._write is None and (is_due or bool(self._queued))

    def take_write(self, now_ms: int) -> Write | None:
        """What is to be written now; None while a write is under way or there is nothing. To be followed by `written`."""
        if not self.has_to_write(now_ms):
            return None
        window = self.window
        changes, self._queued = tuple(self._queued), []
        dirty, self._dirty = self._dirty, []
        has_to_prove = self.letters.prove()
        ranges = dirty + [each for change in changes for each in change.ranges]
        batches = tuple(self._batches(_merged(ranges)))
        if not batches and not changes and not has_to_prove:
            return None
        self._write = Write(window.start, window.complete + window.completing, batches, changes, tuple(dirty))
        return self._write

    def _batches(self, ranges: Iterable[tuple[int, int]]) -> list[StateBatch]:
        """What is true of the ranges, once the changes count."""
        found: list[StateBatch] = []
        for first, last in ranges:
            for run in self.window.within(first, last):
                state, deliveries, due_ms = run.target, run.deliveries, run.due_ms
                if run.change is not None:
                    due_ms = run.target_due_ms
                elif state is ACQUIRED:  # let go of, and acquired again since
                    state, deliveries = AVAILABLE, deliveries - 1
                if state is AVAILABLE and not deliveries:
                    continue
                start, end = Offset(max(first, run.first)), Offset(min(last, run.last))
                before = found[-1] if found else None
                if before is not None and before[1:] == (start - 1, state, deliveries, due_ms):
                    found[-1] = before._replace(last=end)
                else:
                    found.append(StateBatch(start, end, state, deliveries, due_ms))
        return found

    def written(self, error: KafkaError | None, *, now_ms: int) -> Sequence[Change]:
        """The write under way is kept, or not; returns the changes that count now, or do not."""
        write = self._write
        assert write is not None, "no write is under way"
        self._write = None
        if error is not None:
            self.letters.unproved(write.changes)
            for change in write.changes:
                self._roll_back(change, now_ms)
            self._dirty += write.others
            self._retry_ms = now_ms + WRITE_RETRY_MS
            return write.changes
        self._retry_ms = 0
        for change in write.changes:
            self._commit(change)
        for batch in write.batches:
            if batch.state is ARCHIVING:
                self._post_within(batch)
        self.letters.proved()
        if self.window.advance():
            self._hint = max(self._hint, self.window.start)
        return write.changes

    def abandon(self) -> Sequence[Change]:
        """Another leads from now on: the changes whose outcome will not be known here."""
        changes = (*(() if self._write is None else self._write.changes), *self._queued)
        self._write, self._queued = None, []
        self.letters.abandon()
        return changes

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is to be written, and no lock is to end."""
        is_written = self._write is None and not self._queued and not self._dirty and not self.letters.is_owing
        return is_written and self.letters.is_empty and not self.window.counts[ACQUIRED]

    def _commit(self, change: Change) -> None:
        window = self.window
        for first, last in change.ranges:
            start, stop = window.cut(first, last)
            for run in window.runs[start:stop]:
                if run.change is change:
                    self._set(run, run.target, due_ms=run.target_due_ms)
            window.join(start, stop)

    def _roll_back(self, change: Change, now_ms: int) -> None:
        window = self.window
        for first, last in change.ranges:
            start, stop = window.cut(first, last)
            for run in window.runs[start:stop]:
                if run.change is not change:
                    continue
                window.count(run, -1)
                run.change, run.target, run.target_due_ms, run.is_rejected = None, ACQUIRED, 0, False
                window.count(run, 1)
                if run.lock_ms <= now_ms or not run.member:
                    self._let_go(run)
                else:
                    self._wake_at(run.lock_ms, run.first, run.last)
            window.join(start, stop)

    # -- dead letters ------------------------------------------------------------------------------------------------

    def _post_within(self, batch: StateBatch) -> None:
        window = self.window
        start, stop = window.cut(batch.first, batch.last)
        for run in window.runs[start:stop]:
            if run.state is ARCHIVING and not run.is_posted:
                run.is_posted = True
                self.letters.add(run)
        window.join(start, stop)

    def has_letters(self, now_ms: int) -> bool:
        """Whether take_letters has something to do."""
        return self.letters.has_due(now_ms)

    def take_letters(self, now_ms: int) -> Sequence[Letter]:
        """Dead letters to write now, in the order of their offsets; empty while some are under way. To be followed by `posted`.

        Where the group has no dead letters any more, what waits for one is archived.
        """
        if not self.settings.dead_letter_topic:
            self._archive(self.letters.give_up())
            return ()
        return self.letters.take(now_ms)

    def posted(self, unwritten: Collection[Offset], *, now_ms: int) -> None:
        """The dead letters that were taken are written, but for these: they are held, or given up, as the group says."""
        holds = self.settings.holds_on_dead_letter_failure
        self._archive(self.letters.posted(unwritten, holds=holds, now_ms=now_ms))

    def _archive(self, offsets: Collection[Offset]) -> None:
        window = self.window
        for first, last in _merged([(offset, offset) for offset in offsets]):
            start, stop = window.cut(first, last)
            for run in window.runs[start:stop]:
                if run.state is ARCHIVING:
                    self._set(run, ARCHIVED)
                    self._dirty.append((Offset(run.first), Offset(run.last)))
            window.join(start, stop)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets in ranges that rise and do not touch."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
