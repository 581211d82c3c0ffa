"""What the parts of a node are built on: lanes, disks, clocks, chance, other nodes, and those who come to its Kafka listeners.

May touch:  nothing, it is an interface.   Must not touch: anything.
Invariants: whatever a part has from outside its own process comes by this.
Read next:  world.py, all that a node is given; system_world.py, the operating system's; control.py and data.py, which build.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

    from barnabas_broker.api.registry import Api
    from barnabas_broker.api.services import BrokerServices
    from barnabas_broker.controller_client.applied import AppliedOffset
    from barnabas_broker.controller_client.client import ControllerTransport
    from barnabas_broker.network.stats import NetworkStats
    from barnabas_broker.node.bootstrap import QuorumIdentity
    from barnabas_broker.node.descriptor_budget import DescriptorBudget
    from barnabas_broker.node.properties import NodeConfig
    from barnabas_broker.node.service_manager import ServiceManager
    from barnabas_log.cleaner.process import Transform
    from barnabas_log.disk import Disk
    from barnabas_quorum.driver.broker_probe import BrokerProbe
    from barnabas_quorum.driver.incarnation import Incarnation, IncarnationGuard
    from barnabas_quorum.driver.transport import Transport
    from barnabas_quorum.image.quotas import QuotasImage
    from barnabas_replication.follower.peer import Peer
    from barnabas_wire.kafka.ids import BrokerId, Endpoint
    from barnabas_wire.rpc.dialing import Dialer

T = TypeVar("T")


class Lane(Protocol):
    """An event loop on which parts of a node run."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where its callbacks run. Crossed by call_soon_threadsafe."""
        ...

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the lane and wait for it from the other; cancelling the wait cancels it."""
        ...


class OwnBrokers(Protocol):
    """Other brokers as this one's coordinators speak to them: Brokers, with a beginning and an end."""

    serve: Callable[[Any], Awaitable[Any]] | None
    """Answers a request to this broker; set before the first call."""

    async def call(self, broker_id: BrokerId, request: Any) -> Any:
        """See barnabas_coordination.brokers.Brokers."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...


class KafkaListeners(Protocol):
    """A broker's listeners, which clients and other brokers come to. On the data lane."""

    stats: NetworkStats

    async def start(self) -> None:
        """Bind. Connections are refused until `listen`. Raises OSError."""
        ...

    def listen(self) -> None:
        """Let connections wait until `run` accepts them."""
        ...

    async def run(self, *, wait_open: Callable[[], Awaitable[None]] | None = None) -> None:
        """Serve once `wait_open` has returned, until cancelled; then every connection is closed."""
        ...

    def serve_clients(self, is_wanted: bool) -> None:
        """False: from now on only brokers are served."""
        ...

    def apply_quotas(self, image: QuotasImage) -> None:
        """Throttle clients by these quotas from now on."""
        ...


class Surroundings(Protocol):
    """What one start of one node is given. Its methods are called once for each part that needs one, but for clocks."""

    random: Random
    """Seeds every part's own, and makes ids."""
    descriptors: DescriptorBudget
    service_manager: ServiceManager
    """The service manager that started this process."""

    @property
    def control(self) -> Lane:
        """The lane of the quorum, the controller, and whatever keeps the cluster alive."""
        ...

    @property
    def data(self) -> Lane:
        """The lane of logs, replication, coordinators and Kafka listeners; Node.run runs on its loop."""
        ...

    def open_disk(self, *, files_max: int | None = None) -> Disk:
        """A disk for one user, who closes it. files_max: how many files may stay open on it without being used."""
        ...

    def wall_ms(self) -> int:
        """Wall clock, ms since 1970."""
        ...

    def monotonic_ms(self) -> int:
        """A clock that never jumps, for time-outs, in ms."""
        ...

    def cpu_s(self) -> float:
        """CPU time of the thread that asks, in s."""
        ...

    def spare_collector(self, is_loading: bool) -> None:
        """A snapshot of the metadata is loaded from now on, or is there: its objects stay. The process is the world's, and others may
        be in it."""
        ...

    def address_towards(self, servers: Sequence[tuple[str, int]]) -> str:
        """The address of this host that leads to the first of these that can be found. Blocks."""
        ...

    async def discover_quorum(
        self, addresses: Sequence[tuple[str, int]], *, known: Incarnation, dialer: Dialer
    ) -> QuorumIdentity:
        """Ask controllers at these addresses for cluster and voters until one answers that a node of incarnation `known` believes."""
        ...

    def quorum_transport(self, cluster_id: str, *, incarnation: IncarnationGuard, dialer: Dialer) -> Transport:
        """How the quorum's members are reached."""
        ...

    def controller_transport(
        self, addresses: Mapping[BrokerId, tuple[str, int]], *, applied: AppliedOffset, dialer: Dialer
    ) -> ControllerTransport:
        """How the controllers are asked. What somebody else asked for is answered once this node has applied it."""
        ...

    def broker_probe(self) -> BrokerProbe:
        """How a controller looks whether a broker's process is gone."""
        ...

    def peer(self, broker_id: BrokerId, endpoint: Endpoint, *, config: NodeConfig) -> Peer:
        """A leader, as this node's followers fetch from it."""
        ...

    def brokers(self, endpoint_of: Callable[[BrokerId], Endpoint | None], *, config: NodeConfig) -> OwnBrokers:
        """All brokers, as this one's coordinators speak to them."""
        ...

    def batch_worker(self) -> Callable[..., Future[Any]] | None:
        """Runs what looks into clients' batches off the data lane, as an executor's submit; None: threads of the broker's own do."""
        ...

    def cleaner(self, disk: Disk) -> Transform | None:
        """What rewrites compacted segments of that disk; None: a separate process does."""
        ...

    def listen(
        self, services: BrokerServices, *, config: NodeConfig, wrap: Callable[[Api], Api] | None
    ) -> KafkaListeners:
        """The Kafka listeners, not bound yet. wrap: what replaces each API, to watch its handler."""
        ...
