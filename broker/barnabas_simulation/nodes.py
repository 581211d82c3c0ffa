"""One simulated node: the product's own, Node(config, world).run(stop), through all its lives on the virtual loop.

May touch:  its disk while it is down; what its parts show.   Must not touch: how a node is assembled, started and
            stopped (barnabas_broker/node).
Invariants: a crash loses what was not flushed and everything in memory, and stops nothing in order; nothing of a past life reaches
            the disk of the next; a clean stop is the product's, and what follows may be a power cut.
Read next:  world.py, what surrounds it; node_config.py, its properties; cluster.py.

What is real: everything that barnabas_broker/node assembles, the Kafka listeners where the seed has clients that connect. What is not:
sockets, gRPC, the two threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.lifecycle import BrokerLifecycle
from barnabas_broker.metadata.meta_properties import META_PROPERTIES
from barnabas_broker.metadata.readiness import Readiness
from barnabas_broker.network.stats import NetworkStats
from barnabas_broker.node.node import Node
from barnabas_broker.node.properties import NodeConfig
from barnabas_broker.node.storage import format_storage
from barnabas_broker.node.surroundings import OwnBrokers
from barnabas_broker.node.world import Served
from barnabas_coordination.group.service import GroupCoordinator
from barnabas_coordination.transaction.service import TransactionCoordinator
from barnabas_coordination.transaction.writes import TransactionalWrites
from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.directories.manager import LogManager
from barnabas_log.errors import StorageFailed
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.incarnation import IncarnationGuard
from barnabas_quorum.driver.node import QuorumNode
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_replication.manager import ReplicaManager
from barnabas_simulation.disk import DiskFaults, SimulatedDisk
from barnabas_simulation.network import Network
from barnabas_simulation.node_config import retiring_from, simulated_config
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Run
from barnabas_simulation.world import SimulatedListeners, SimulatedWorld
from barnabas_wire.error_groups import leaves
from barnabas_wire.kafka.ids import BrokerId, Uuid

CLUSTER_ID = str(Uuid(b"simulated-cluste"))


class SimulatedNode:
    """A combined node, or a broker that may come to vote, through all its lives."""

    def __init__(
        self,
        cluster: Run,
        member: Voter,
        voters: VoterSet | None,
        disk_faults: DiskFaults,
        *,
        members: Sequence[Voter],
        directories: int,
    ) -> None:
        """voters: with which it is formatted; None: as one that asks whom it may join. members: of the whole cluster."""
        self.member = member
        self.id = member.key.id
        self.life = 0
        self.is_up = False
        self.is_stopping = False
        """In a clean stop, past the point at which it serves partitions."""
        self.directory_ids = {
            f"node-{self.id}/data-{number}": Uuid(bytes([self.id, number + 1]) * 8) for number in range(directories)
        }
        """Path of a log directory -> its id. A new disk gets another one, as formatting gives it."""
        self.replaced_by: dict[Uuid, Uuid] = {}
        """Directories that are gone for good, and which took their place."""
        self.disk_faults = disk_faults
        self.disk = SimulatedDisk(disk_faults, cluster.random)
        self.quorum: QuorumNode
        self.incarnation: IncarnationGuard
        self.incarnation_id: Uuid
        self.driver: ControllerDriver
        self.replicas: ReplicaManager
        self.logs: LogManager
        self.loader: MetadataLoader
        self.lifecycle: BrokerLifecycle
        self.cache: MetadataCache
        """What the Kafka listener answers Metadata from."""
        self.groups: GroupCoordinator
        self.transactions: TransactionCoordinator
        self.transactional: TransactionalWrites
        self.topics_before: set[str] = set()
        """Topics that stay, and were there when this life began."""
        self.clock_ahead_ms = 0
        """How far its wall clock is ahead of the true time."""
        self._has_closed_logs = False
        """Whether it has closed its logs in a clean stop."""
        self._readiness: Readiness
        self._brokers: OwnBrokers
        self._listeners: SimulatedListeners
        self._cluster = cluster
        self._voters = voters
        self._members = members
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    @property
    def network(self) -> Network:
        """The cluster's network."""
        return self._cluster.network

    @cached_property
    def _config(self) -> NodeConfig:
        return simulated_config(
            self.member,
            list(self.directory_ids),
            self._members,
            self._cluster.swarm,
            has_rot=self._cluster.has_rot,
            sessionless_size=self._cluster.sessionless_size,
        )

    def _format(self) -> None:
        """As `storage format --ignore-formatted` does: give every directory that says nothing of itself an id."""
        server = self._config.server
        with self.disk.judged():
            own = {server.metadata_directory: self.member.key.directory_id, **self.directory_ids}
            new_ids = iter(
                [number for path, number in own.items() if not self.disk.exists(f"{path}/{META_PROPERTIES}")]
            )
            format_storage(
                self.disk,
                server,
                cluster_id=CLUSTER_ID,
                make_voters=lambda directory_id: self._voters,
                new_uuid=lambda: next(new_ids),
                is_formatted_ignored=True,
            )

    async def serve_own_call(self, request: Any) -> Any:
        """Answer what another broker's coordinator sends."""
        assert self._brokers.serve is not None, "the assembly sets it"
        return await self._brokers.serve(request)

    # -- power -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life; `is_up` follows when its logs are read."""
        if not self.life:
            self._format()
        self.life += 1
        self.topics_before = self._cluster.invariants.kept_topics()
        self._stop = asyncio.Event()
        self._running = asyncio.ensure_future(self._live())
        self._running.add_done_callback(self._on_end)

    @property
    def is_listening(self) -> bool:
        """Whether other brokers are answered by its Kafka listeners."""
        return self.is_up and self._listeners.is_accepting

    @property
    def is_serving(self) -> bool:
        """Whether clients are, too."""
        return self.is_listening and self._readiness.is_open

    @property
    def listener_stats(self) -> NetworkStats:
        """What its Kafka listeners count."""
        return self._listeners.stats

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to stop."""
        return self.is_up and self._stop.is_set()

    def stop(self) -> None:
        """Ask for a clean stop. `is_up` ends with it, and the life."""
        self._stop.set()

    def crash(self, *, replaced: Iterable[str] = ()) -> None:
        """Power off, or a kill where records count when written: then the disk keeps what was durable and part of the rest,
        or all. replaced: these directories are gone altogether, new disks were put in."""
        running, self._running = self._running, None
        self._end_life(is_power_cut=not self._cluster.swarm.logs.is_page_cache)
        for path in replaced:
            self.disk.wipe(path)
            self.disk.broken.pop(path, None)
            self._renew_directory(path)
        if replaced:
            self._format()
        if running is not None:
            running.cancel()

    def replace_machine(self, directory_id: Uuid) -> None:
        """All its disks are lost, while it is down: what comes next is another replica, which knows only whom to ask for the leader."""
        assert not self.is_up, "it was lost before"
        self.disk = SimulatedDisk(self.disk_faults, self._cluster.random)
        self.member = self.member._replace(key=ReplicaKey(self.id, directory_id))
        self._voters = None
        for path in list(self.directory_ids):
            self._renew_directory(path)
        self._format()

    def _renew_directory(self, path: str) -> None:
        former = self.directory_ids[path]
        self.directory_ids[path] = Uuid(former[:8] + self.life.to_bytes(8, "big"))
        self.replaced_by[former] = self.directory_ids[path]

    def _end_life(self, *, is_power_cut: bool) -> None:
        self.is_up = self.is_stopping = False
        self.life += 1
        if self._cluster.loop.sockets is not None:
            self._cluster.loop.sockets.power_off(self.member.host)
        for stream in list(self.network.streams):
            if stream.is_of(self):
                stream.break_off()
        self.disk = self.disk.after_crash(self._cluster.random, is_power_cut=is_power_cut)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        is_current = task is self._running  # otherwise the power went in the turn in which the task ended
        if is_current:
            self._running = None
        if error is not None and not (_is_of_disk(error) and (self.disk.broken or not is_current)):
            self._cluster.network.failures.append(error)
        elif is_current:
            is_page_cache = self._cluster.swarm.logs.is_page_cache
            is_power_cut = not is_page_cache
            if error is None:
                # A clean stop has flushed everything, so the power may go after it. A failed directory could not flush, and in
                # page-cache mode its cache may hold what was acknowledged.
                is_power_cut = not (self.disk.broken and is_page_cache) and self._cluster.random.random() < 0.5
            self._end_life(is_power_cut=is_power_cut)
            self._cluster.faults.after_stop(self)

    # -- life ------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        swarm, life = self._cluster.swarm, self.life
        config = retiring_from(self._config, swarm.logs.checkpoint_s * self._cluster.random.random())

        def take(served: Served, listeners: SimulatedListeners) -> None:
            if self.life == life:  # otherwise its power went a turn ago
                self._take(served, listeners)

        await Node(config, SimulatedWorld(self._cluster, self, self.disk, on_start=take)).run(self._stop)

    def _take(self, served: Served, listeners: SimulatedListeners) -> None:
        """The node can be reached from now on: through these parts, which tell the run what it cannot see from outside."""
        control, broker, life = served.control, served.broker, self.life
        assert control.driver is not None and broker is not None, "it is a controller and a broker"
        self.quorum, self.incarnation, self.driver, self.loader = (
            control.quorum,
            control.incarnation,
            control.driver,
            control.loader,
        )
        self.logs, self.replicas, self.lifecycle, self.cache = (
            broker.logs,
            broker.replicas,
            broker.lifecycle,
            broker.cache,
        )
        self.groups, self.transactions, self.transactional = broker.groups, broker.transactions, broker.transactional
        self.incarnation_id = served.context.incarnation_id
        self._readiness, self._brokers, self._listeners = broker.readiness, broker.brokers, listeners
        for part, method, hear in (
            (control.driver, "fence", self._on_fence),
            (broker.replicas, "on_space_changed", self._on_space_changed),
            (broker.replicas, "on_directory_failed", self._on_directory_failed),
            (broker.replicas, "close", self._on_replicas_closed),
            (broker.replicas, "apply_delta", self._on_metadata),
            (broker.logs, "close", self._on_logs_closed),
        ):
            overhear(part, method, lambda *said, hear=hear: hear(*said) if self.life == life else None)
        self._has_closed_logs = False
        self.is_up = True

    def _on_fence(self, reasons: Mapping[BrokerId, str]) -> None:
        for broker_id in reasons:
            self._cluster.invariants.on_fence(self, broker_id)

    def _on_space_changed(self, directory: str, has_space: bool) -> None:
        self._cluster.figures.directories_filled += not has_space
        self._cluster.note(f"directory {directory} {'has room' if has_space else 'is full'}", self.id, self.life)

    def _on_directory_failed(self, directory: str, error: OSError) -> None:
        self._cluster.figures.directories_offline += 1
        self._cluster.note(f"directory {directory} is offline", self.id, self.life)
        if is_out_of_descriptors(error):
            self._cluster.network.failures.append(LawBroken("want of descriptors fails no directory", str(error)))

    def _on_replicas_closed(self) -> None:
        self.is_stopping = True

    def _on_logs_closed(self) -> None:
        self._has_closed_logs = True

    def _on_metadata(self, delta: Any, image: MetadataImage) -> None:
        if self._has_closed_logs:
            broken = LawBroken("no metadata is applied behind closed logs", f"node {self.id} at offset {image.offset}")
            self._cluster.network.failures.append(broken)


def overhear(part: Any, method: str, heard: Callable[..., None]) -> None:
    """Have the run hear of each call of a part's method, just before it is carried out."""
    carry_out = getattr(part, method)

    def told(*said: Any, **named: Any) -> Any:
        heard(*said)
        return carry_out(*said, **named)

    setattr(part, method, told)


def _is_of_disk(error: BaseException) -> bool:
    return all(isinstance(each, StorageFailed | OSError) for each in leaves(error))
