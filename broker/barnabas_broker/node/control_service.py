"""Runs the control lane's parts, and the listeners beside Kafka's.

May touch:  tasks.                    Must not touch: how the parts are made; sockets (servers.py).
Invariants: every method but the constructor runs on the control lane; the controller hears of metadata before the broker does.
Read next:  node.py, which says when; servers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from barnabas_broker.metrics.health import find_dead, find_unready
from barnabas_broker.metrics.lane_probe import LaneProbe
from barnabas_broker.node.context import NodeContext
from barnabas_broker.node.control import ControlParts
from barnabas_broker.node.data import DataParts
from barnabas_broker.node.world import Served, World


class ControlService:
    """What runs on the control lane, from `run` to `close`."""

    def __init__(self, context: NodeContext, parts: ControlParts, broker: DataParts | None, *, world: World) -> None:
        self._context = context
        self._parts = parts
        self._broker = broker
        self._stop = asyncio.Event()
        self._probe = LaneProbe(clock_ms=world.monotonic_ms, cpu_s=world.cpu_s)
        self._servers = world.serve(
            Served(
                context=context,
                control=parts,
                broker=broker,
                probe=self._probe,
                find_dead=self._find_dead,
                find_unready=self._find_unready,
            )
        )
        # The controller first: its answers leave on commit, whatever the broker does with the image.
        publishers = (parts.driver, parts.registrar, parts.applied if broker is None else broker.publisher)
        parts.loader.publishers = tuple(part for part in publishers if part is not None)
        observers = (parts.driver, None if broker is None else broker.lifecycle)
        parts.listener.leader_observers = tuple(part.on_leader_change for part in observers if part is not None)

    async def run(self) -> None:
        """Serve until `stop`. Raises what no part may survive."""
        if self._parts.driver is not None:
            self._parts.driver.attach(self._parts.quorum, loader=self._parts.loader)
        await self._servers.start()
        if self._parts.watch is not None:
            await self._parts.watch.look()
        parts: list[Coroutine[Any, Any, None]] = [
            self._parts.quorum.run(),
            self._probe.run(),
            self._servers.run(),
            self._context.world.service_manager.run(find_unready=self._find_unready, find_dead=self._find_dead),
        ]
        if self._parts.driver is not None:
            parts.append(self._parts.driver.run())
        if self._parts.registrar is not None:
            parts.append(self._parts.registrar.run())
        if self._parts.watch is not None:
            parts.append(self._parts.watch.run())
        if self._broker is not None:
            parts.append(self._broker.lifecycle.run())
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(part) for part in parts]
            running.append(tasks.create_task(self._parts.failure.watch()))
            await self._stop.wait()
            if self._parts.driver is not None:
                await self._parts.quorum.resign()
            for task in running:
                task.cancel()

    async def stop(self) -> None:
        """Let `run` end in order."""
        self._stop.set()

    async def close(self) -> None:
        """Close the listeners, after `run` has ended."""
        await self._servers.close()

    def _find_dead(self) -> list[str]:
        ticks = {"control": self._probe.last_tick_ms, "data": self._context.data_probe.last_tick_ms}
        return find_dead(now_ms=self._context.world.monotonic_ms(), last_tick_ms=ticks)

    def _find_unready(self) -> list[str]:
        server = self._context.config.server
        return find_unready(
            node_id=server.id,
            is_broker=server.is_broker,
            image=self._parts.loader.image,
            blocked=self._parts.loader.blocked,
            leader_id=self._parts.quorum.describe().leader_id,
            high_watermark=self._parts.quorum.high_watermark,
            is_serving=self._broker is not None and self._broker.readiness.is_open,
        )
