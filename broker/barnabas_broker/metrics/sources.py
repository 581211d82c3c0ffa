"""Where a node's metrics come from: one frozen bundle, built by node.py.

May touch:  nothing, it only names the parts.     Must not touch: prometheus_client (page.py loads it at the first scrape).
Invariants: a part that the node's roles do not have is None; everything is read, nothing is called that changes the state of a
            part.
Read next:  exporter.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from barnabas_broker.metrics.lag_times import LagTimes
from barnabas_broker.security.audit_config import AuditStats
from barnabas_wire.histogram import Histogram
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from barnabas_broker.admin.edge import AdminStats
    from barnabas_broker.controller_client.client import ControllerClientStats
    from barnabas_broker.metadata.lifecycle import LifecycleStats
    from barnabas_broker.metadata.voters_clock import VotersClock
    from barnabas_broker.network.stats import NetworkStats
    from barnabas_broker.telemetry.receiver import ClientTelemetry
    from barnabas_coordination.group.service import GroupCoordinator
    from barnabas_coordination.share.dead_letters import DeadLetters
    from barnabas_coordination.share.due_times import DueTimes
    from barnabas_coordination.share.leader import SharePartitions
    from barnabas_coordination.share_state.persister import BrokersPersister
    from barnabas_coordination.share_state.service import ShareCoordinator
    from barnabas_coordination.transaction.service import TransactionCoordinator
    from barnabas_log.descriptors import Descriptors
    from barnabas_log.directories.manager import LogManager
    from barnabas_quorum.driver.controller_driver import ControllerDriver
    from barnabas_quorum.driver.node import QuorumNode
    from barnabas_quorum.image.loader import MetadataLoader
    from barnabas_quorum.image.metadata import MetadataImage
    from barnabas_replication.manager import ReplicaManager


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSources:
    """The parts of one node that have something to report. Read from a separate thread, while they work."""

    node_id: BrokerId
    cluster_id: str
    roles: tuple[str, ...]
    rack: str | None
    version: str
    commit: str
    """The commit of the source that was installed, as far as the installation says; else empty."""
    started_at_s: float
    """Wall clock, s since 1970."""
    clock_ms: Callable[[], int]
    """Wall clock, ms since 1970."""
    static_min_isr: int
    image: Callable[[], MetadataImage]
    """The control lane's newest image."""
    quorum: QuorumNode
    recovered_beside: Callable[[], Sequence[str]]
    """The other recoveries of the same quorum that this node has met."""
    controller_client: ControllerClientStats
    loader: MetadataLoader | None = None
    controller: ControllerDriver | None = None
    lifecycle: LifecycleStats | None = None
    network: NetworkStats | None = None
    replicas: ReplicaManager | None = None
    logs: LogManager | None = None
    """The logs of the data directories."""
    log_descriptors: Descriptors | None = None
    clock: VotersClock | None = None
    """The descriptors of the data directories' files."""
    groups: GroupCoordinator | None = None
    transactions: TransactionCoordinator | None = None
    share_state: ShareCoordinator | None = None
    persister: BrokersPersister | None = None
    shares: SharePartitions | None = None
    dead_letters: DeadLetters | None = None
    due_times: DueTimes | None = None
    telemetry: ClientTelemetry | None = None
    admin: AdminStats | None = None
    audit: AuditStats = field(default_factory=AuditStats)
    lanes: Mapping[str, Histogram] = field(default_factory=dict)
    """Lane name (control, data) -> how late its timers are, in seconds."""
    tasks: Mapping[str, Callable[[], int]] = field(default_factory=dict)
    """Lane name -> how many tasks its loop has."""
    lag_times: LagTimes = field(default_factory=LagTimes)
    """The scrapes' own memory."""
