"""The memory that requests of all clients of a node may take: what is used, who waits for room, who is closed to make room.

May touch:  its own counts.           Must not touch: sockets, buffers, clock.
Invariants: what is used is what was taken and not given back; those that wait continue in the order of their coming; a
            client that sends nothing is closed before one that waits for this node, and one that has sent more than was
            read never; another broker never waits.
Read next:  framing.py and output.py, which take; connection.py, which waits; listener.py, which relieves.

Counted are requests that have not come whole, whole ones that wait for their turn or for their answer, and answers in memory that a
client does not read. Not counted: ranges of files, which are no memory, and what one turn of the loop takes and gives back.

As in Kafka (queued.max.request.bytes) the bound is passed by one request at most: one that found room continues. Beyond
Kafka: a large request finds room up to three quarters only, so that large ones which never end leave small ones room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

RELIEF_S: Final = 0.5
"""The time between two looks for connections without progress, while memory is scarce."""
READ_BYTES: Final = 8 * 1024
"""One read takes no more than this while memory is scarce: what is read must be kept if there is no room for the rest."""
ANSWER_BYTES: Final = 64 * 1024
"""Bytes of answers that may wait on one connection while memory is scarce."""


class Waiter(Protocol):
    """A connection, as this sees it."""

    is_of_broker: bool
    last_active: float

    @property
    def kept_bytes(self) -> int:
        """What would be given back if it were closed."""
        ...

    @property
    def is_waited_for(self) -> bool:
        """Whether the client waits for an answer of this node."""
        ...

    @property
    def has_sent_more(self) -> bool:
        """Whether bytes of the client wait to be read."""
        ...

    def wanted(self) -> tuple[int, bool]:
        """Bytes that it takes next, and whether they are for a large request."""
        ...

    def go_on_reading(self) -> None:
        """There is room now."""
        ...


W = TypeVar("W", bound=Waiter)


class RequestMemory:
    """The memory that requests of one node use. Not thread safe."""

    __slots__ = ("_large_max", "_pressed_at", "_seen", "_waiting", "bytes_max", "is_pressed", "on_pressed", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.is_pressed = False
        """Whether more than half is used: reads are small then, and whoever wants more asks first."""
        self.on_pressed: Callable[[], None] | None = None
        """Called when that begins."""
        self._pressed_at = bytes_max // 2
        self._large_max = bytes_max // 4 * 3
        self._waiting: dict[Waiter, None] = {}
        self._seen: dict[Waiter, float] = {}
        """Those that kept memory at the last look, and when each had been active then."""

    def take(self, count: int) -> None:
        """Count bytes that are kept from now on."""
        self.used += count
        if self.used >= self._pressed_at and not self.is_pressed:
            self.is_pressed = True
            if self.on_pressed is not None:
                self.on_pressed()

    def give_back(self, count: int) -> None:
        """They are not kept any more."""
        self.used -= count
        if self.is_pressed and self.used < self._pressed_at and not self._waiting:
            self.is_pressed = False

    def has_room(self, *, is_large: bool, promised: int = 0) -> bool:
        """Whether somebody may take more."""
        return self.used + promised < (self._large_max if is_large else self.bytes_max)

    def must_wait(self, waiter: Waiter) -> bool:
        """Whether a connection that has read something may not read on; if so, it is let on in its turn."""
        if waiter.is_of_broker:
            return False
        count, is_large = waiter.wanted()
        if count <= 0 or self.has_room(is_large=is_large):
            return False
        self._waiting[waiter] = None
        return True

    def forget(self, waiter: Waiter) -> None:
        """It is gone."""
        self._waiting.pop(waiter, None)
        self._seen.pop(waiter, None)

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    def let_on(self, *, is_first_forced: bool = False) -> None:
        """Let on who waits, as far as there is room for what each takes next; the first one without room too if `is_first_forced`."""
        promised = 0
        for waiter in tuple(self._waiting):
            count, is_large = waiter.wanted()
            if not is_first_forced and not self.has_room(is_large=is_large, promised=promised):
                return
            is_first_forced = False
            promised += count
            del self._waiting[waiter]
            waiter.go_on_reading()
        self.give_back(0)

    def stuck(self, waiters: Iterable[W]) -> list[W]:
        """Those to close so that others can continue: called every RELIEF_S while memory is scarce.

        Those who keep memory, made no progress since the last look and have sent nothing that could be read; as many of them as bring
        the use to half, the one that was active longest ago first. One that waits for an answer only if there is no
        other and a request waits for room.
        """
        seen, self._seen = self._seen, {}
        idle: list[tuple[float, W]] = []
        waited_for: list[tuple[float, W]] = []
        for waiter in waiters:
            if waiter.is_of_broker or not waiter.kept_bytes:
                continue
            self._seen[waiter] = waiter.last_active
            if seen.get(waiter) == waiter.last_active:
                if waiter.is_waited_for:
                    waited_for.append((waiter.last_active, waiter))
                elif waiter not in self._waiting or not waiter.has_sent_more:
                    idle.append((waiter.last_active, waiter))
        candidates = idle or (waited_for if self._waiting else [])
        candidates.sort(key=lambda each: each[0])
        found = []
        excess = self.used - self._pressed_at
        for _, waiter in candidates:
            if excess < 0:
                break
            excess -= waiter.kept_bytes
            found.append(waiter)
        return found
