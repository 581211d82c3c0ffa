"""The world that a node lives in: what its parts are built on, and who comes to its listeners beside Kafka's.

May touch:  nothing, it is an interface.   Must not touch: anything.
Invariants: whatever a node has from outside its own process comes by this; a node is assembled the same in every world.
Read next:  surroundings.py; real_world.py (the operating system's); node.py, which lives in it; the simulation has another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas_broker.metrics.lane_probe import LaneProbe
from barnabas_broker.node.context import NodeContext
from barnabas_broker.node.control import ControlParts
from barnabas_broker.node.data import DataParts
from barnabas_broker.node.surroundings import Surroundings
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A whole node, as those see it that come to its other listeners: the quorum's and the operators' gRPC, and metrics."""

    context: NodeContext
    control: ControlParts
    broker: DataParts | None
    probe: LaneProbe
    """How late the control lane is."""
    find_dead: Callable[[], list[str]]
    find_unready: Callable[[], list[str]]


class Servers(Protocol):
    """Those listeners. On the control lane."""

    async def start(self) -> None:
        """Bind and serve: before the quorum runs. Raises OSError."""
        ...

    async def run(self) -> None:
        """Look after connections and certificates, until cancelled."""
        ...

    async def close(self) -> None:
        """Stop serving, after everything else has stopped."""
        ...


class World(Surroundings, Protocol):
    """What one start of one node is given."""

    def serve(self, served: Served) -> Servers:
        """All listeners but Kafka's, not bound yet."""
        ...
