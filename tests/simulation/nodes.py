"""One simulated node: the real parts of broker and controller on the virtual loop, over a fake disk and network.

May touch:  every room, to build it, as node.py does.   Must not touch: gRPC, sockets, threads, real files.
Invariants: a crash loses what was not flushed and everything in memory; nothing of a past life reaches the disk of the next.
Read next:  cluster.py.

What is real: QuorumNode with MetadataLog, MetadataLoader, Controller and its driver, ControllerClient, BrokerLifecycle,
LogManager with UnifiedLog and its flush rounds, ReplicaManager with Partition and fetchers, the metadata publisher.
What is not: the Kafka listener and codec, gRPC, the two lanes (one loop plays both).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from barnabas_broker.config.dynamic import TopicSettings
from barnabas_broker.controller_client import ControllerClient
from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.config import LifecycleConfig
from barnabas_broker.metadata.lifecycle import BrokerIdentity, BrokerLifecycle
from barnabas_broker.metadata.placements import Placements
from barnabas_broker.metadata.publisher import BrokerMetadataPublisher
from barnabas_broker.node.metadata_log import MetadataLog
from barnabas_log.config import FlushOnAcks, LogConfig
from barnabas_log.manager import LogManager, LogManagerConfig
from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.driver.controller_driver import ControllerDriver, MetadataListener
from barnabas_quorum.driver.node import QuorumNode
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.manager import ReplicaManager
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Uuid
from tests.simulation.disk import DiskFaults, SimulatedDisk
from tests.simulation.network import Network, SimulatedControllerTransport, SimulatedPeer, SimulatedTransport

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

CLUSTER_ID = str(Uuid(b"simulated-cluste"))
WALL_START_MS = 1_700_000_000_000
CONTROLLER = ControllerConfig(session_timeout_ms=3000, disconnect_grace_ms=500, min_insync_replicas=2)
LIFECYCLE = LifecycleConfig(session_timeout_ms=3000, heartbeat_interval_ms=500)
QUORUM = QuorumConfig(snapshot_after_bytes=900, retention_bytes=4_000, fetch_snapshot_bytes_max=300)
"""Snapshots every few seconds, fetched in several slices, and a log that soon begins at one."""
QUORUM_SEGMENT_BYTES = 1_200
PROPERTIES = {"min.insync.replicas": "2", "log.retention.ms": "-1"}
FILE_DELETE_DELAY_MS = 300


class NoProbe:
    """Nobody can be looked at from outside: the grace and the session decide."""

    async def is_refused(self, endpoints: Any) -> bool:
        """See BrokerProbe."""
        return False


class SimulatedNode:
    """A combined node, through all its lives."""

    def __init__(self, cluster: Cluster, node_id: BrokerId, voters: VoterSet, disk_faults: DiskFaults) -> None:
        self.id = node_id
        self.life = 0
        self.is_up = False
        self.directory_id = Uuid(bytes([node_id]) * 16)
        """Of the partition logs. Another disk has another one, as formatting gives it."""
        self.disk_faults = disk_faults
        self.disk = SimulatedDisk(disk_faults, cluster.random)
        self.quorum: QuorumNode
        self.driver: ControllerDriver
        self.replicas: ReplicaManager
        self.logs: LogManager
        self.loader: MetadataLoader
        self.lifecycle: BrokerLifecycle
        self._cluster = cluster
        self._voters = voters
        self._running: asyncio.Task[None] | None = None

    @property
    def _data_directory(self) -> str:
        return f"node-{self.id}/data"

    def _log_config(self, settings: TopicSettings, topic: str, image: MetadataImage) -> LogConfig:
        """What the topic says, with sizes that no operator may choose: so much the sooner something happens."""
        shape = self._cluster.swarm.logs
        return replace(
            settings.log_config(topic, image),
            segment_bytes=shape.segment_bytes,
            index_interval_bytes=shape.index_interval_bytes,
            retention_bytes=shape.retention_bytes,
            file_delete_delay_ms=FILE_DELETE_DELAY_MS,
            flush_on_acks=FlushOnAcks.PAGE_CACHE if shape.is_page_cache else FlushOnAcks.FSYNC,
        )

    @property
    def network(self) -> Network:
        """The cluster's network."""
        return self._cluster.network

    def start(self) -> None:
        """Begin a life; `is_up` follows when its logs are read."""
        self.life += 1
        self._running = asyncio.ensure_future(self._live(self.life))
        self._running.add_done_callback(self._on_end)

    def crash(self, *, is_wiped: bool = False) -> None:
        """Power off, or a kill where records count when written: then the disk keeps what was durable and part of the rest,
        or all. is_wiped: the partition logs are gone altogether, a new disk was put in."""
        self.is_up = False
        self.life += 1
        for stream in list(self.network.streams):
            if stream.is_of(self):
                stream.break_off()
        is_power_cut = not self._cluster.swarm.logs.is_page_cache
        self.disk = self.disk.after_crash(self._cluster.random, is_power_cut=is_power_cut)
        if is_wiped:
            self.disk.wipe(self._data_directory)
            self.directory_id = Uuid(bytes([self.id]) * 8 + self.life.to_bytes(8, "big"))
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and task is self._running:
            self._cluster.network.failures.append(task.exception())

    async def _live(self, life: int) -> None:
        loop = asyncio.get_running_loop()
        disk = self.disk
        swarm = self._cluster.swarm
        checkpoint_ms = int(swarm.logs.checkpoint_s * 1000)
        random = Random(self._cluster.random.random())

        def clock_ms() -> int:
            return WALL_START_MS + int(loop.time() * 1000)

        def monotonic_ms() -> int:
            return int(loop.time() * 1000)

        disk.make_directory(f"node-{self.id}")
        metadata_log = await MetadataLog.open(
            disk=disk,
            metadata_directory=f"node-{self.id}",
            now_ms=clock_ms(),
            segment_bytes=QUORUM_SEGMENT_BYTES,
        )
        settings = TopicSettings(broker_id=self.id, properties=PROPERTIES)
        self.loader = loader = MetadataLoader()
        self.driver = driver = ControllerDriver(
            Controller(
                config=CONTROLLER,
                cluster_id=CLUSTER_ID,
                random=Random(random.random()),
                validators=ConfigValidators(
                    topic=settings.validate_topic,
                    broker=lambda *_: None,
                    group=settings.validate_group,
                    topic_as_whole=settings.validate_topic_as_whole,
                ),
            ),
            node_id=self.id,
            clock_ms=clock_ms,
            probe=NoProbe(),
        )
        listener = MetadataListener(loader, leader_observers=())
        self.quorum = quorum = QuorumNode(
            config=QUORUM,
            replica=ReplicaKey(self.id, self._voters.by_id(self.id).key.directory_id),  # type: ignore[union-attr]
            voters=self._voters,
            log=metadata_log,
            transport=SimulatedTransport(self.network, self),
            clock_ms=clock_ms,
            random=Random(random.random()),
            listener=listener,
        )
        client = ControllerClient(
            SimulatedControllerTransport(self.network, self),
            loop=loop,
            controllers=[key.id for key in self._voters.keys],
            broker_id=self.id,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            leader_hint=lambda: quorum.leader_and_epoch.leader_id,
        )
        self.logs = logs = LogManager(
            disk=disk,
            directories=[self._data_directory],
            directory_ids={self._data_directory: self.directory_id},
            default_config=LogConfig.from_overrides({"min.insync.replicas": "2"}, {}),
            clock_ms=clock_ms,
            config=LogManagerConfig(recovery_point_checkpoint_interval_ms=checkpoint_ms),
            topic_config=lambda topic: self._log_config(settings, topic, MetadataImage.EMPTY),
        )
        await logs.load()
        self.lifecycle = lifecycle = BrokerLifecycle(
            identity=BrokerIdentity(
                broker_id=self.id,
                cluster_id=CLUSTER_ID,
                incarnation_id=Uuid(random.randbytes(16)),
                endpoints=(Endpoint("PLAINTEXT", "simulated", 9000 + self.id),),
                rack=None,
                directories=(self.directory_id,),
                features=SUPPORTED_FEATURES,
                previous_broker_epoch=logs.previous_broker_epoch,
            ),
            config=LIFECYCLE,
            client=client,
            data_lane_last_tick_ms=monotonic_ms,
            clock_ms=monotonic_ms,
        )
        self.replicas = replicas = ReplicaManager(
            broker_id=self.id,
            broker_epoch=lambda: lifecycle.broker_epoch,
            config=ReplicationConfig(
                replica_lag_time_ms_max=swarm.replica_lag_ms,
                replica_fetch_bytes_max=swarm.replica_fetch_bytes,
                replica_fetch_backoff_ms=300,
                high_watermark_checkpoint_interval_ms=checkpoint_ms,
            ),
            logs=logs,
            log_config=lambda topic, image: self._log_config(settings, topic, image),
            controller=client,
            peers=lambda broker_id, endpoint: SimulatedPeer(self.network, self, broker_id),
            clock_ms=clock_ms,
            random=Random(random.random()),
        )
        placements = Placements(client)
        replicas.on_placed = placements.note
        failure: asyncio.Future[None] = loop.create_future()
        publisher = BrokerMetadataPublisher(
            broker_id=self.id,
            replicas=replicas,
            coordinators=[],
            update_configs=lambda delta, image: None,
            cache=MetadataCache(MetadataImage.EMPTY),
            control_loop=loop,
            data_loop=loop,
            on_applied=lifecycle.on_metadata_published,
            on_error=lambda error: None if failure.done() else failure.set_exception(error),
        )
        loader.publishers = (driver, publisher)
        listener.leader_observers = (driver.on_leader_change, lifecycle.on_leader_change)
        driver.attach(quorum, loader=loader)
        self.is_up = True
        async with asyncio.TaskGroup() as tasks:
            brokers = (lifecycle.run(), placements.run(), logs.run(), replicas.run(), self._retire(logs))
            for part in (quorum.run(), driver.run(), *brokers):
                tasks.create_task(part)
            lifecycle.set_ready()
            await failure

    async def _retire(self, logs: LogManager) -> None:
        """Retention, sooner than the manager's own first look after half a minute: few lives last that long."""
        while True:
            await asyncio.sleep(self._cluster.swarm.logs.checkpoint_s)
            await logs.apply_retention()
