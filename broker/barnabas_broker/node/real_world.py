"""The world of a node that is a process: what the operating system has, the process's collector, and gRPC.

May touch:  gc; every room that speaks gRPC, to make what speaks.   Must not touch: how a node is assembled.
Invariants: nothing is decided here: it says who speaks and where, with what the node's config says.
Read next:  world.py; system_world.py, the rest of it; process.py, which makes it; servers.py for gRPC and metrics.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping, Sequence

from barnabas_broker.controller_client.applied import AppliedOffset
from barnabas_broker.controller_client.client import ControllerTransport
from barnabas_broker.controller_client.grpc_transport import GrpcControllerTransport
from barnabas_broker.node.bootstrap import QuorumIdentity, discover_quorum
from barnabas_broker.node.control_lane import ControlLane, LoopLane
from barnabas_broker.node.descriptor_budget import DescriptorBudget
from barnabas_broker.node.servers import NodeServers
from barnabas_broker.node.service_manager import ServiceManager
from barnabas_broker.node.system_world import SystemWorld
from barnabas_broker.node.world import Served, Servers
from barnabas_log.disk import RealDisk
from barnabas_quorum.driver.broker_probe import BrokerProbe, reach_of
from barnabas_quorum.driver.grpc_transport import GrpcTransport
from barnabas_quorum.driver.incarnation import Incarnation, IncarnationGuard
from barnabas_quorum.driver.transport import Transport
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc.dialing import Dialer


class RealWorld(SystemWorld):
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
        super().__init__(
            control=control,
            data=LoopLane(asyncio.get_running_loop()),
            descriptors=descriptors,
            open_disk=open_disk,
            service_manager=service_manager or ServiceManager(),
        )

    def spare_collector(self, is_loading: bool) -> None:
        """See World. A snapshot makes a million objects. Python's collector would look at all of them again and again while it is
        loaded: measured with 100 000 partitions, the control lane stood still for 210 ms at a time, without it for 19."""
        if is_loading:
            gc.disable()
        else:
            gc.freeze()
            gc.enable()

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
        return reach_of

    def serve(self, served: Served) -> Servers:
        """See World."""
        return NodeServers(served)
