"""One start of one node: what both lanes build from, made of its config and its world.

May touch:  its world.                Must not touch: any other room's objects.
Invariants: frozen; made once for each start of a node.
Read next:  control.py and data.py, which build from it; node.py; surroundings.py.
"""

from __future__ import annotations

from random import Random

from barnabas_broker.metrics.lane_probe import LaneProbe
from barnabas_broker.node.properties import NodeConfig
from barnabas_broker.node.surroundings import Surroundings
from barnabas_broker.security.audit import AuditLog
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """One start of one node."""

    config: NodeConfig
    world: Surroundings
    incarnation_id: Uuid
    """Random, one per process start."""
    started_s: float
    """Wall clock at the start, s since 1970."""
    data_probe: LaneProbe
    """How late the data lane is."""
    audit: AuditLog

    @classmethod
    def make(cls, config: NodeConfig, world: Surroundings) -> NodeContext:
        """A new start."""
        return cls(
            config=config,
            world=world,
            incarnation_id=Uuid(world.random.randbytes(16)),
            started_s=world.wall_ms() / 1000,
            data_probe=LaneProbe(clock_ms=world.monotonic_ms, cpu_s=world.cpu_s),
            audit=AuditLog(config.audit, node_id=config.server.node_id, clock_ms=world.wall_ms),
        )

    def new_random(self) -> Random:
        """A separate source of randomness for one part."""
        return Random(self.world.random.random())
