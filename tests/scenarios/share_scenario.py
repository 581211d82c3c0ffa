"""Interprets scripts about one share partition on its leader (KIP-932, 1191, 1206, 1222), of a log with the batches 0-9, 10-19 and 20-29.

Commands (M names a member, OFFSETS are one like 7 or a range like 0-9):
  log OFFSETS…              the log has these batches instead
  start N                   the state that is read begins there; 0 at first
  known OFFSETS STATE [N] [due=MS]    so does it say of these, delivered N times, once at first
  set NAME=VALUE…           settings of the group, by their names in ShareSettings
  load                      another leader loads the partition: what `start` and `known` said
  fetch M [most=N] [size=N] [strict]    prints what it acquires, with the delivery count
  accept|release|reject|renew|gap M OFFSETS…    acknowledges
  ack M TYPE:OFFSETS…       the same in one request
  write [fails]             what is to be written is kept, or is not
  begin / end               the same in two steps
  wait MS                   time passes
  leave M                   the member is gone
  letters [fail]            dead letters that are due are written, or are not
  begins N                  the log begins there from now on
  aborted N…                batches that are of aborted transactions, by their first offset
  due OFFSETS [N=MS…]       these records were opened: which are due in how long
  next                      where to read, and to open records, and when to look again
  describe                  what operators are told

After each command the window is printed, if it has changed: →STATE is what a change will make of a run once it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas_coordination.share.description import describe
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import DeliveryState, StateBatch
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.kafka.messages.share_acknowledge import AcknowledgeType
from tests.broker.coordinator.share_partitions import START_MS, Driven, state_batch

VERBS = ("accept", "release", "reject", "renew", "gap")


class ShareScenario:
    """One script."""

    def __init__(self) -> None:
        self.batches = [(0, 9), (10, 19), (20, 29)]
        self.start = 0
        self.known: list[StateBatch] = []
        self.settings: dict[str, Any] = {}
        self.aborted: set[int] = set()
        self._one: Driven | None = None
        self.shown = "0:"
        self.printed: list[str] = []

    @property
    def one(self) -> Driven:
        """The partition, which is loaded with its first use."""
        if self._one is None:
            self._one = Driven(self.batches, start=self.start, known=self.known, **self.settings)
            self._one.aborted = self.aborted
        return self._one

    def run(self, command: str) -> list[str]:
        """See Scenario."""
        self.printed = []
        verb, *words = command.split()
        if verb in VERBS:
            self._do_ack(words[0], *(f"{verb}:{each}" for each in words[1:]))
        else:
            do: Callable[..., None] | None = getattr(self, f"_do_{verb}", None)
            if do is None:
                raise ValueError(f"no command {verb}")
            do(*words)
        if self._one is not None and self.one.text != self.shown:
            self.shown = self.one.text
            self.printed.append(f"  {self.shown}")
        return self.printed

    def close(self) -> None:
        """See Scenario."""

    def _do_log(self, *batches: str) -> None:
        self.batches = [_offsets(each) for each in batches]
        if self._one is not None:
            self._one.batches = self.batches

    def _do_start(self, offset: str) -> None:
        self.start = int(offset)

    def _do_known(self, offsets: str, state: str, deliveries: str = "1", due: str = "due=0") -> None:
        due_ms = int(due.removeprefix("due="))
        at_ms = START_MS + due_ms if due_ms else 0
        self.known.append(state_batch(*_offsets(offsets), DeliveryState[state], int(deliveries), at_ms))

    def _do_set(self, *settings: str) -> None:
        for each in settings:
            name, _, value = each.partition("=")
            type_ = type(getattr(ShareSettings(), name))
            self.settings[name] = value == "true" if type_ is bool else type_(value)
        if self._one is not None:
            self._one.set(**self.settings)

    def _do_load(self) -> None:
        self._one = None
        assert self.one

    def _do_fetch(self, member: str, *options: str) -> None:
        numbers = {name: int(number) for name, _, number in (each.partition("=") for each in options) if number}
        found = self.one.fetch(member, **numbers, strict="strict" in options)
        ranges = "nowhere to read" if found is None else ", ".join(f"{_range(*each[:2])} ({each[2]})" for each in found)
        self.printed.append(f"{member}: {ranges or 'nothing'}")

    def _do_ack(self, member: str, *pieces: str) -> None:
        asked = []
        for piece in pieces:
            type_, _, offsets = piece.partition(":")
            asked.append((*_offsets(offsets), AcknowledgeType[type_.upper()]))
        code = self.one.acks(asked, member, keep=False)
        if code:
            self.printed.append(f"{member}: {ErrorCode(code).name}")

    def _do_write(self, *fails: str) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else None
        self.printed.append(f"{'fails to write' if fails else 'writes'} {self.one.write(error).rstrip(': ')}")

    def _do_begin(self) -> None:
        write = self.one.core.take_write(self.one.now_ms)
        self.printed.append("nothing to write" if write is None else f"writes what {len(write.changes)} asked for")

    def _do_end(self) -> None:
        self.one.core.written(None, now_ms=self.one.now_ms)

    def _do_wait(self, ms: str) -> None:
        self.one.wait(int(ms))

    def _do_leave(self, member: str) -> None:
        self.one.core.release(member, now_ms=self.one.now_ms)

    def _do_letters(self, *fail: str) -> None:
        found = [
            f"{offset} ({deliveries}, {'rejected' if is_rejected else 'delivered too often'})"
            for offset, deliveries, is_rejected in self.one.letters(fails=bool(fail))
        ]
        self.printed.append(f"letters of {', '.join(found)}" if found else "no letters")

    def _do_begins(self, offset: str) -> None:
        self.one.core.log_starts_at(Offset(int(offset)))

    def _do_aborted(self, *bases: str) -> None:
        self.aborted |= set(map(int, bases))

    def _do_due(self, offsets: str, *waiting: str) -> None:
        first, last = _offsets(offsets)
        now_ms = self.one.now_ms
        due = [(Offset(int(each)), now_ms + int(ms)) for each, _, ms in (word.partition("=") for word in waiting)]
        self.one.core.delay(Offset(first), Offset(last), due, now_ms=now_ms)

    def _do_next(self) -> None:
        core = self.one.core
        at_ms = core.alarm_ms
        again = "looks again never" if at_ms is None else f"looks again in {at_ms - self.one.now_ms}"
        self.printed.append(f"reads at {core.fetch_offset()}, opens at {core.examine_from()}, {again}")

    def _do_describe(self) -> None:
        told = describe(self.one.core)
        since = f", oldest lock {self.one.now_ms - told.oldest_lock_ms} ms old" if told.oldest_lock_ms else ""
        bounds = (", full" if told.is_full else "") + (", bound by delayed" if told.is_bound_by_delayed else "")
        counts = ", ".join(f"{count}: {offsets}" for count, offsets in told.deliveries)
        self.printed += [
            f"{told.start_offset} to {told.end_offset}: in flight {told.in_flight}, acquired {told.acquired}, "
            f"available {told.available}, delayed {told.delayed}, archiving {told.archiving}, held {told.held_letters}"
            f"{since}{bounds}; deliveries {counts or 'none'}"
        ]


def _offsets(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
