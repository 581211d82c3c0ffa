"""Dead letters of one share partition that are not written yet: due, under way, held after a failure, or owed until a write has shown
that this broker still leads.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network, the window.
Invariants: one take is under way at a time; what a take had is written, or waits again with a longer pause, or is given up by the caller;
            what is owed is due only after a write that began later has succeeded.
Read next:  partition.py, which decides which records get one; letters.py, what a letter says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from barnabas_coordination.share.window import Change, Run
from barnabas_wire.kafka.ids import Offset

LETTERS_MAX: Final = 500
"""Dead letters of one take."""
LETTER_RETRY_MS: Final = 1_000
"""Pause after a dead letter could not be written; doubled with each further failure, up to the next."""
LETTER_RETRY_MS_MAX: Final = 60_000


class Letter(NamedTuple):
    """An offset that was given up, for the dead letters."""

    offset: Offset
    deliveries: int
    is_rejected: bool
    """Rejected by a member; else delivered too often."""
    attempts: int = 0
    """How often it could not be written."""
    at_ms: int = 0
    """When to try again."""


class WaitingLetters:
    """All of one share partition."""

    __slots__ = ("_earliest_ms", "_owed", "_posting", "_proving", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Letter] = []
        self._earliest_ms: int | None = None
        """When the first of them is due: thousands may be held, and every acknowledgement asks."""
        self._posting: dict[Offset, Letter] = {}
        """Under way."""
        self._owed: list[tuple[Letter, Change | None]] = []
        """Letters for records that the log no longer has, with the change that gave them up: due once a later write succeeds."""
        self._proving: list[tuple[Letter, Change | None]] = []
        """The same, due once the write under way succeeds."""

    # -- what is due ---------------------------------------------------------------------------------------------------

    def add(self, run: Run) -> None:
        """These were given up, and that is written."""
        self._wait(_letters_of(run))

    def _wait(self, letters: Sequence[Letter]) -> None:
        self._waiting += letters
        times = [letter.at_ms for letter in letters]
        self._earliest_ms = min(times if self._earliest_ms is None else [self._earliest_ms, *times], default=None)

    def has_due(self, now_ms: int) -> bool:
        """Whether `take` has something to give."""
        return not self._posting and self._earliest_ms is not None and self._earliest_ms <= now_ms

    def take(self, now_ms: int) -> Sequence[Letter]:
        """Those to write now; empty while some are under way. To be followed by `posted`."""
        if not self.has_due(now_ms):
            return ()
        due = [letter for letter in self._waiting if letter.at_ms <= now_ms][:LETTERS_MAX]
        self._posting = {letter.offset: letter for letter in due}
        left, self._waiting, self._earliest_ms = self._waiting, [], None
        self._wait([letter for letter in left if letter.offset not in self._posting])
        return due

    def posted(self, unwritten: Collection[Offset], *, holds: bool, now_ms: int) -> list[Offset]:
        """What was taken is written, but for these, which wait again if the group holds them. Returns the offsets that are done."""
        posting, self._posting = self._posting, {}
        done = [offset for offset in posting if offset not in unwritten]
        if not holds:
            return [*done, *unwritten]
        for letter in map(posting.__getitem__, unwritten):
            wait_ms = min(LETTER_RETRY_MS << min(letter.attempts, 16), LETTER_RETRY_MS_MAX)
            self._wait([letter._replace(attempts=letter.attempts + 1, at_ms=now_ms + wait_ms)])
        return done

    def give_up(self) -> list[Offset]:
        """The group has no dead letters any more: forget those that wait, and return their offsets; none while some are under way."""
        if self._posting:
            return []
        offsets = [letter.offset for letter in self._waiting]
        self._waiting, self._earliest_ms = [], None
        return offsets

    @property
    def next_ms(self) -> int | None:
        """When one is due; None while some are under way, or where none waits."""
        return None if self._posting else self._earliest_ms

    @property
    def held(self) -> int:
        """How many could not be written, and wait to be tried again."""
        return sum(1 for letter in self._waiting if letter.attempts)

    @property
    def is_empty(self) -> bool:
        """Whether none is due, or will be by itself, or is under way."""
        return not self._waiting and not self._posting

    # -- what is owed --------------------------------------------------------------------------------------------------

    def owe(self, run: Run) -> None:
        """The log took these while they were being given up."""
        self._owed += [(letter, run.change) for letter in _letters_of(run)]

    @property
    def is_owing(self) -> bool:
        """Whether a write is wanted for the sake of what is owed."""
        return bool(self._owed)

    def prove(self) -> bool:
        """A write begins; whether it has something to prove."""
        self._proving, self._owed = self._owed, []
        return bool(self._proving)

    def proved(self) -> None:
        """The write has succeeded."""
        self._wait([letter for letter, _ in self._proving])
        self._proving = []

    def unproved(self, changes: Collection[Change]) -> None:
        """The write has failed, and these changes with it: what they gave up gets no letter."""
        both = (*self._proving, *self._owed)
        self._owed = [each for each in both if each[1] is None or each[1] not in changes]
        self._proving = []

    def abandon(self) -> None:
        """Another leads: it has what is owed."""
        self._owed, self._proving = [], []


def _letters_of(run: Run) -> list[Letter]:
    return [Letter(Offset(each), run.deliveries, run.is_rejected) for each in range(run.first, run.last + 1)]
