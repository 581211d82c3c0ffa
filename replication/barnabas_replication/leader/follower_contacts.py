"""Until when each follower is known to be alive, as its fetches show.

May touch:  its arguments.                Must not touch: asyncio, clock, partitions.
Invariants: a parked fetch vouches for its sender until the time by which it is answered at latest.
Read next:  fetches.py, which notes; isr.py `is_silent`, which judges.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas_replication.leader.replica_state import LONG_AGO_MS
from barnabas_wire.kafka.ids import BrokerId


class FollowerContacts:
    """Times of the loop's clock, in ms, by follower."""

    __slots__ = ("_broker_id", "_until_ms")

    def __init__(self, broker_id: BrokerId) -> None:
        """broker_id: our own, which is never silent."""
        self._broker_id = broker_id
        self._until_ms: dict[BrokerId, int] = {}

    def note(self, broker_id: BrokerId, until_ms: int) -> None:
        """Its fetch came, and will be answered by then."""
        self._until_ms[broker_id] = until_ms

    def until_ms(self, broker_id: BrokerId) -> int:
        """A time long ago when it never fetched."""
        return self._until_ms.get(broker_id, LONG_AGO_MS)

    def is_any_heard_since(self, since_ms: int) -> bool:
        """Whether any follower was heard from after that time."""
        return any(until_ms > since_ms for until_ms in self._until_ms.values())

    def is_any_silent(self, brokers: Iterable[BrokerId], *, now_ms: int, silence_ms: int) -> bool:
        """Whether one of the brokers was not heard from for that long."""
        return any(
            now_ms - self.until_ms(broker_id) > silence_ms for broker_id in brokers if broker_id != self._broker_id
        )

    def give_back(self, late_ms: int) -> None:
        """This process stood still for so long: what its followers said meanwhile may not be read yet."""
        self._until_ms = {broker_id: until_ms + late_ms for broker_id, until_ms in self._until_ms.items()}
