"""Fetches of share groups: acquire what their partitions have, are answered at once, or wait until there is something.

May touch:  share partitions led here, waiting lists of replicas, loop timers.   Must not touch: sockets, sessions, bytes of records.
Invariants: a fetch is answered at most once, and waits nowhere once it is; what a read holds goes out with the answer or is released.
Read next:  led_partition.py (where they wait), acquiring.py (what one acquires), batches.py (which bytes an answer has).

Not obvious: a fetch that finds too little waits in the lists of its partitions, and looks again when records come there, or are let go of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas_coordination.share.acquiring import Acquired, AcquireRequest
from barnabas_coordination.share.batches import BatchReader
from barnabas_coordination.share.led_partition import LedPartition, Surroundings, release
from barnabas_coordination.share.sessions import SharedPartition, ShareSession
from barnabas_log.disk import FileRange
from barnabas_log.errors import StorageFailed
from barnabas_replication.requests import Cancel, CurrentLeader, FetchOutcome
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset

HEADERS_MAX: Final = 4_096
"""Batches that one fetch looks at in a turn of the loop: about 5 ms."""
LOOKS_MAX: Final = 4
"""Reads of one partition for one fetch, where what was read cannot be delivered: aborted, or not due."""


class ShareFetch(NamedTuple):
    """What a member asks of all partitions of its session."""

    session: ShareSession
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    records_max: int
    batch_size: int
    is_strict: bool


class ShareOutcome(NamedTuple):
    """What one partition gave. The ranges in `parts` are the receiver's to release."""

    shared: SharedPartition
    error: KafkaError | None = None
    current_leader: CurrentLeader | None = None
    parts: tuple[FileRange, ...] = ()
    size_bytes: int = 0
    acquired: Sequence[Acquired] = ()


RespondShare = Callable[[list[ShareOutcome]], None]
"""Called at most once, never after its Cancel; with the partitions that have something to say."""


class _Wait:
    """A fetch, at one partition where it waits. Meets purgatory.Waiter."""

    __slots__ = ("fetch", "is_done", "led")

    replica_id = BrokerId(-1)

    def __init__(self, fetch: ParkedFetch, led: LedPartition) -> None:
        self.fetch = fetch
        self.led = led
        self.is_done = False

    def note(self) -> None:
        """See Waiter."""

    def look_again(self) -> None:
        """See Waiter."""
        if not self.fetch.is_done and self.led.has_something():
            self.fetch.look(is_due=False)

    def answer_now(self) -> None:
        """See Waiter."""
        self.fetch.expire()

    def leave(self) -> None:
        """Wait no more."""
        self.is_done = True
        self.led.waits.pop(self, None)
        self.led.partition.consumer_fetches.discard(self)


class ParkedFetch:
    """One fetch, until it is answered."""

    __slots__ = ("_around", "_ask", "_leds", "_refused", "_respond", "_timer", "_waits", "is_done")

    def __init__(
        self,
        around: Surroundings,
        ask: ShareFetch,
        leds: Sequence[LedPartition],
        refused: Sequence[ShareOutcome],
        respond: RespondShare,
    ) -> None:
        """leds: the partitions of the session that this broker leads. refused: what the others are answered."""
        self.is_done = False
        self._around = around
        self._ask = ask
        self._leds = leds
        self._refused = refused
        self._respond = respond
        self._waits: list[_Wait] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> Cancel:
        """Answer at once, or wait for max_wait_ms at most. Returns what ends the waiting without an answer."""
        ask = self._ask
        self.look(is_due=ask.max_wait_ms <= 0 or bool(self._refused))
        if not self.is_done:
            self._around.stats.fetches_parked += 1
            self._timer = asyncio.get_running_loop().call_later(ask.max_wait_ms / 1000, self.expire)
            for led in self._leds:
                wait = _Wait(self, led)
                self._waits.append(wait)
                led.waits[wait] = None
                led.partition.consumer_fetches.add(wait)
        return self.leave

    def expire(self) -> None:
        """Its time is up."""
        if not self.is_done:
            self.look(is_due=True)

    def leave(self) -> None:
        """Wait no more, unanswered."""
        self.is_done = True
        if self._timer is not None:
            self._timer.cancel()
        for wait in self._waits:
            wait.leave()
        self._waits.clear()

    def look(self, *, is_due: bool) -> None:
        """Acquire what there is, and answer if that is something, or it is time."""
        ask, around = self._ask, self._around
        outcomes = list(self._refused)
        reads: list[tuple[LedPartition, Offset, FetchOutcome]] = []
        bytes_left = min(ask.max_bytes, around.fetch_bytes_max)
        bytes_each = max(1, bytes_left // max(1, len(self._leds)))
        records_left, headers_left, size_bytes = ask.records_max, HEADERS_MAX, 0
        is_greedy = ask.min_bytes <= 1 or is_due
        for led in self._leds:
            error = led.check()
            if error is not None:
                outcomes.append(refusal(around, led.shared, error))
                is_due = True
            elif led.core is not None and records_left > 0 and headers_left > 0:
                led.core.follow(around.settings(led.key.group_id))
                for _ in range(LOOKS_MAX):
                    read = led.read(bytes_each, is_one_batch_due=size_bytes < bytes_left)
                    if read is None:
                        break
                    if read[1].error is not None:
                        outcomes.append(refusal(around, led.shared, read[1].error))
                        is_due = True
                        break
                    if not is_greedy:
                        size_bytes += read[1].size_bytes
                        reads.append((led, *read))
                        break
                    end = led.core.window.end
                    outcome, seen = self._acquire(led, read[0], read[1], records_left, headers_left)
                    headers_left -= seen
                    if outcome is not None:
                        records_left -= sum(last - first + 1 for first, last, _ in outcome.acquired)
                        size_bytes += outcome.size_bytes
                        outcomes.append(outcome)
                        break
                    if led.core.window.end == end or headers_left <= 0:
                        break
        is_enough = size_bytes >= ask.min_bytes or is_due
        for led, offset, read_outcome in reads:
            if not is_enough or records_left <= 0 or headers_left <= 0:
                release(read_outcome)
                continue
            outcome, seen = self._acquire(led, offset, read_outcome, records_left, headers_left)
            headers_left -= seen
            if outcome is not None:
                records_left -= sum(last - first + 1 for first, last, _ in outcome.acquired)
                outcomes.append(outcome)
        if is_due or outcomes:
            self.leave()
            self._respond(outcomes)

    def _acquire(
        self, led: LedPartition, offset: Offset, read: FetchOutcome, records_max: int, headers_max: int
    ) -> tuple[ShareOutcome | None, int]:
        """What the member gets of a read, and how many headers were looked at. Takes the hold of the range."""
        core, around, ask = led.core, self._around, self._ask
        assert core is not None, "it is loaded"
        reader = BatchReader(read.parts[0], read.aborted, headers_max=headers_max)
        request = AcquireRequest(ask.session.member_id, records_max, max(1, ask.batch_size), ask.is_strict)
        acquired = core.acquire(reader.spans(), request, from_offset=offset, now_ms=around.clock_ms())
        parts, size_bytes = reader.pieces(acquired)
        led.obey()
        if not acquired:
            if reader.error is None:
                return None, len(reader.seen)
            error = StorageFailed(f"{led.partition.topic_partition} cannot be read: {reader.error}")
            return refusal(around, led.shared, error), len(reader.seen)
        around.stats.acquired_records += sum(last - first + 1 for first, last, _ in acquired)
        led.partition.traffic.bytes_out += size_bytes
        around.replicas.stats.fetched_bytes += size_bytes
        return ShareOutcome(led.shared, None, None, parts, size_bytes, acquired), len(reader.seen)


def refusal(around: Surroundings, shared: SharedPartition, error: KafkaError) -> ShareOutcome:
    """What a partition is answered that cannot be served; says who leads it, where that helps."""
    hint = None
    topic = around.metadata.image.topics.get_by_id(shared.topic_id)
    if topic is not None and error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        hint = around.replicas.hosted.leader_hint(topic.name, shared.partition)
    return ShareOutcome(shared, error, hint)
