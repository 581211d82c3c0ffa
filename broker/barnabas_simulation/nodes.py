"""One simulated node: the real parts of broker and controller on the virtual loop, over a fake disk and network.

May touch:  every room, to build it, as node.py does.   Must not touch: gRPC, sockets, threads, real files.
Invariants: a crash loses what was not flushed and everything in memory; nothing of a past life reaches the disk of the next;
            a clean stop ends in the order of node.py, and what follows may be a power cut.
Read next:  cluster.py.

What is real: QuorumNode with MetadataLog, MetadataLoader, Controller and its driver, ControllerClient, BrokerLifecycle,
LogManager with UnifiedLog and its flush rounds, ReplicaManager with Partition and fetchers, the metadata publisher.
In seeds with transactions also the coordinators of groups and transactions, with their markers and verification.
What is not: the Kafka listener and codec, gRPC, the two lanes (one loop plays both).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from barnabas_broker.api import registry
from barnabas_broker.api.config import ApiConfig
from barnabas_broker.api.own_calls import serve_own_calls
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.controller_client.client import ControllerClient
from barnabas_broker.controller_client.producer_ids import ProducerIds
from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.config import LifecycleConfig
from barnabas_broker.metadata.lifecycle import BrokerIdentity, BrokerLifecycle
from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_broker.metadata.own_requests import OwnRequests
from barnabas_broker.metadata.publisher import BrokerMetadataPublisher, CoordinatorTopic
from barnabas_broker.metadata.replica_reports import ReplicaReports, ReportQueue
from barnabas_broker.metadata.service_gate import ServiceGate
from barnabas_broker.metadata.voters_clock import VotersClock
from barnabas_broker.node.topic_settings import TopicSettings
from barnabas_broker.node.voter_addresses import VoterAddresses
from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.group.service import OFFSETS_TOPIC, GroupCoordinator
from barnabas_coordination.replicated_log import ReplicatedLog
from barnabas_coordination.transaction.service import TRANSACTION_TOPIC, TransactionCoordinator
from barnabas_coordination.transaction.verification import Verification
from barnabas_coordination.transaction.writes import TransactionalWrites
from barnabas_log.config import FlushOnAcks, LogConfig, LogManagerConfig, broker_defaults
from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.errors import StorageFailed
from barnabas_log.manager import LogManager
from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.controller.requests import NO_BROKER_EPOCH
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.metadata_listener import MetadataListener
from barnabas_quorum.driver.node import QuorumNode
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.manager import ReplicaManager
from barnabas_simulation.compaction import BACKOFF_MS, MAP_BYTES, InlineCleaner
from barnabas_simulation.disk import DiskFaults, SimulatedDisk
from barnabas_simulation.network import Network, SimulatedControllerTransport, SimulatedPeer, SimulatedTransport
from barnabas_simulation.operators import SEGMENT_BYTES_UNIT
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Run
from barnabas_simulation.transactions import CONFIG, SimulatedBrokers
from barnabas_wire.error_groups import leaves
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Uuid

CLUSTER_ID = str(Uuid(b"simulated-cluste"))
CONTROLLER = ControllerConfig(
    session_timeout_ms=3000,
    disconnect_grace_ms=500,
    min_insync_replicas=2,
    image_hash_interval_ms=1000,
    image_hash_interval_records=25,
)
LIFECYCLE = LifecycleConfig(session_timeout_ms=3000, heartbeat_interval_ms=500, shutdown_timeout_ms=2000)
QUORUM = QuorumConfig(retention_bytes=4_000, fetch_snapshot_bytes_max=300)
"""Snapshots are fetched in several slices, and a log soon begins at one."""
QUORUM_SEGMENT_BYTES = 1_200
PROPERTIES = {"min.insync.replicas": "2", "log.retention.ms": "-1"}
FILE_DELETE_DELAY_MS = 300
SCRUB_BYTES_PER_SECOND = 40_000_000
"""Where bits flip: 10 ms a segment. Elsewhere there is no scrub, whose steps would be most of a run."""
FREE_CHECK_MS = 100
RESERVE_BYTES = 8_192
"""Of each directory: small, for every crash copies it."""


class NoProbe:
    """Nobody can be looked at from outside: the grace and the session decide."""

    async def is_refused(self, endpoints: Any) -> bool:
        """See BrokerProbe."""
        return False


class WatchedDriver(ControllerDriver):
    """Reports whom it is about to fence for silence or absence."""

    on_fence: Callable[[BrokerId], None]

    def fence(self, broker_id: BrokerId, reason: str) -> None:
        """See ControllerDriver.fence."""
        self.on_fence(broker_id)
        super().fence(broker_id, reason)


class _NotedReplicas(ReplicaManager):
    """A replica manager whose full directories the run notes."""

    def __init__(self, node: SimulatedNode, **settings: Any) -> None:
        self._node = node
        super().__init__(**settings)

    def on_room_changed(self, directory: str, has_room: bool) -> None:
        self._node.note_room(directory, has_room)
        super().on_room_changed(directory, has_room)


class SimulatedNode:
    """A combined node, or a broker that may come to vote, through all its lives."""

    def __init__(
        self, cluster: Run, member: Voter, voters: VoterSet, disk_faults: DiskFaults, *, directories: int
    ) -> None:
        self.member = member
        self.id = member.key.id
        self.life = 0
        self.is_up = False
        self.is_stopping = False
        """In a clean stop, past the point at which it serves partitions."""
        self.directory_ids = {
            f"node-{self.id}/data-{number}": Uuid(bytes([self.id, number + 1]) * 8) for number in range(directories)
        }
        """Of the partition logs, by path. Another disk has another one, as formatting gives it."""
        self.replaced_by: dict[Uuid, Uuid] = {}
        """Directories that are gone for good, and which took their place."""
        self.disk_faults = disk_faults
        self.disk = SimulatedDisk(disk_faults, cluster.random)
        self.quorum: QuorumNode
        self.driver: WatchedDriver
        self.replicas: ReplicaManager
        self.logs: LogManager
        self.loader: MetadataLoader
        self.lifecycle: BrokerLifecycle
        self.cache: MetadataCache
        """What the Kafka listener answers Metadata from."""
        self.groups: GroupCoordinator
        self.transactions: TransactionCoordinator
        self.transactional: TransactionalWrites
        self.serve_own_call: Callable[[Any], Coroutine[Any, Any, Any]]
        """A request that another broker's coordinator sends."""
        self.gate: ServiceGate
        """Whether the Kafka listener serves."""
        self.topics_before: set[str] = set()
        """That stay, and were there when this life began."""
        self.clock_ahead_ms = 0
        """How far its wall clock is ahead of the true time."""
        self._cluster = cluster
        self._voters = voters
        self._bootstrap_servers: Sequence[tuple[str, int]] = ()
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    def _shaped(self, config: LogConfig) -> LogConfig:
        """With sizes that no operator may choose: so much the sooner something happens."""
        shape = self._cluster.swarm.logs
        is_set = config.segment_bytes % SEGMENT_BYTES_UNIT == 0
        return replace(
            config,
            segment_bytes=config.segment_bytes // SEGMENT_BYTES_UNIT if is_set else shape.segment_bytes,
            index_interval_bytes=shape.index_interval_bytes,
            file_delete_delay_ms=FILE_DELETE_DELAY_MS,
            flush_on_acks=FlushOnAcks.PAGE_CACHE if shape.is_page_cache else FlushOnAcks.FSYNC,
        )

    @property
    def network(self) -> Network:
        """The cluster's network."""
        return self._cluster.network

    # -- power -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life; `is_up` follows when its logs are read."""
        self.life += 1
        self.topics_before = self._cluster.invariants.kept_topics()
        self._stop = asyncio.Event()
        self._running = asyncio.ensure_future(self._live())
        self._running.add_done_callback(self._on_end)

    @property
    def is_serving(self) -> bool:
        """Whether clients and followers are answered by its Kafka listener."""
        return self.is_up and self.gate.is_open

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
        if running is not None:
            running.cancel()

    def replace_machine(self, directory_id: Uuid, *, bootstrap_servers: Sequence[tuple[str, int]]) -> None:
        """All its disks are lost, while it is down: what comes next is another replica, which knows only whom to ask for the leader."""
        assert not self.is_up, "it was lost before"
        self.disk = SimulatedDisk(self.disk_faults, self._cluster.random)
        self.member = self.member._replace(key=ReplicaKey(self.id, directory_id))
        self._voters, self._bootstrap_servers = VoterSet.unknown(), bootstrap_servers
        for path in list(self.directory_ids):
            self._renew_directory(path)

    def wall_ms(self) -> int:
        """What its clock shows."""
        return self._cluster.wall_ms() + self.clock_ahead_ms

    def _renew_directory(self, path: str) -> None:
        former = self.directory_ids[path]
        self.directory_ids[path] = Uuid(former[:8] + self.life.to_bytes(8, "big"))
        self.replaced_by[former] = self.directory_ids[path]

    def _end_life(self, *, is_power_cut: bool) -> None:
        self.is_up = self.is_stopping = False
        self.life += 1
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
        loop = asyncio.get_running_loop()
        disk = self.disk
        swarm = self._cluster.swarm
        checkpoint_ms = int(swarm.logs.checkpoint_s * 1000)
        random = Random(self._cluster.random.random())

        clock_ms = self.wall_ms

        def monotonic_ms() -> int:
            return int(loop.time() * 1000)

        clock = VotersClock(
            wall_ms=clock_ms, monotonic_ms=monotonic_ms, skew_ms_max=LogManagerConfig().retention_clock_skew_ms_max
        )

        disk.make_directory(f"node-{self.id}")
        metadata_log = await MetadataLog.open(
            disk=disk,
            metadata_directory=f"node-{self.id}",
            now_ms=clock_ms(),
            segment_bytes=QUORUM_SEGMENT_BYTES,
        )
        properties = PROPERTIES | {"log.retention.bytes": str(swarm.logs.retention_bytes)}
        settings = TopicSettings(broker_id=self.id, properties=properties)
        self.loader = loader = MetadataLoader()
        self.driver = driver = WatchedDriver(
            Controller(
                config=CONTROLLER,
                cluster_id=CLUSTER_ID,
                random=Random(random.random()),
                validators=ConfigValidators(
                    topic=settings.validate_topic,
                    broker=lambda broker, key, value: settings.validate_broker(key, value),
                    group=settings.validate_group,
                    topic_as_whole=settings.validate_topic_as_whole,
                    inherited=settings.inherited,
                ),
            ),
            node_id=self.id,
            clock_ms=clock_ms,
            probe=NoProbe(),
            voters_clock_ms=lambda: self.quorum.voters_clock_ms,
        )
        driver.on_fence = lambda broker_id: self._cluster.invariants.on_fence(self, broker_id)
        listener = MetadataListener(loader, leader_observers=())
        self.quorum = quorum = QuorumNode(
            config=replace(QUORUM, snapshot_after_bytes=swarm.snapshot_after_bytes),
            replica=self.member.key,
            voters=self._voters,
            log=metadata_log,
            transport=SimulatedTransport(self.network, self),
            clock_ms=clock_ms,
            random=Random(random.random()),
            listener=listener,
            endpoint=(self.member.host, self.member.port),
            bootstrap_servers=self._bootstrap_servers,
        )
        client = ControllerClient(
            SimulatedControllerTransport(self.network, self),
            loop=loop,
            controllers=VoterAddresses(lambda: quorum.voters, lambda: quorum.leader_endpoint),
            leader_hint=lambda: quorum.leader_and_epoch.leader_id,
        )
        unread = {path: error for path in self.directory_ids if (error := disk.unreadable(path)) is not None}
        self.logs = logs = LogManager(
            disk=disk,
            directories=list(self.directory_ids),
            directory_ids={path: number for path, number in self.directory_ids.items() if path not in unread},
            offline=unread,
            default_config=self._shaped(LogConfig.from_overrides(broker_defaults(properties), {})),
            clock_ms=clock_ms,
            config=LogManagerConfig(
                recovery_point_checkpoint_interval_ms=checkpoint_ms,
                scrub_bytes_per_second_max=SCRUB_BYTES_PER_SECOND if self._cluster.has_rot else 0,
                free_check_interval_ms=FREE_CHECK_MS,
                reserve_bytes=RESERVE_BYTES,
                is_cleaner_enabled=self._cluster.swarm.is_compacting,
                cleaner_backoff_ms=BACKOFF_MS,
                cleaner_map_bytes_max=MAP_BYTES,
            ),
            transform=InlineCleaner(disk, Random(self.life), dies=self._cluster.swarm.cleaner_dies),
            may_judge_age=clock.may_judge_age,
        )
        await logs.load()
        incarnation_id = Uuid(random.randbytes(16))
        self.lifecycle = lifecycle = BrokerLifecycle(
            identity=BrokerIdentity(
                broker_id=self.id,
                cluster_id=CLUSTER_ID,
                incarnation_id=incarnation_id,
                endpoints=(Endpoint("PLAINTEXT", "simulated", 9000 + self.id),),
                rack=None,
                directories=tuple(number for path, number in self.directory_ids.items() if path not in unread),
                features=SUPPORTED_FEATURES,
                previous_broker_epoch=logs.previous_broker_epoch,
            ),
            config=LIFECYCLE,
            client=client,
            data_lane_last_tick_ms=monotonic_ms,
            clock_ms=monotonic_ms,
            directories=logs,
            on_voters_clock=clock.hear,
        )
        self._tell_offline_directories(set(unread))
        own_requests = OwnRequests(client, broker_id=self.id, broker_epoch=lambda: lifecycle.broker_epoch)
        failure: asyncio.Future[None] = loop.create_future()

        def fail(error: BaseException) -> None:
            if not failure.done():
                failure.set_exception(error)

        def on_directory_failed(directory: str, error: OSError) -> None:
            self._cluster.figures.directories_offline += 1
            self._cluster.note(f"directory {directory} is offline", self.id, self.life)
            if is_out_of_descriptors(error):
                self._cluster.network.failures.append(LawBroken("want of descriptors fails no directory", str(error)))
            if not logs.health.online_directories:
                fail(StorageFailed(f"the last log directory, {directory}, failed: {error}"))
            else:
                self._tell_offline_directories(set(unread))

        placements = ReportQueue(own_requests.assign_replicas_to_directories)
        faults = ReportQueue(own_requests.alter_replica_faults)
        self.replicas = replicas = _NotedReplicas(
            self,
            broker_id=self.id,
            broker_epoch=lambda: lifecycle.broker_epoch,
            config=ReplicationConfig(
                replica_lag_time_ms_max=swarm.replica_lag_ms,
                replica_fetch_silence_ms_max=swarm.replica_silence_ms,
                replica_fetch_bytes_max=swarm.replica_fetch_bytes,
                replica_fetch_backoff_ms=300,
                high_watermark_checkpoint_interval_ms=checkpoint_ms,
            ),
            logs=logs,
            log_config=lambda topic, image: self._shaped(settings.log_config(topic, image)),
            controller=own_requests,
            peers=lambda broker_id, endpoint: SimulatedPeer(self.network, self, broker_id),
            clock_ms=clock_ms,
            random=Random(random.random()),
            listener=ReplicaReports(placements=placements, faults=faults, on_directory_failed=on_directory_failed),
            sessionless_size=self._cluster.sessionless_size,
        )

        def changed_settings(delta: MetadataDelta, image: MetadataImage) -> dict[str, LogConfig]:
            changed = settings.changed_log_configs(delta, image)
            return {topic: self._shaped(config) for topic, config in changed.items()}

        def update_throttles(delta: MetadataDelta, image: MetadataImage) -> None:
            settings.apply_throttles(replicas.throttle, delta, image, replicas.now_ms())

        self.cache = MetadataCache(MetadataImage.EMPTY)
        coordinators, coordinating = self._coordinate(client, own_requests)
        self.gate = ServiceGate(broker_id=self.id, incarnation_id=incarnation_id, on_registered=lambda: None)
        publisher = BrokerMetadataPublisher(
            broker_id=self.id,
            replicas=replicas,
            coordinators=coordinators,
            changed_settings=changed_settings,
            update_throttles=update_throttles,
            update_quotas=lambda image: None,
            cache=self.cache,
            gate=self.gate,
            control_loop=loop,
            data_loop=loop,
            on_applied=lifecycle.on_metadata_published,
            on_error=fail,
        )
        loader.publishers = (driver, publisher)
        listener.leader_observers = (driver.on_leader_change, lifecycle.on_leader_change)
        driver.attach(quorum, loader=loader)
        self.is_up = True
        await self._serve(
            publisher,
            (placements.run(), faults.run(), *coordinating),
            (quorum.run(), driver.run(), lifecycle.run(), _raise_from(failure)),
        )
        await metadata_log.close()

    def _coordinate(
        self, client: ControllerClient, own_requests: OwnRequests
    ) -> tuple[list[CoordinatorTopic], list[Coroutine[Any, Any, None]]]:
        """The coordinators as node/data.py assembles them, and what runs them; nothing in seeds without transactions."""
        if not self._cluster.swarm.is_transacting:
            return [], []
        registry.load_handlers()
        clock_ms, disk, replicas = self.wall_ms, self.disk, self.replicas
        self.groups = groups = GroupCoordinator(
            config=GroupCoordinatorConfig(offsets_topic_num_partitions=1),
            log=ReplicatedLog(OFFSETS_TOPIC, replicas=replicas, disk=disk),
            metadata=self.cache,
            controller=client,
            clock_ms=clock_ms,
        )
        producer_ids = ProducerIds(own_requests.allocate_producer_ids)
        brokers = SimulatedBrokers(self.network, self)
        self.transactions = transactions = TransactionCoordinator(
            config=CONFIG,
            log=ReplicatedLog(TRANSACTION_TOPIC, replicas=replicas, disk=disk),
            metadata=self.cache,
            controller=client,
            producer_ids=producer_ids,
            brokers=brokers,
            is_current=lambda: self.gate.has_read_registration,
            clock_ms=clock_ms,
        )
        self.transactional = transactional = TransactionalWrites(
            config=CONFIG,
            replicas=replicas,
            groups=groups,
            verification=Verification(brokers=brokers, coordinator_of=transactions.topic.leader_for),
        )
        unused: Any = None
        serve: Any = serve_own_calls(
            BrokerServices(
                node_id=self.id,
                cluster_id=CLUSTER_ID,
                config=ApiConfig(),
                replica_manager=replicas,
                metadata=self.cache,
                controller=client,
                groups=groups,
                transactions=transactions,
                transactional=transactional,
                producer_ids=producer_ids,
                clock_ms=clock_ms,
                quorum_description=unused,
                broker_keys=tuple,
            )
        )
        self.serve_own_call = brokers.serve = serve
        topics = [CoordinatorTopic(OFFSETS_TOPIC, groups), CoordinatorTopic(TRANSACTION_TOPIC, transactions)]
        return topics, [groups.run(), transactions.run(), transactional.run()]

    def note_room(self, directory: str, has_room: bool) -> None:
        """Into the trace and the figures."""
        self._cluster.figures.directories_filled += not has_room
        self._cluster.note(f"directory {directory} {'has room' if has_room else 'is full'}", self.id, self.life)

    def _tell_offline_directories(self, unread: set[str]) -> None:
        """As node.py does: the ids of those that could be read, and how many there are of all."""
        offline = self.logs.health.offline_directories
        ids = {self.directory_ids[path] for path in offline if path not in unread}
        self.lifecycle.set_offline_directories(ids, count=len(offline))

    async def _serve(
        self,
        publisher: BrokerMetadataPublisher,
        reports: Iterable[Coroutine[Any, Any, None]],
        control_side: Iterable[Coroutine[Any, Any, None]],
    ) -> None:
        """Until `stop`, then in the order of node.py: hand over, close data, mark the logs clean, resign."""
        logs, replicas, lifecycle = self.logs, self.replicas, self.lifecycle
        async with asyncio.TaskGroup() as tasks:
            control = [tasks.create_task(part) for part in control_side]
            keeping = tasks.create_task(logs.run())
            replicating = tasks.create_task(replicas.run())
            others = [tasks.create_task(part) for part in (*reports, self._retire(logs))]
            lifecycle.set_ready()
            await self._stop.wait()
            await lifecycle.leave()
            for task in (*others, replicating):
                task.cancel()
            await asyncio.wait((*others, replicating))
            self.is_stopping = True
            publisher.stop()
            await replicas.close()
            keeping.cancel()
            await asyncio.wait((keeping,))
            is_registered = lifecycle.broker_epoch != NO_BROKER_EPOCH
            await logs.close(broker_epoch=lifecycle.broker_epoch if is_registered else logs.previous_broker_epoch)
            await self.quorum.resign()
            for task in control:
                task.cancel()

    async def _retire(self, logs: LogManager) -> None:
        """Retention, sooner than the manager's own first look after half a minute: few lives last that long. The first is at
        any moment: metadata may come as late as that, where nobody leads the quorum."""
        checkpoint_s = self._cluster.swarm.logs.checkpoint_s
        await asyncio.sleep(checkpoint_s * self._cluster.random.random())
        while True:
            await logs.apply_retention()
            await asyncio.sleep(checkpoint_s)


def _is_of_disk(error: BaseException) -> bool:
    return all(isinstance(each, StorageFailed | OSError) for each in leaves(error))


async def _raise_from(failure: asyncio.Future[None]) -> None:
    await failure
