"""What every node has of the operating system, whatever process it lives in: clocks, disks, randomness, Kafka's sockets.

May touch:  clocks, the system's randomness; the rooms that speak Kafka, to make what speaks.   Must not touch: gRPC, signals, limits.
Invariants: nothing is decided here: it says who speaks and where, with what the node's config says.
Read next:  surroundings.py; real_world.py and in_process_world.py, which add the rest.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random, SystemRandom

from barnabas_broker.api.registry import Api
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.network.host_address import address_towards
from barnabas_broker.node.descriptor_budget import DescriptorBudget
from barnabas_broker.node.kafka_listeners import kafka_listeners
from barnabas_broker.node.properties import NodeConfig
from barnabas_broker.node.service_manager import ServiceManager
from barnabas_broker.node.surroundings import KafkaListeners, Lane, OwnBrokers
from barnabas_coordination.brokers import KafkaBrokers
from barnabas_log.cleaner.process import Transform
from barnabas_log.disk import Disk, RealDisk
from barnabas_replication.follower.peer import KafkaPeer, Peer
from barnabas_wire.kafka.ids import BrokerId, Endpoint


class SystemWorld:
    """The part of World that needs no gRPC. Made on the data lane's loop."""

    def __init__(
        self,
        *,
        control: Lane,
        data: Lane,
        descriptors: DescriptorBudget,
        open_disk: Callable[[], RealDisk],
        service_manager: ServiceManager,
        sockets: Mapping[Endpoint, socket.socket] | None = None,
    ) -> None:
        """open_disk: makes each disk. sockets: of Kafka listeners that are bound already."""
        self.control = control
        self.data = data
        self.random: Random = SystemRandom()
        self.descriptors = descriptors
        self.service_manager = service_manager
        self._open_disk = open_disk
        self._sockets = sockets or {}

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

    def address_towards(self, servers: Sequence[tuple[str, int]]) -> str:
        """See World."""
        return address_towards(servers)

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

    def batch_worker(self) -> None:
        """See World."""

    def cleaner(self, disk: Disk) -> Transform | None:
        """See World."""
        return None

    def listen(
        self, services: BrokerServices, *, config: NodeConfig, wrap: Callable[[Api], Api] | None
    ) -> KafkaListeners:
        """See World."""
        return kafka_listeners(services, config=config, descriptors=self.descriptors, wrap=wrap, sockets=self._sockets)
