"""The simulated world of one life of one node: one loop for both lanes, a disk in memory, a network of calls.

May touch:  the run; what a node shows of itself, to let others reach it.   Must not touch: how a node is assembled, started and stopped.
Invariants: whatever is decided by chance is drawn from the run's one generator; nothing of a past life reaches the disk of the next.
Read next:  barnabas_broker/node/world.py, which this meets; nodes.py; network.py.

Where the seed has Kafka listeners they are the product's, over sockets.py; elsewhere callers hand requests to the parts behind them.
Not here: TLS, gRPC, threads.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any, NoReturn, TypeVar

from barnabas_broker.api import registry
from barnabas_broker.api.registry import Api
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.controller_client.applied import AppliedOffset
from barnabas_broker.network.listener import KafkaServer
from barnabas_broker.network.stats import NetworkStats
from barnabas_broker.node.bootstrap import QuorumIdentity
from barnabas_broker.node.descriptor_budget import DescriptorBudget
from barnabas_broker.node.kafka_listeners import kafka_listeners
from barnabas_broker.node.properties import NodeConfig
from barnabas_broker.node.service_manager import ServiceManager
from barnabas_broker.node.world import Served
from barnabas_log.disk import Disk
from barnabas_quorum.driver.broker_probe import BrokerProbe, unknown_reach
from barnabas_quorum.driver.incarnation import Incarnation, IncarnationGuard
from barnabas_quorum.image.quotas import QuotasImage
from barnabas_simulation.compaction import InlineCleaner
from barnabas_simulation.disk import SimulatedDisk
from barnabas_simulation.network import SimulatedControllerTransport, SimulatedPeer, SimulatedTransport
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.run import Run
from barnabas_simulation.transactions import SimulatedBrokers
from barnabas_wire.kafka.ids import BrokerId, Endpoint
from barnabas_wire.rpc.dialing import Dialer

T = TypeVar("T")

DESCRIPTORS = DescriptorBudget(limit=1 << 16, files_max=1 << 15, connections_max=1 << 10, connections_reserved=1 << 5)


class _Crossing:
    """The run's loop as the other lane sees it: whatever is scheduled comes a moment later, in its order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random, crossing_s: float) -> None:
        self.time, self.create_task = loop.time, loop.create_task
        self._loop = loop
        self._random = random
        self._crossing_s = crossing_s
        self._last_s = 0.0

    def call_soon_threadsafe(self, callback: Callable[..., Any], *arguments: Any) -> asyncio.TimerHandle:
        """See asyncio."""
        due_s = self._loop.time() + self._random.random() * self._crossing_s
        self._last_s = max(due_s, math.nextafter(self._last_s, math.inf))
        return self._loop.call_at(self._last_s, callback, *arguments)


class SimulatedLane:
    """One of two lanes on the run's one loop. Meets Lane."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random, crossing_s: float) -> None:
        self.loop: Any = _Crossing(loop, random, crossing_s)
        self._random = random
        self._crossing_s = crossing_s

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """See Lane. A moment later, in the task that waits: whoever cancels that has cancelled all of it."""
        try:
            await asyncio.sleep(self._random.random() * self._crossing_s)
        except asyncio.CancelledError:
            coroutine.close()
            raise
        return await coroutine


class ListenersUnasked:
    """A broker's Kafka listeners without connections: a caller asks whether it is served. Meets KafkaListeners."""

    def __init__(self) -> None:
        self.stats = NetworkStats()
        self.is_accepting = False
        """Whether connections are."""
        self.is_for_brokers_only = False

    async def start(self) -> None:
        """See KafkaListeners."""
        registry.load_handlers()

    def listen(self) -> None:
        """See KafkaListeners. Whoever calls now is told at once that no process answers."""

    async def run(self, *, wait_open: Callable[[], Awaitable[None]] | None = None) -> None:
        """See KafkaListeners."""
        if wait_open is not None:
            await wait_open()
        self.is_accepting = True
        try:
            await _for_ever()
        finally:
            self.is_accepting = False

    def serve_clients(self, is_wanted: bool) -> None:
        """See KafkaListeners."""
        self.is_for_brokers_only = not is_wanted

    def apply_quotas(self, image: QuotasImage) -> None:
        """See KafkaListeners. No client is throttled."""


SimulatedListeners = ListenersUnasked | KafkaServer


class SimulatedServers:
    """All other listeners. Meets Servers."""

    def __init__(self, on_start: Callable[[], None]) -> None:
        self._on_start = on_start

    async def start(self) -> None:
        """See Servers."""
        self._on_start()

    async def run(self) -> None:
        """See Servers."""
        await _for_ever()

    async def close(self) -> None:
        """See Servers. A node that has ended cannot be reached (SimulatedNode.is_up)."""


class SimulatedWorld:
    """Meets World."""

    def __init__(
        self, run: Run, node: NodeParts, disk: SimulatedDisk, *, on_start: Callable[[Served, SimulatedListeners], None]
    ) -> None:
        """on_start: is given the parts of the node once others can reach it."""
        self.random = Random(run.random.random())
        self.control = SimulatedLane(run.loop, self.random, run.swarm.crossing_s)
        self.data = SimulatedLane(run.loop, self.random, run.swarm.crossing_s)
        self.descriptors = DESCRIPTORS
        self.service_manager = ServiceManager()
        self._run = run
        self._node = node
        self._disk = disk
        self._on_start = on_start
        self._listeners: SimulatedListeners = ListenersUnasked()

    def open_disk(self, *, files_max: int | None = None) -> Disk:
        """See World. All users have the one."""
        return self._disk

    def wall_ms(self) -> int:
        """See World."""
        return self._run.wall_ms() + self._node.clock_ahead_ms

    def monotonic_ms(self) -> int:
        """See World."""
        return int(self._run.loop.time() * 1000)

    def spare_collector(self, is_loading: bool) -> None:
        """See World. Thousands of clusters come and go in one process, and the collector is to find them."""

    def cpu_s(self) -> float:
        """See World. Work takes no time here."""
        return 0.0

    def address_towards(self, servers: Sequence[tuple[str, int]]) -> str:
        """See World. No simulated listener has a wildcard address."""
        return "simulated"

    async def discover_quorum(
        self, addresses: Sequence[tuple[str, int]], *, known: Incarnation, dialer: Dialer
    ) -> QuorumIdentity:
        """See World."""
        raise AssertionError("every simulated node is a controller, which asks nobody who it is")

    def quorum_transport(self, cluster_id: str, *, incarnation: IncarnationGuard, dialer: Dialer) -> SimulatedTransport:
        """See World."""
        return SimulatedTransport(self._run.network, self._node, incarnation)

    def controller_transport(
        self, addresses: Mapping[BrokerId, tuple[str, int]], *, applied: AppliedOffset, dialer: Dialer
    ) -> SimulatedControllerTransport:
        """See World."""
        return SimulatedControllerTransport(self._run.network, self._node, applied)

    def broker_probe(self) -> BrokerProbe:
        """See World."""
        return unknown_reach

    def peer(self, broker_id: BrokerId, endpoint: Endpoint, *, config: NodeConfig) -> SimulatedPeer:
        """See World."""
        return SimulatedPeer(self._run.network, self._node, broker_id)

    def brokers(self, endpoint_of: Callable[[BrokerId], Endpoint | None], *, config: NodeConfig) -> SimulatedBrokers:
        """See World."""
        return SimulatedBrokers(self._run.network, self._node)

    def batch_worker(self) -> Callable[..., Future[Any]]:
        """See World. It takes a moment."""
        return self._work_later

    def _work_later(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        result: Future[Any] = Future()

        def run() -> None:
            try:
                result.set_result(work(*arguments))
            except Exception as error:  # as an executor does
                result.set_exception(error)

        self._run.loop.call_later(self.random.random() * self._run.swarm.crossing_s, run)
        return result

    def cleaner(self, disk: Disk) -> InlineCleaner:
        """See World."""
        return InlineCleaner(disk, Random(self._node.life), dies=self._run.swarm.cleaner_dies)

    def listen(
        self, services: BrokerServices, *, config: NodeConfig, wrap: Callable[[Api], Api] | None
    ) -> SimulatedListeners:
        """See World."""
        if self._run.loop.sockets is not None:
            self._listeners = kafka_listeners(
                services,
                config=config,
                descriptors=self.descriptors,
                wrap=wrap,
                now_ms=lambda: self._run.loop.time() * 1000,
            )
        return self._listeners

    def serve(self, served: Served) -> SimulatedServers:
        """See World."""
        return SimulatedServers(lambda: self._on_start(served, self._listeners))


async def _for_ever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")
