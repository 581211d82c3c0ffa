"""The world of a node that lives in a thread of somebody else's process: a quorum of one, whose controller is asked by a call.

May touch:  the node's own controller, once it is there.   Must not touch: gRPC; the process's collector, signals and limits.
Invariants: nothing but the Kafka listeners can be reached from outside; a controller's answer is what gRPC would have brought.
Read next:  system_world.py, the rest of it; in_process.py, which makes it; real_world.py, the same for a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from barnabas_broker.controller_client.applied import AppliedOffset
from barnabas_broker.controller_client.client import ControllerUnreachable, HeartbeatStream, reach_applied
from barnabas_broker.node.system_world import SystemWorld
from barnabas_broker.node.world import Served
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import BrokerHeartbeat, BrokerHeartbeatReply
from barnabas_quorum.driver.broker_probe import BrokerProbe, unknown_reach
from barnabas_quorum.driver.controller_driver import ControllerDriver, HeartbeatConnection
from barnabas_quorum.driver.incarnation import Incarnation, IncarnationGuard
from barnabas_quorum.errors import PeerUnreachable
from barnabas_wire.kafka.errors import InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc.dialing import Dialer

if TYPE_CHECKING:
    from barnabas_broker.node.bootstrap import QuorumIdentity

R = TypeVar("R")

ALONE = "a broker in this process is a quorum of one, and knows no other node"


class NoVoters:
    """The other members of the quorum: there are none. Meets Transport."""

    async def call(self, request: Any, voter: Any, *, timeout_s: float) -> NoReturn:
        """See Transport."""
        raise PeerUnreachable(ALONE)

    async def describe(self, voter: Any, *, timeout_s: float) -> NoReturn:
        """See Transport."""
        raise PeerUnreachable(ALONE)

    async def change_voters(
        self, change: Any, leader: Any, *, principal: str, client_host: str, timeout_s: float
    ) -> NoReturn:
        """See Transport."""
        raise PeerUnreachable(ALONE)

    async def close(self) -> None:
        """See Transport."""


class OwnController:
    """The node's own controller, asked by a call. Meets ControllerTransport. Belongs to the control lane."""

    def __init__(self, applied: AppliedOffset) -> None:
        self.driver: ControllerDriver | None = None
        """Set before the quorum runs."""
        self._applied = applied

    async def call(
        self, controller_id: BrokerId, request: Request[R], *, principal: str, client_host: str = "", timeout_ms: int
    ) -> R:
        """See ControllerTransport. What somebody else asked for is answered when this node has applied it."""
        driver = self._driver()
        async with asyncio.timeout(timeout_ms / 1000):
            answer = await driver.handle(request, principal=principal, client_host=client_host)
        await reach_applied(self._applied, request, driver.committed_offset, timeout_ms=timeout_ms)
        return answer

    async def open_heartbeats(self, controller_id: BrokerId) -> HeartbeatStream:
        """See ControllerTransport."""
        return OwnHeartbeats(self._driver())

    async def close(self) -> None:
        """See ControllerTransport."""

    def _driver(self) -> ControllerDriver:
        if self.driver is None:
            raise ControllerUnreachable("this node's controller does not run yet", is_sent=False)
        return self.driver


class OwnHeartbeats:
    """The heartbeats of the only broker. Meets HeartbeatStream; the sender's patience bounds what waits here."""

    def __init__(self, driver: ControllerDriver) -> None:
        self._driver = driver
        self._connection: HeartbeatConnection | None = None
        self._incoming: asyncio.Queue[BrokerHeartbeatReply | KafkaError] = asyncio.Queue()

    async def send(self, heartbeat: BrokerHeartbeat) -> None:
        """See HeartbeatStream."""
        if self._connection is None:
            try:
                self._connection = self._driver.connect(
                    heartbeat.broker_id, heartbeat.broker_epoch, self._incoming.put_nowait
                )
            except KafkaError as refusal:
                self._incoming.put_nowait(refusal)
                return
        self._connection.heartbeat(heartbeat).add_done_callback(self._take)

    def _take(self, outcome: asyncio.Future[BrokerHeartbeatReply]) -> None:
        if outcome.cancelled():
            return
        error = outcome.exception()
        if error is None:
            self._incoming.put_nowait(outcome.result())
        elif isinstance(error, KafkaError):
            self._incoming.put_nowait(error)

    async def receive(self) -> BrokerHeartbeatReply:
        """See HeartbeatStream."""
        item = await self._incoming.get()
        if isinstance(item, KafkaError):
            raise item
        return item

    async def close(self) -> None:
        """See HeartbeatStream."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()


class NoServers:
    """The listeners beside Kafka's: there are none. Meets Servers. Says when the Kafka listeners serve."""

    def __init__(self, world: InProcessWorld, served: Served) -> None:
        self._world = world
        self._served = served

    async def start(self) -> None:
        """See Servers."""

    async def run(self) -> None:
        """See Servers."""
        assert self._served.broker is not None, "the only node is a broker"
        await self._world.data.call(self._served.broker.readiness.wait_open())
        self._world.on_serving(self._served)
        await asyncio.Event().wait()

    async def close(self) -> None:
        """See Servers."""


class InProcessWorld(SystemWorld):
    """Meets World. Made on the data lane's loop."""

    def __init__(self, *, on_serving: Callable[[Served], None], **system: Any) -> None:
        """on_serving: called once clients are served, on the control lane. system: see SystemWorld."""
        super().__init__(**system)
        self.on_serving = on_serving
        self._controller: OwnController | None = None

    def spare_collector(self, is_loading: bool) -> None:
        """See World. The process is somebody else's, and its collector too."""

    async def discover_quorum(
        self, addresses: Sequence[tuple[str, int]], *, known: Incarnation, dialer: Dialer
    ) -> QuorumIdentity:
        """See World."""
        raise InvariantViolated("the only node is a controller, which asks nobody who it is")

    def quorum_transport(self, cluster_id: str, *, incarnation: IncarnationGuard, dialer: Dialer) -> NoVoters:
        """See World."""
        return NoVoters()

    def controller_transport(
        self, addresses: Mapping[BrokerId, tuple[str, int]], *, applied: AppliedOffset, dialer: Dialer
    ) -> OwnController:
        """See World."""
        self._controller = OwnController(applied)
        return self._controller

    def broker_probe(self) -> BrokerProbe:
        """See World."""
        return unknown_reach

    def serve(self, served: Served) -> NoServers:
        """See World."""
        assert self._controller is not None, "the node has its way to the controller before its listeners"
        self._controller.driver = served.control.driver
        return NoServers(self, served)
