"""The world of a node that is a process: the operating system's clocks, disks and randomness, threads, sockets and gRPC.

May touch:  clocks, the system's randomness; every room that speaks to the outside, to make it.   Must not touch: how a node is assembled.
Invariants: nothing is decided here: it says who speaks and where, with what the node's config says.
Read next:  world.py; process.py, which makes it; servers.py for gRPC and metrics.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random, SystemRandom

from barnabas_broker.api.registry import Api
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.controller_client.applied import AppliedOffset
from barnabas_broker.controller_client.client import ControllerTransport, GrpcControllerTransport
from barnabas_broker.network.listener import KafkaServer, ListenAddress
from barnabas_broker.network.own_address import address_towards
from barnabas_broker.node.bootstrap import QuorumIdentity, discover_quorum
from barnabas_broker.node.control_lane import ControlLane, LoopLane
from barnabas_broker.node.descriptor_budget import DescriptorBudget
from barnabas_broker.node.properties import NodeConfig
from barnabas_broker.node.servers import NodeServers
from barnabas_broker.node.service_manager import ServiceManager
from barnabas_broker.node.surroundings import KafkaListeners, OwnBrokers
from barnabas_broker.node.world import Served, Servers
from barnabas_coordination.brokers import KafkaBrokers
from barnabas_log.cleaner.process import Transform
from barnabas_log.disk import Disk, RealDisk
from barnabas_quorum.driver.broker_probe import BrokerProbe, TcpProbe
from barnabas_quorum.driver.grpc_transport import GrpcTransport, Transport
from barnabas_quorum.driver.incarnation import Incarnation, IncarnationGuard
from barnabas_replication.peer import KafkaPeer, Peer
from barnabas_wire.kafka.ids import BrokerId, Endpoint
from barnabas_wire.rpc.dialing import Dialer


class RealWorld:
    """Meets World. Made on the data lane's loop."""

    def __init__(
        self,
        *,
        control: ControlLane,
        descriptors: DescriptorBudget,
        open_disk: Callable[[], RealDisk] = RealDisk,
        service_manager: ServiceManager | None = None,
    ) -> None:
        """open_disk: makes each disk; a proof of power loss brings one that remembers what was not flushed."""
        self.control = control
        self.data = LoopLane(asyncio.get_running_loop())
        self.random: Random = SystemRandom()
        self.descriptors = descriptors
        self.service_manager = service_manager or ServiceManager()
        self._open_disk = open_disk

    def open_disk(self, *, files_max: int | None = None) -> Disk:
        """See World."""
        disk = self._open_disk()
        if files_max is not None:
            disk.descriptors.files_max = files_max
        return disk

    def wall_ms(self) -> int:
        """See World."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """See World."""
        return time.monotonic_ns() // 1_000_000

    def cpu_s(self) -> float:
        """See World."""
        return time.thread_time()

    def spare_collector(self, is_loading: bool) -> None:
        """See World. A snapshot makes a million objects. Python's collector would look at all of them again and again while it is
        loaded: measured with 100 000 partitions, the control lane stood still for 210 ms at a time, without it for 19."""
        if is_loading:
            gc.disable()
        else:
            gc.freeze()
            gc.enable()

    def address_towards(self, servers: Sequence[tuple[str, int]]) -> str:
        """See World."""
        return address_towards(servers)

    async def discover_quorum(
        self, addresses: Sequence[tuple[str, int]], *, known: Incarnation, dialer: Dialer
    ) -> QuorumIdentity:
        """See World."""
        return await discover_quorum(addresses, known=known, dialer=dialer)

    def quorum_transport(self, cluster_id: str, *, incarnation: IncarnationGuard, dialer: Dialer) -> Transport:
        """See World."""
        return GrpcTransport(cluster_id=cluster_id, incarnation=incarnation, dialer=dialer)

    def controller_transport(
        self, addresses: Mapping[BrokerId, tuple[str, int]], *, applied: AppliedOffset, dialer: Dialer
    ) -> ControllerTransport:
        """See World."""
        return GrpcControllerTransport(addresses, applied=applied, dialer=dialer)

    def broker_probe(self) -> BrokerProbe:
        """See World."""
        return TcpProbe()

    def peer(self, broker_id: BrokerId, endpoint: Endpoint, *, config: NodeConfig) -> Peer:
        """See World."""
        return KafkaPeer(
            endpoint=endpoint,
            client_id=f"broker-{config.server.node_id}-fetcher",
            timeout_ms=config.replication.replica_socket_timeout_ms,
            security=config.client_security,
        )

    def brokers(self, endpoint_of: Callable[[BrokerId], Endpoint | None], *, config: NodeConfig) -> OwnBrokers:
        """See World."""
        return KafkaBrokers(
            own_id=config.server.id,
            endpoint_of=endpoint_of,
            timeout_ms=config.replication.replica_socket_timeout_ms,
            security=config.client_security,
        )

    def cleaner(self, disk: Disk) -> Transform | None:
        """See World."""
        return None

    def listen(
        self, services: BrokerServices, *, config: NodeConfig, wrap: Callable[[Api], Api] | None
    ) -> KafkaListeners:
        """See World."""
        return KafkaServer(
            addresses=[
                ListenAddress(point.listener, point.host, point.port, config.listener_security[point.listener])
                for point in config.server.kafka_endpoints()
            ],
            config=replace(
                config.network,
                max_connections=self.descriptors.connections_max,
                inter_broker_connections_reserved=self.descriptors.connections_reserved,
            ),
            services=services,
            quota_config=config.quota,
            client_tls=config.client_tls,
            wrap=wrap,
        )

    def serve(self, served: Served) -> Servers:
        """See World."""
        return NodeServers(served)
