"""The cluster as this broker's image has it: its own id and epoch, the brokers that serve, and their addresses.

May touch:  the image.                    Must not touch: partitions, logs, asyncio.
Invariants: the image is swapped as a whole; it counts as present only if it knows the registration of this very process.
Read next:  hosted.py, the same with this broker's partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas_quorum.image.metadata import MetadataImage
from barnabas_replication.hosting.placement import is_present_incarnation
from barnabas_wire.kafka.ids import BrokerId, Endpoint


class ClusterView:
    """What a partition knows of the brokers, and of time."""

    __slots__ = ("broker_epoch", "broker_id", "image", "now_ms")

    def __init__(
        self, broker_id: BrokerId, broker_epoch: Callable[[], int], now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """broker_epoch: this broker's epoch as last registered, -1 before. now_ms: monotonic time, for lag."""
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.now_ms = now_ms
        self.image = MetadataImage.EMPTY

    def is_present_incarnation(self) -> bool:
        """Whether the image knows this very process, and so all that an earlier incarnation saw."""
        return is_present_incarnation(self.image.cluster, self.broker_id, self.broker_epoch())

    def active_broker_epoch(self, broker_id: BrokerId) -> int | None:
        """Epoch of an unfenced broker that is not shutting down; None for any other."""
        registered = self.image.cluster.brokers.get(broker_id)
        return registered.epoch if registered is not None and registered.is_active else None

    def racks(self, brokers: Iterable[BrokerId]) -> dict[BrokerId, str | None]:
        """Racks of those of the brokers that serve clients."""
        known = self.image.cluster.brokers
        return {each: known[each].rack for each in brokers if each in known and known[each].is_active}

    def endpoint_of(self, broker_id: BrokerId, listener: str) -> Endpoint | None:
        """Where a broker is reached by others; None when it is not registered, or without such a listener."""
        registered = self.image.cluster.brokers.get(broker_id)
        return None if registered is None else registered.endpoint(listener)
