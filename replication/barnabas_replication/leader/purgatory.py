"""Where requests wait: produces for an offset to be passed, long-poll fetches for bytes, both for their deadline.

May touch:  its arguments.                Must not touch: asyncio, clock, log, network.
Invariants: every parked produce is settled exactly once per partition, and answered when its last partition is; a parked
            fetch is answered at most once and is in the waiting list of each of its partitions or in none.
Read next:  appends.py and fetches.py, which park and answer; partition.py, which releases.

Callbacks and deques, no future and no task per request: parking and releasing costs about a microsecond. Produces have no
timer each either: one coarse sweep expires them (appends.py), because their time-outs are long and nearly never reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas_replication.requests import (
    AppendOutcome,
    CurrentLeader,
    FetchPartitionSpecs,
    FetchSpec,
    RespondAppend,
    RespondFetch,
)
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset


class ParkedProduce:
    """One produce request whose records are in the log but not yet as far as it asked.

    Its maker holds it with one extra count and settles that when all partitions are appended: one of them may fail
    the directory of another, and the answer must not leave before it is whole.
    """

    __slots__ = ("deadline_ms", "outcomes", "remaining", "respond")

    def __init__(self, outcomes: list[AppendOutcome], respond: RespondAppend, deadline_ms: int) -> None:
        self.outcomes = outcomes
        self.respond = respond
        self.deadline_ms = deadline_ms
        self.remaining = 1

    def settle(self) -> None:
        """One of its partitions, or its maker, is done; the last one sends the answer."""
        self.remaining -= 1
        if self.remaining == 0:
            self.respond(self.outcomes)

    def fail(self, index: int, error: KafkaError, current_leader: CurrentLeader | None) -> None:
        """One of its partitions will not get there. The base offset stays: the records are written and may yet commit."""
        self.outcomes[index] = self.outcomes[index]._replace(error=error, current_leader=current_leader)
        self.settle()


class ProduceQueue:
    """Produces of one partition waiting for one of its offsets (HW, or the leader's own durable end), in append order.

    Append order is offset order, but for a repeated batch of an idempotent producer: it waits behind its juniors, which
    is late by microseconds and never wrong.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: deque[tuple[Offset, ParkedProduce, int]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first_offset(self) -> Offset | None:
        """The offset that the oldest request waits for; None when none waits."""
        if not self._entries:
            return None
        required_offset, _, _ = self._entries[0]
        return required_offset

    def park(self, required_offset: Offset, produce: ParkedProduce, index: int) -> None:
        """Wait until the offset is at least required_offset; index is the place in the produce's outcomes."""
        produce.remaining += 1
        self._entries.append((required_offset, produce, index))

    def release(self, offset: Offset) -> None:
        """The offset has come to `offset`: settle whoever waited for no more."""
        entries = self._entries
        while entries:
            required_offset, produce, _ = entries[0]
            if required_offset > offset:
                return
            entries.popleft()
            produce.settle()

    def fail_all(self, error: KafkaError, current_leader: CurrentLeader | None = None) -> None:
        """Answer every request that waits here with the error."""
        entries, self._entries = self._entries, deque()
        for _, produce, index in entries:
            produce.fail(index, error, current_leader)

    def expire(self, now_ms: int, make_error: Callable[[], KafkaError]) -> int:
        """Fail those whose deadline has come; returns how many."""
        expired: list[tuple[ParkedProduce, int]] = []
        kept: deque[tuple[Offset, ParkedProduce, int]] = deque()
        for entry in self._entries:
            _, produce, index = entry
            if produce.deadline_ms <= now_ms:
                expired.append((produce, index))
            else:
                kept.append(entry)
        if expired:
            self._entries = kept
            for produce, index in expired:
                produce.fail(index, make_error(), None)
        return len(expired)


class Waiter(Protocol):
    """What waits for news of a partition: a parked fetch, or a partition of a follower's session (fetch_session.py)."""

    is_done: bool

    @property
    def replica_id(self) -> BrokerId:
        """The replica whose fetch it is; -1: a consumer's."""
        ...

    def note(self) -> None:
        """Something happened that can wait for the next answer."""
        ...

    def look_again(self) -> None:
        """Something happened that may be worth an answer."""
        ...

    def answer_now(self) -> None:
        """Answer, whatever there is."""
        ...


class WaitingList:
    """The fetches that wait for one partition. A dict for its order: answers go out in order of arrival, on each run
    alike."""

    __slots__ = ("_fetches",)

    def __init__(self) -> None:
        self._fetches: dict[Waiter, None] = {}

    def __bool__(self) -> bool:
        return bool(self._fetches)

    def __len__(self) -> int:
        return len(self._fetches)

    def add(self, fetch: Waiter) -> None:
        """Wait here."""
        self._fetches[fetch] = None

    def discard(self, fetch: Waiter) -> None:
        """Wait here no more."""
        self._fetches.pop(fetch, None)

    def wake(self) -> None:
        """Let every fetch look again; those that stay unsatisfied stay."""
        for fetch in tuple(self._fetches):
            if not fetch.is_done:
                fetch.look_again()

    def note(self) -> None:
        """Let the next answers cover the partition, without an answer for its sake."""
        for fetch in self._fetches:
            fetch.note()

    def fetches(self) -> tuple[Waiter, ...]:
        """Those that wait, in order of arrival."""
        return tuple(self._fetches)


class ParkedFetch:
    """One fetch that found too little to answer yet."""

    __slots__ = ("_expire", "_look_again", "cancel_timer", "is_done", "partitions", "request", "respond", "waits_in")

    def __init__(
        self,
        request: FetchSpec,
        partitions: FetchPartitionSpecs,
        respond: RespondFetch,
        look_again: Callable[[ParkedFetch], None],
        expire: Callable[[ParkedFetch], None],
    ) -> None:
        self.request = request
        self.partitions = partitions
        self.respond = respond
        self._look_again = look_again
        self._expire = expire
        self.is_done = False
        self.waits_in: list[WaitingList] = []
        self.cancel_timer: Callable[[], None] | None = None

    @property
    def replica_id(self) -> BrokerId:
        """See Waiter."""
        return self.request.replica_id

    def note(self) -> None:
        """Its answer covers all its partitions anyway."""

    def look_again(self) -> None:
        """See Waiter."""
        self._look_again(self)

    def answer_now(self) -> None:
        """See Waiter."""
        self._expire(self)

    def wait_in(self, lists: Iterable[WaitingList]) -> None:
        """Enter the waiting list of every partition asked for."""
        for waiting in lists:
            waiting.add(self)
            self.waits_in.append(waiting)

    def leave(self) -> None:
        """Done: answered, or its connection is gone. Harmless when repeated."""
        if self.is_done:
            return
        self.is_done = True
        if self.cancel_timer is not None:
            self.cancel_timer()
            self.cancel_timer = None
        for waiting in self.waits_in:
            waiting.discard(self)
        self.waits_in.clear()
