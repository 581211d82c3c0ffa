"""How long a controller and the data lane have been silent, counted in the time in which the control lane ran.

May touch:  its arguments.            Must not touch: asyncio, clocks, the controller client.
Invariants: a lane that was stopped with its process, or got no CPU, takes nobody for silent for that time; one that always wakes
            late leaves a silent controller too, after UNANSWERED_MAX heartbeats.
Read next:  lifecycle.py, which tells it what was sent, answered and when it woke.

Belongs to the control lane. Times are ms of one monotonic clock.
"""

from __future__ import annotations

from collections import deque

LATE_MS = 100
"""A lane that wakes this late was stopped with its process, or starved."""
LATE_WAKES_MAX = 64
UNANSWERED_MAX = 64
"""Heartbeats after which a controller is silent, also for a lane that always wakes late."""


class Silence:
    """Whom the control lane takes for silent: one controller at a time, and the data lane."""

    def __init__(self, *, patience_ms: int) -> None:
        """patience_ms: how long a controller may answer nothing. It answers every heartbeat."""
        self.patience_ms = patience_ms
        self._heard_ms = 0
        """When the controller last answered, or this lane woke late: answers may wait unread then."""
        self._unanswered: deque[int] = deque()
        """When the heartbeats were sent that wait for their answer."""
        self._late: deque[tuple[int, int]] = deque(maxlen=LATE_WAKES_MAX)
        """When this lane woke late, and for how long it had not run, since the data lane's last tick."""

    def begin(self, *, now_ms: int) -> None:
        """A stream to a controller is opened."""
        self._unanswered.clear()
        self._heard_ms = now_ms

    def note_sent(self, *, now_ms: int) -> None:
        """A heartbeat goes out."""
        self._unanswered.append(now_ms)

    def note_heard(self, *, now_ms: int) -> None:
        """The controller said something."""
        self._heard_ms = now_ms

    def note_answered(self) -> int | None:
        """When the heartbeat was sent that is answered now: answers come in order. None: it was sent on another stream."""
        return self._unanswered.popleft() if self._unanswered else None

    def note_woke(self, *, due_ms: int, now_ms: int) -> None:
        """This lane was to wake at `due_ms`. What two of its tasks saw of one stop counts once."""
        if now_ms - due_ms < LATE_MS:
            return
        self._heard_ms = now_ms
        since_ms = max(due_ms, self._late[-1][0]) if self._late else due_ms
        self._late.append((now_ms, now_ms - since_ms))

    def left_ms(self, *, now_ms: int) -> int:
        """After how long the controller will be silent; 0 or less: it is."""
        if len(self._unanswered) >= UNANSWERED_MAX:
            return 0
        return self._heard_ms + self.patience_ms - now_ms

    def data_lane_ms(self, *, tick_ms: int, now_ms: int) -> int:
        """For how long the data lane has not moved although it could. tick_ms: when it last did."""
        while self._late and self._late[0][0] <= tick_ms:
            self._late.popleft()
        return now_ms - tick_ms - sum(late_ms for _, late_ms in self._late)
