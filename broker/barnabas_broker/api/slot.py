"""The place of one answer in its connection's order, and what an answer is made of.

May touch:  its connection through SlotConnection, FileRanges to release them.     Must not touch: sockets, the handlers.
Invariants: a slot is filled or skipped exactly once; the parts of an answer that will not be sent are released.
Read next:  produce.py and fetch.py, which fill slots; ../network/connection.py, which keeps them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from barnabas_broker.security.access import Access
from barnabas_log.disk import FileRange
from barnabas_replication.leader.scrutiny import Scrutiny
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated

Part = bytes | bytearray | memoryview | FileRange
"""A piece of an answer: bytes, or a range of a file that is sent without passing through this process."""


def release_parts(parts: Iterable[Part]) -> None:
    """Let go of the file ranges of an answer that will not be sent."""
    for part in parts:
        if type(part) is FileRange:
            part.file.release()


class QuotaCharge(Protocol):
    """What one request is charged with (network/client_quotas.py)."""

    def take_mutations(self, count: int, *, is_strict: bool) -> bool:
        """Count changes of the metadata; False when there are none left and the client, if it knows of that, gets the error."""
        ...

    def settle(self, slot: ResponseSlot, parts: Sequence[Part], size_bytes: int) -> Sequence[Part]:
        """The answer, which says how long its connection rests now."""
        ...


class SlotConnection(Protocol):
    """What a slot asks of its connection."""

    guard: Access | None
    """What the client may do; None: everything."""
    charge: QuotaCharge | None
    """The quota charge of the request that is being taken up."""
    is_of_broker: bool
    """Whether another broker fetched over it."""
    scrutiny: Scrutiny
    """Which of its produce requests have their batches opened."""
    held: dict[str, Callable[[], None]]
    """What it holds beyond an answer, by name, with what lets go of it; see context.hold."""

    @property
    def listener_name(self) -> str:
        """Name of the listener that accepted the connection."""
        ...

    def mute(self, throttle_ms: int, api_key: int) -> None:
        """Read no further request for so long, because of one of this API."""
        ...

    def slot_filled(self, size_bytes: int) -> None:
        """Note that an answer of this size is there."""
        ...

    def count_errors(self, api_key: int, codes: Iterable[ErrorCode]) -> None:
        """Count errors returned to this client."""
        ...

    def close(self, reason: str) -> None:
        """Close at once, count why."""
        ...


class ResponseSlot:
    """The place of one answer in its connection's order. A handler fills or skips it exactly once, now or later."""

    __slots__ = (
        "api_key",
        "cancel",
        "connection",
        "correlation_id",
        "is_done",
        "parts",
        "size_bytes",
        "started",
        "version",
    )
    parts: Sequence[Part]
    """The parts of the answer; like its size not there before `is_done`."""
    size_bytes: int

    def __init__(
        self, connection: SlotConnection, api_key: int, version: int, correlation_id: int, started: float
    ) -> None:
        self.connection: SlotConnection | None = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.is_done = False
        self.cancel: Callable[[], object] | None = None
        """Called when the connection is lost before the answer; set by a handler that parks."""
        self.started = started

    def fill(self, parts: Sequence[Part], size_bytes: int) -> None:
        """Give the answer: a whole frame, its size prefix included, `size_bytes` long in all."""
        connection = self.connection
        if connection is None:  # the client is gone
            release_parts(parts)
            return
        if self.is_done:
            release_parts(parts)
            raise InvariantViolated(f"two answers for one request of api {self.api_key}")
        self.is_done = True
        self.parts = parts
        self.size_bytes = size_bytes
        self.cancel = None
        connection.slot_filled(size_bytes)

    def note_broker(self) -> None:
        """Another broker sent this request."""
        if self.connection is not None:
            self.connection.is_of_broker = True

    def skip(self) -> None:
        """No answer is due (acks=0)."""
        self.fill((), 0)

    @property
    def listener_name(self) -> str:
        """The listener the request came in on; empty once the client is gone."""
        return self.connection.listener_name if self.connection is not None else ""

    def count_errors(self, codes: Iterable[ErrorCode]) -> None:
        """Count errors of single partitions."""
        if self.connection is not None:
            self.connection.count_errors(self.api_key, codes)

    def close_connection(self, reason: str) -> None:
        """Give up on this client: the only answer an acks=0 producer can be given."""
        if self.connection is not None:
            self.connection.close(reason)


class ChargedSlot(ResponseSlot):
    """The slot of a request that is charged to a quota when it is answered."""

    __slots__ = ("charge",)

    def __init__(
        self, connection: SlotConnection, api_key: int, version: int, correlation_id: int, started: float
    ) -> None:
        super().__init__(connection, api_key, version, correlation_id, started)
        self.charge = connection.charge

    def fill(self, parts: Sequence[Part], size_bytes: int) -> None:
        """See ResponseSlot."""
        if self.charge is not None and not self.is_done:
            parts = self.charge.settle(self, parts, size_bytes)
        super().fill(parts, size_bytes)
