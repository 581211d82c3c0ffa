"""Controllers in this process, reached without a network: for the client and the lifecycle on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from barnabas_broker.controller_client.client import ControllerClient, ControllerUnreachable
from barnabas_broker.metadata.broker_requests import BrokerRequests
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
)
from barnabas_quorum.driver.controller_driver import ControllerDriver, HeartbeatConnection
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId
from tests.support.decided_cluster import HeldQuorum, make_driver

R = TypeVar("R")


class DirectTransport:
    """ControllerTransport to drivers on the same loop; a controller may be down (refuses) or stopped (never answers)."""

    def __init__(self, drivers: dict[BrokerId, ControllerDriver]) -> None:
        self.drivers = drivers
        self.down: set[int] = set()
        self.stopped: set[int] = set()
        self.called: list[int] = []
        self.streams: list[DirectStream] = []

    async def call(
        self, controller_id: BrokerId, request: Request[R], *, principal: str, client_host: str = "", timeout_ms: int
    ) -> R:
        self.called.append(controller_id)
        await asyncio.sleep(0.001)
        self.check_up(controller_id)
        async with asyncio.timeout(timeout_ms / 1000):
            if controller_id in self.stopped:
                await asyncio.get_running_loop().create_future()
            return await self.drivers[controller_id].handle(request, principal=principal, client_host=client_host)

    async def open_heartbeats(self, controller_id: BrokerId) -> DirectStream:
        stream = DirectStream(self, controller_id)
        self.streams.append(stream)
        return stream

    def check_up(self, controller_id: int) -> None:
        if controller_id in self.down:
            raise ControllerUnreachable(f"controller {controller_id} is down", is_sent=False, is_refused=True)

    def cut_streams(self) -> None:
        """Every heartbeat stream breaks, as when the process at the other end is killed."""
        for stream in self.streams:
            stream.cut()

    async def close(self) -> None:
        self.cut_streams()


class DirectStream:
    """HeartbeatStream to a driver on the same loop."""

    def __init__(self, transport: DirectTransport, controller_id: BrokerId) -> None:
        self.transport = transport
        self.controller_id = controller_id
        self.sent: list[BrokerHeartbeat] = []
        self.is_cut = False
        self._connection: HeartbeatConnection | None = None
        self._incoming: asyncio.Queue[BrokerHeartbeatReply | Exception] = asyncio.Queue()

    async def send(self, heartbeat: BrokerHeartbeat) -> None:
        self.transport.check_up(self.controller_id)
        if self.is_cut:
            raise ControllerUnreachable("cut")
        if self.controller_id in self.transport.stopped:
            return
        self.sent.append(heartbeat)
        driver = self.transport.drivers[self.controller_id]
        try:
            if self._connection is None:
                self._connection = driver.connect(
                    heartbeat.broker_id, heartbeat.broker_epoch, self._incoming.put_nowait
                )
        except KafkaError as error:
            self._incoming.put_nowait(error)
            return
        self._connection.heartbeat(heartbeat).add_done_callback(self._answer)

    def _answer(self, outcome: asyncio.Future[BrokerHeartbeatReply]) -> None:
        error = outcome.exception()
        self._incoming.put_nowait(outcome.result() if error is None else error)  # type: ignore[arg-type]

    async def receive(self) -> BrokerHeartbeatReply:
        item = await self._incoming.get()
        if isinstance(item, Exception):
            raise item
        return item

    def push(self, reply: BrokerHeartbeatReply) -> None:
        """Something that the controller says unasked."""
        self._incoming.put_nowait(reply)

    def cut(self) -> None:
        self.is_cut = True
        self._incoming.put_nowait(ControllerUnreachable("cut"))
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def close(self) -> None:
        self.cut()


class Controllers:
    """Three controller nodes, each with a quorum of its own that the test elects and deposes by hand."""

    def __init__(self, **config: Any) -> None:
        loop = asyncio.get_running_loop()
        self.drivers: dict[BrokerId, ControllerDriver] = {}
        self.quorums: dict[int, HeldQuorum] = {}
        for node_id in (1, 2, 3):
            driver, quorum = make_driver(loop.call_soon, node_id=node_id, **{"idle_interval_ms": 0, **config})
            self.drivers[BrokerId(node_id)] = driver
            self.quorums[node_id] = quorum
        self.transport = DirectTransport(self.drivers)
        self.hint: BrokerId | None = None
        self.broker_epoch = -1
        self.client = ControllerClient(
            self.transport,
            loop=loop,
            controllers=[BrokerId(1), BrokerId(2), BrokerId(3)],
            leader_hint=lambda: self.hint,
        )
        self.own = BrokerRequests(self.client, broker_id=BrokerId(7), broker_epoch=lambda: self.broker_epoch)

    def elect(self, node_id: int) -> None:
        """This one leads; it begins with what the former leader had committed, and the others know."""
        former = [quorum for quorum in self.quorums.values() if quorum.committed]
        quorum = self.quorums[node_id]
        if former and not quorum.committed:
            quorum.epoch, quorum.next_offset = former[0].epoch, former[0].next_offset
            quorum.batches = list(former[0].committed)
            quorum.commit_all()
        for other in self.quorums.values():
            if other is not quorum:
                other.depose(node_id)
        quorum.elect()

    def active(self) -> ControllerDriver:
        """The one that leads."""
        [driver] = [driver for driver in self.drivers.values() if driver.is_active]
        return driver

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the drivers' timers."""
        tasks = [asyncio.ensure_future(driver.run()) for driver in self.drivers.values()]
        await asyncio.sleep(0)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
