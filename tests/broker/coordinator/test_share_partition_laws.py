"""The laws of a share partition under any order of events, beside a model that knows each offset by itself.

Laws of the reference (11.5): 44 what was acknowledged without an error is never delivered again; 45 one owner; 46 counts; 47 no exhausted
offset is available; 48 the start offset never falls; 49 what lies in the window; 50 no loss; 51 and 52 refusals change nothing; 53 locks
end; 54 and 55 bounds; 60 dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from barnabas_coordination.share import acquiring, partition
from barnabas_coordination.share.acquiring import AcquireRequest, BatchSpan
from barnabas_coordination.share.description import describe
from barnabas_coordination.share.partition import Acknowledgement, SharePartition, Write
from barnabas_coordination.share.window import Window
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import DeliveryState, ShareState, StateBatch
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.kafka.messages.share_acknowledge import AcknowledgeType
from tests.broker.coordinator.share_partitions import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
)

LOCK_MS = 15_000
MEMBERS = ("a", "b", "c")
STEPS = 300
TERMINAL = (ACKNOWLEDGED, ARCHIVED)


@dataclass
class Known:
    """One offset in the model."""

    state: DeliveryState = AVAILABLE
    count: int = 0
    owner: str = ""
    lock_ms: int = 0
    due_ms: int = 0
    target: DeliveryState | None = None
    """Of an acknowledgement that is not written yet."""
    target_due_ms: int = 0


class Laws:
    """Members, a clock, a log, a persister that may fail, and leaders that move."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.settings = ShareSettings(
            delivery_count_limit=random.randint(2, 5),
            partition_max_record_locks=random.choice([5, 12, 40]),
            record_lock_duration_ms=LOCK_MS,
            dead_letter_topic=random.choice(["", "dlq"]),
            retry_backoff_ms=random.choice([0, 0, 500]),
            delayed_records_max=6,
        )
        self.now_ms = 1_000_000
        self.log: list[tuple[int, int]] = []
        self.log_start = 0
        self.end = 0
        self.core = SharePartition(ShareState(Epoch(1), Offset(0)), self.settings, start_offset=Offset(0))
        self.model: dict[int, Known] = {}
        """In the window."""
        self.stored: dict[int, StateBatch] = {}
        """As the share coordinator merges it, by offset."""
        self.stored_start = 0
        self.start = 0
        self.write: Write | None = None
        self.writing: dict[int, Known] = {}
        self.done: set[int] = set()
        """Whose acknowledgement was answered without an error, but for a release."""
        self.owed: set[int] = set()
        """Rejected or exhausted, with a group that has dead letters, as far as that is written."""
        self.letters: list[int] = []
        self.passed: dict[int, Known] = {}
        """Below the log's start, with a target that is in no write yet."""

    # -- what happens ------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Let things happen, the usual ones more often, and then all that can end do so."""
        events = [self.grow] * 3 + [self.fetch] * 6 + [self.acknowledge] * 8 + [self.write_begins] * 5
        events += [self.write_ends] * 5 + [self.wait] * 3 + [self.post] * 2
        events += [self.leave, self.move_leader, self.log_start_moves]
        for _ in range(steps):
            self.random.choice(events)()
            self.check()
        self.end_all()

    def check(self) -> None:
        self.the_window_is_the_models()
        self.no_exhausted_offset_is_available()
        self.the_window_keeps_to_its_bound()
        self.an_alarm_comes_for_every_lock()

    def grow(self) -> None:
        if self.end - self.start < 100:
            size, hole = self.random.randint(1, 6), self.random.choice([0, 0, 0, 2])
            base = self.end + hole
            self.log.append((base, base + size - 1))
            self.end = base + size

    def fetch(self) -> None:
        random = self.random
        self.fetch_as(random.choice(MEMBERS), random.randint(1, 12), random.randint(1, 8), random.random() < 0.5)

    def fetch_as(self, member: str, most: int, size: int, is_strict: bool) -> None:
        self.tick()
        offset = self.core.fetch_offset()
        if offset is None:
            assert not self.ready(), "there is something to deliver again"
            assert describe(self.core).is_full or self.core.is_bound_by_delayed
            return
        spans = [BatchSpan(*each) for each in self.log if each[1] >= offset]
        request = AcquireRequest(member, most, size, is_strict)
        before = self.core.window.end
        found = self.core.acquire(spans, request, from_offset=offset, now_ms=self.now_ms)
        there = {offset for base, last in self.log for offset in range(base, last + 1)}
        got = [(each, count) for first, last, count in found for each in range(first, last + 1)]
        assert got == sorted(set(got)), "law 45: twice in one answer, or out of order"
        if got:
            assert all(later > before for later, before in zip(got[1:], got, strict=False))
        for each, count in got:
            assert each >= self.core.window.start and each in there
            assert each not in self.done, f"law 44: {each} was acknowledged"
            known = self.model.setdefault(each, Known())
            assert known.state is AVAILABLE and known.due_ms <= self.now_ms, f"law 45: {each} is {known}"
            assert count == known.count + 1 <= self.settings.delivery_count_limit, "law 46"
            self.model[each] = Known(ACQUIRED, count, member, self.now_ms + LOCK_MS)
        taken = len(got)
        longest = max((last - base + 1 for base, last in self.log), default=0)
        assert taken <= most if is_strict else taken < most + longest, "law 55"
        for each in range(min(self.model, default=0), self.core.window.end + 1):
            if each not in there and each >= self.core.window.start:
                known = self.model.setdefault(each, Known())
                if known.state is AVAILABLE and self.core_state(each) is ARCHIVED:
                    self.model[each] = Known(ARCHIVED, known.count)
        self.start = max(self.start, self.core.window.start)
        if not got and self.core.window.end == before and not self.core.is_bound_by_delayed:
            assert not self.ready() & there, "law 50: nothing came, and something is ready"
            has_more = any(span.last_offset > self.core.window.end for span in spans)
            assert not has_more or self.model, "law 50: nothing came, and nothing is in the way"

    def acknowledge(self) -> None:
        self.tick()
        random = self.random
        member = random.choice(MEMBERS)
        held = {offset: known.owner for offset, known in self.model.items() if known.owner and known.target is None}
        batches: list[Acknowledgement] = []
        if held and random.random() < 0.8:  # of what it has
            first = random.choice(sorted(held))
            member = held[first]
            last = first
            while held.get(last + 1) == member and random.random() < 0.7:
                last += 1
            batches.append(Acknowledgement(Offset(first), Offset(last), random.choice(list(AcknowledgeType))))
        else:
            before = -1
            for _ in range(random.randint(1, 3)):
                first = max(self.start - 3 + random.randint(0, 20), before + random.choice([1, 1, 1, 0]), 0)
                before = first + random.choice([0, 0, 1, 2, 5])
                type_ = random.choice(list(AcknowledgeType))
                batches.append(Acknowledgement(Offset(first), Offset(before), type_))
        expected = self.judge(member, batches)
        text = self.text()
        try:
            self.core.acknowledge(member, batches, None, now_ms=self.now_ms)
        except KafkaError as error:
            assert error.code == expected, f"{batches}: {error} and not {expected}"
            assert self.text() == text, "law 52: a refusal changed something"
            return
        assert not expected, f"law 51: {batches} should have been {expected}"
        for first, last, type_ in batches:
            for offset in range(max(first, self.start), last + 1):
                known = self.model[offset]
                if known.state is not ACQUIRED:
                    continue
                if type_ is RENEW:
                    known.lock_ms = self.now_ms + LOCK_MS
                    continue
                known.target = self.outcome(type_, known.count)
                if known.target is AVAILABLE and self.settings.retry_backoff_ms:
                    known.target_due_ms = self.now_ms + self.settings.retry_backoff_ms

    def judge(self, member: str, batches: list[Acknowledgement]) -> ErrorCode:
        before = -1
        for first, last, _ in batches:
            if last < self.log_start:
                continue
            first = max(first, Offset(self.log_start))
            if first <= before or first < self.start:
                return ErrorCode.INVALID_RECORD_STATE
            if not self.model:
                return ErrorCode.INVALID_RECORD_STATE
            if last > max(self.model):
                return ErrorCode.INVALID_REQUEST
            for offset in range(first, last + 1):
                known = self.model[offset]
                if known.state is ARCHIVED and not known.count:
                    continue
                if known.state is not ACQUIRED or known.owner != member or known.target is not None:
                    return ErrorCode.INVALID_RECORD_STATE
            before = last
        return ErrorCode.NONE

    def outcome(self, type_: AcknowledgeType, count: int) -> DeliveryState:
        given_up = ARCHIVING if self.settings.dead_letter_topic else ARCHIVED
        if type_ is AcknowledgeType.ACCEPT:
            return ACKNOWLEDGED
        if type_ is GAP:
            return ARCHIVED
        if type_ is REJECT:
            return given_up
        assert type_ is RELEASE
        return AVAILABLE if count < self.settings.delivery_count_limit else given_up

    def wait(self) -> None:
        self.wait_for(self.random.choice([1, 500, 5_000, LOCK_MS]))

    def wait_for(self, ms: int) -> None:
        self.now_ms += ms
        self.tick()

    def tick(self) -> None:
        self.core.tick(self.now_ms)
        for known in self.model.values():
            if known.state is ACQUIRED and known.target is None and known.lock_ms <= self.now_ms:
                self.let_go(known)
            if known.due_ms and known.due_ms <= self.now_ms:
                known.due_ms = 0

    def let_go(self, known: Known) -> None:
        known.state = self.outcome(RELEASE, known.count)
        known.owner, known.lock_ms, known.target = "", 0, None

    def leave(self) -> None:
        self.tick()
        member = self.random.choice(MEMBERS)
        self.core.release(member, now_ms=self.now_ms)
        for known in self.model.values():
            if known.owner == member and known.state is ACQUIRED:
                if known.target is None:
                    self.let_go(known)
                known.owner = ""
        assert not any(run.member == member and run.change is None for run in self.core.window.runs), (
            "law 62: the member still has records"
        )

    def write_begins(self) -> None:
        if self.write is None:
            self.write = self.core.take_write(self.now_ms)
            if self.write is not None:
                assert self.write.start_offset == self.start
                self.writing = {offset: known for offset, known in self.model.items() if known.target is not None}
                self.writing |= self.passed
                self.passed = {}
                promised = [known.target or known.state for known in self.model.values()]
                assert self.write.complete_count == sum(state in TERMINAL for state in promised), "law 64"

    def write_ends(self) -> None:
        self.end_write(self.random.random() < 0.3)

    def end_write(self, fails: bool) -> None:
        if self.write is None:
            return
        write, self.write = self.write, None
        if not fails:
            self.store(write)
        error = KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "") if fails else None
        self.core.written(error, now_ms=self.now_ms)
        for offset, known in self.writing.items():
            target, known.target = known.target, None
            if self.model.get(offset) is not known:
                if target is ARCHIVING and not fails:
                    self.owed.add(offset)
                continue
            assert target is not None
            if fails:
                known.target_due_ms = 0
                if known.lock_ms <= self.now_ms or not known.owner:
                    self.let_go(known)
                continue
            known.state, known.owner, known.lock_ms, known.due_ms = target, "", 0, known.target_due_ms
            known.target_due_ms = 0
            if target is not AVAILABLE:
                self.done.add(offset)
        if not fails:
            self.advance()

    def advance(self) -> None:
        while self.model and self.model.get(self.start, Known()).state in TERMINAL:
            del self.model[self.start]
            self.start += 1

    def store(self, write: Write) -> None:
        """As the share coordinator merges (4.4): the higher count wins, then the higher state."""
        for first, last, state, count, due_ms in write.batches:
            for offset in range(first, last + 1):
                known = self.stored.get(offset)
                if known is None or (count, state) >= (known.deliveries, known.state):
                    self.stored[offset] = StateBatch(Offset(offset), Offset(offset), state, count, due_ms)
                if state is ARCHIVING:
                    self.owed.add(offset)
        self.stored_start = max(self.stored_start, write.start_offset)
        self.stored = {offset: batch for offset, batch in self.stored.items() if offset >= self.stored_start}

    def post(self) -> None:
        self.post_letters(self.random.random() < 0.5)

    def post_letters(self, fails: bool) -> None:
        letters = self.core.take_letters(self.now_ms)
        if not letters:
            return
        for letter in letters:
            assert letter.offset in self.owed, f"law 60: the dead letter of {letter.offset} precedes its state"
        self.core.posted([each.offset for each in letters] if fails else (), now_ms=self.now_ms)
        if not fails:
            self.letters += [each.offset for each in letters]
            for letter in letters:
                known = self.model.get(letter.offset)
                if known is not None and known.state is ARCHIVING:
                    self.model[letter.offset] = Known(ARCHIVED, known.count)

    def move_leader(self) -> None:
        """The write under way may or may not have been kept; here it was not."""
        self.write = None
        kept = {each for each, batch in self.stored.items() if batch.state >= ARCHIVING}
        self.owed &= kept | set(self.letters)  # of what retention took, only this leader knew
        batches: list[StateBatch] = []
        for offset in sorted(self.stored):
            batches.append(self.stored[offset])
        self.core = SharePartition(
            ShareState(Epoch(1), Offset(self.stored_start), batches),
            self.settings,
            start_offset=Offset(self.stored_start),
        )
        self.core.log_starts_at(Offset(self.log_start))
        self.core.tick(self.now_ms)
        last = max(self.stored, default=self.stored_start - 1)
        self.model = {offset: Known() for offset in range(self.stored_start, last + 1)}
        for offset, batch in self.stored.items():
            due_ms = batch.due_ms if batch.due_ms > self.now_ms else 0
            self.model[offset] = Known(batch.state, batch.deliveries, due_ms=due_ms)
        self.start = self.stored_start
        self.passed = {}
        self.advance()
        if self.start < self.log_start:
            self.forget_below(self.log_start)

    def log_start_moves(self) -> None:
        gone = [base + (last - base) // 2 for base, last in self.log if base >= self.log_start]
        gone = gone[: self.random.randint(1, 2)]
        if not gone:
            return
        self.log_start = gone[-1]
        self.log = [each for each in self.log if each[1] >= self.log_start]
        self.core.log_starts_at(Offset(self.log_start))
        self.forget_below(self.log_start)

    def forget_below(self, offset: int) -> None:
        if offset > self.start:
            self.start = offset
            for each in [each for each in self.model if each < offset]:
                known = self.model.pop(each)
                if known.state is ARCHIVING:
                    self.owed.add(each)
                elif known.target is not None and (self.write is None or self.writing.get(each) is not known):
                    self.passed[each] = known
            self.advance()

    # -- what always holds -------------------------------------------------------------------------------------------

    def ready(self) -> set[int]:
        return {offset for offset, known in self.model.items() if known.state is AVAILABLE and not known.due_ms}

    def core_state(self, offset: int) -> DeliveryState | None:
        for run in self.core.window.within(offset, offset):
            return run.state
        return None

    def text(self) -> list[Any]:
        return [
            (offset, run.state, run.deliveries, run.member, run.lock_ms, run.target, run.due_ms)
            for run in self.core.window.runs
            for offset in range(run.first, run.last + 1)
        ]

    def the_window_is_the_models(self) -> None:
        window = self.core.window
        assert window.start == self.start, "law 48"
        seen = {}
        next_offset = window.start
        counts = [0] * 5
        for run in window.runs:
            assert run.first == next_offset, f"law 49: a hole before {run}"
            next_offset = Offset(run.last + 1)
            counts[run.state] += run.last - run.first + 1
            for offset in range(run.first, run.last + 1):
                target = run.target if run.change is not None else None
                seen[offset] = (run.state, run.deliveries, run.member, run.lock_ms, run.due_ms, target)
        known = {
            offset: (each.state, each.count, each.owner, each.lock_ms, each.due_ms, each.target)
            for offset, each in self.model.items()
        }
        assert seen == known
        assert counts == window.counts
        for before, after in zip(window.runs, window.runs[1:], strict=False):
            assert not before.is_like(after), "equal neighbours are one run"

    def no_exhausted_offset_is_available(self) -> None:
        for offset, known in self.model.items():
            if known.state is AVAILABLE:
                assert known.count < self.settings.delivery_count_limit, f"law 47: {offset} {known}"

    def the_window_keeps_to_its_bound(self) -> None:
        window = self.core.window
        most = self.settings.partition_max_record_locks + self.settings.delayed_records_max + 5
        assert window.end - window.start + 1 <= most, "law 54"

    def an_alarm_comes_for_every_lock(self) -> None:
        times = [run.lock_ms for run in self.core.window.runs if run.state is ACQUIRED and run.change is None]
        if times:
            assert self.core._alarms and self.core._alarms[0][0] <= min(times), "law 53"

    def end_all(self) -> None:
        """What is owed to the dead letters gets there, and everything is complete."""
        for _ in range(200):
            self.write_begins()
            self.end_write(False)
            self.post_letters(False)
            self.wait_for(LOCK_MS)
            self.fetch_as("a", 100, 100, False)
            own = [offset for offset, known in self.model.items() if known.owner == "a" and known.target is None]
            for offset in own:
                self.core.acknowledge(
                    "a",
                    [Acknowledgement(Offset(offset), Offset(offset), AcknowledgeType.ACCEPT)],
                    None,
                    now_ms=self.now_ms,
                )
                self.model[offset].target = ACKNOWLEDGED
            self.the_window_is_the_models()
            if not self.model and self.start >= self.end and self.owed <= set(self.letters):
                break
        assert self.start >= self.end or not [each for each in self.log if each[0] >= self.start], "law 50: it stands"
        assert self.owed <= set(self.letters), "law 60: a dead letter is missing"


def search(seeds: range) -> None:
    for seed in seeds:
        Laws(seed).run(STEPS)


@pytest.mark.parametrize("seed", range(12))
def test_the_laws_hold_in_any_order_of_events(seed: int) -> None:
    search(range(seed * 4, seed * 4 + 4))


def _never_checks_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: SharePartition, member: str, piece: Acknowledgement) -> None:
        real(self, next((run.member for run in self.window.within(piece.first, piece.last)), member), piece)

    real = SharePartition._check
    monkeypatch.setattr(SharePartition, "_check", check)


def _moves_the_start_over_what_is_archiving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_coordination.share.window._TERMINAL", (*TERMINAL, ARCHIVING))


def _lets_an_exhausted_record_go_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def let_go(self: SharePartition, run: Any) -> None:
        self._set(run, AVAILABLE)
        self._dirty.append((Offset(run.first), Offset(run.last)))

    monkeypatch.setattr(SharePartition, "_let_go", let_go)


def _forgets_the_alarm_of_a_renewed_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SharePartition._renew

    def renew(self: SharePartition, piece: Acknowledgement, now_ms: int) -> None:
        alarms = list(self._alarms)
        real(self, piece, now_ms)
        self._alarms = [each for each in alarms if each[1:] != (piece.first, piece.last)]

    monkeypatch.setattr(SharePartition, "_renew", renew)


def _counts_a_change_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SharePartition.written

    def written(self: SharePartition, error: KafkaError | None, *, now_ms: int) -> Any:
        return real(self, None, now_ms=now_ms)

    monkeypatch.setattr(SharePartition, "written", written)


def _writes_dead_letters_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SharePartition._set

    def put(self: SharePartition, run: Any, state: DeliveryState, *, due_ms: int = 0) -> None:
        real(self, run, state, due_ms=due_ms)
        if state is ARCHIVING and not run.is_posted:
            run.is_posted = True
            self.letters.add(run)

    monkeypatch.setattr(SharePartition, "_set", put)


def _takes_the_bound_for_that_of_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquiring, "room_in", lambda window, settings, *, below: settings.partition_max_record_locks)
    monkeypatch.setattr(partition, "room_in", lambda window, settings, *, below: settings.partition_max_record_locks)


def _forgets_a_run_when_it_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Window.cut

    def cut(self: Window, first: int, last: int) -> tuple[int, int]:
        start, stop = real(self, first, last)
        return start, max(start + 1, stop) if stop > start + 1 and first % 3 == 0 else stop - (stop > start + 1)

    monkeypatch.setattr(Window, "cut", cut)


@pytest.mark.parametrize(
    "plant",
    [
        _never_checks_the_owner,
        _moves_the_start_over_what_is_archiving,
        _lets_an_exhausted_record_go_again,
        _forgets_the_alarm_of_a_renewed_lock,
        _counts_a_change_before_it_is_written,
        _writes_dead_letters_at_once,
        _takes_the_bound_for_that_of_one_request,
        _forgets_a_run_when_it_splits,
    ],
)
def test_a_planted_bug_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, KafkaError)):
        search(range(20))
