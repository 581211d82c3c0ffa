"""What both lanes of a node are built from: its config, its clocks, its randomness, and this start's identity.

May touch:  clocks, the system's randomness.   Must not touch: any other room's objects.
Invariants: frozen; made once for each start of a node.
Read next:  control.py and data.py, which build from it; node.py.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from barnabas_broker.metrics.lane_probe import LaneProbe
from barnabas_broker.node.control_lane import ControlLane
from barnabas_broker.node.descriptor_budget import DescriptorBudget
from barnabas_broker.node.properties import NodeConfig
from barnabas_broker.node.service_manager import ServiceManager
from barnabas_broker.security.audit import AuditLog
from barnabas_log.disk import RealDisk
from barnabas_wire.kafka.ids import Uuid


def wall_ms() -> int:
    """Wall clock, ms since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """A clock that never jumps, for time-outs."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """One start of one node."""

    config: NodeConfig
    control: ControlLane
    data_loop: asyncio.AbstractEventLoop
    descriptors: DescriptorBudget
    open_disk: Callable[[], RealDisk]
    """Makes a Disk; whoever calls it closes that."""
    incarnation_id: Uuid
    """Random, one per process start."""
    started_s: float
    """Wall clock at the start, s since 1970."""
    data_probe: LaneProbe
    """How late the data lane is."""
    random: Random
    audit: AuditLog
    service_manager: ServiceManager
    """Who started this process."""

    @classmethod
    def make(
        cls,
        config: NodeConfig,
        *,
        control: ControlLane,
        descriptors: DescriptorBudget,
        open_disk: Callable[[], RealDisk],
        service_manager: ServiceManager,
    ) -> NodeContext:
        """A new start, on the loop that runs: the data lane."""
        return cls(
            audit=AuditLog(config.audit, node_id=config.server.node_id, clock_ms=wall_ms),
            config=config,
            control=control,
            data_loop=asyncio.get_running_loop(),
            descriptors=descriptors,
            open_disk=open_disk,
            incarnation_id=Uuid(os.urandom(16)),
            started_s=time.time(),
            data_probe=LaneProbe(clock_ms=monotonic_ms),
            random=Random(os.urandom(16)),
            service_manager=service_manager,
        )

    def new_random(self) -> Random:
        """A source of randomness of its own for one part."""
        return Random(self.random.random())
