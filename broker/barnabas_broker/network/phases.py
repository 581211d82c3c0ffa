"""Where the time of a request goes, phase by phase as Kafka's RequestMetrics names them, of one in MEASURED_EVERY of each kind.

May touch:  the clock.                Must not touch: sockets, handlers.
Invariants: the first request of a kind is measured, and each MEASURED_EVERY-th after it; a request that is not costs nothing here; the
            phases of one request add up to the time from its last byte read to the last byte of its answer given to the socket.
Read next:  requests.py, which chooses; connection.py, which reports what was sent.

| phase | Kafka | from, to |
|---|---|---|
| queue | RequestQueueTimeMs | the read that brought it (or its turn after a pause) to its handler |
| local | LocalTimeMs | its handler, until it has answered or waits |
| remote | RemoteTimeMs | until what it waited for has come: followers, records, a coordinator |
| response_queue | ResponseQueueTimeMs | until the answers before it have left, and the turn of the loop ends |
| send | ResponseSendTimeMs | until the socket has taken its last byte |
| throttle | ThrottleTimeMs | how long a quota rests its client: of each request that is throttled, not of some |

Each phase of every request would be five clock readings and histograms, a tenth of what a small request costs (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from barnabas_broker.api.slot import ChargedSlot, Part, SlotConnection

if TYPE_CHECKING:
    from barnabas_broker.api.registry import Api

MEASURED_EVERY = 128
"""A power of two."""
MEASURED_MASK = MEASURED_EVERY - 1
PHASES = ("queue", "local", "remote", "response_queue", "send")
THROTTLE = "throttle"
MEASURED_MAX = 16
"""Measured answers of one connection that may wait: one that is never caught up would gather them for ever."""


class MeasuredClient(SlotConnection, Protocol):
    """A client whose requests are measured."""

    measured: list[MeasuredSlot]
    """Answers given but not yet sent."""


class MeasuredSlot(ChargedSlot):
    """The slot of a request that is measured. Times are in s, on the clock of `started`; 0.0 until they are known."""

    __slots__ = ("_client", "began", "filled", "handled", "moved")

    def __init__(self, client: MeasuredClient, api_key: int, version: int, correlation_id: int, started: float) -> None:
        super().__init__(client, api_key, version, correlation_id, started)
        self._client = client
        self.began = perf_counter()
        self.handled = self.filled = self.moved = 0.0

    def fill(self, parts: Sequence[Part], size_bytes: int) -> None:
        """See ResponseSlot."""
        self.filled = perf_counter()
        super().fill(parts, size_bytes)
        if len(self._client.measured) < MEASURED_MAX:
            self._client.measured.append(self)

    def phases(self, sent: float) -> tuple[float, ...]:
        """Seconds of each of PHASES, once its last byte is sent."""
        # A handler that answers at once returns after its answer was given.
        local_end = self.handled if 0.0 < self.handled < self.filled else self.filled
        return (
            self.began - self.started,
            local_end - self.began,
            self.filled - local_end,
            self.moved - self.filled,
            sent - self.moved,
        )


def measuring(api: Api) -> Api:
    """The same API, whose direct handler notes when it returns in its slot, a MeasuredSlot."""
    handler = api.handler

    def handle(services: Any, slot: MeasuredSlot, version: int, frame: memoryview, position: int) -> None:
        handler(services, slot, version, frame, position)
        slot.handled = perf_counter()

    return replace(api, handler=handle)
