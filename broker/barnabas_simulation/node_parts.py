"""What the parts of a simulated run see of one node: its life, its disk, and the rooms it is built of.

May touch:  nothing, it is an interface.   Must not touch: anything.
Invariants: nodes.py alone builds one; whoever holds this of a node that is not up looks at a past life.
Read next:  nodes.py, which meets it; run.py, what all parts see of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.lifecycle import BrokerLifecycle
from barnabas_broker.network.stats import NetworkStats
from barnabas_coordination.group.service import GroupCoordinator
from barnabas_coordination.transaction.service import TransactionCoordinator
from barnabas_coordination.transaction.writes import TransactionalWrites
from barnabas_log.directories.manager import LogManager
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.incarnation import IncarnationGuard
from barnabas_quorum.driver.node import QuorumNode
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.raft.voters import Voter
from barnabas_replication.manager import ReplicaManager
from barnabas_simulation.disk import DiskFaults, SimulatedDisk
from barnabas_wire.kafka.ids import BrokerId, Uuid


class NodeParts(Protocol):
    """A combined node, or a broker that may come to vote, through all its lives."""

    id: BrokerId
    member: Voter
    life: int
    is_up: bool
    is_stopping: bool
    """In a clean stop, past the point at which it serves partitions."""
    directory_ids: dict[str, Uuid]
    """The ids of the directories of partition logs, by path."""
    replaced_by: dict[Uuid, Uuid]
    """Directories that are gone for good, and which took their place."""
    clock_ahead_ms: int
    """How far its wall clock is ahead of the true time."""
    disk: SimulatedDisk
    disk_faults: DiskFaults
    quorum: QuorumNode
    incarnation: IncarnationGuard
    incarnation_id: Uuid
    """The incarnation id of this start of its process."""
    replicas: ReplicaManager
    logs: LogManager
    loader: MetadataLoader
    lifecycle: BrokerLifecycle
    cache: MetadataCache
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transactional: TransactionalWrites
    topics_before: set[str]

    @property
    def driver(self) -> ControllerDriver:
        """The controller's."""

    @property
    def is_listening(self) -> bool:
        """Whether other brokers are answered by its Kafka listeners."""

    @property
    def is_serving(self) -> bool:
        """Whether clients are, too."""

    @property
    def listener_stats(self) -> NetworkStats:
        """What its Kafka listeners count."""

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to stop."""

    async def serve_own_call(self, request: Any) -> Any:
        """Answer what another broker's coordinator sends."""

    def start(self) -> None:
        """Begin a life."""

    def stop(self) -> None:
        """Ask for a clean stop."""

    def crash(self, *, replaced: Iterable[str] = ()) -> None:
        """Power off. replaced: these directories are gone altogether."""
