"""One node: where every object is made and wired, and nowhere else.

May touch:  every room, to build it.   Must not touch: rules: nothing is decided here but order.
Invariants: what keeps the cluster alive lives on the control lane, what carries data on the data lane; a broker asks to be
    unfenced only when its logs are recovered, its metadata is applied and it listens; it serves clients once it is unfenced
    (metadata/service_gate.py); it stops in the reverse order: hand over leaderships, close the listener, flush and mark the
    logs clean, resign from the quorum.
Read next:  process.py, which makes the lanes; metadata/publisher.py, the crossing between them.

Control lane: metadata log, quorum, metadata loader, controller, broker lifecycle, all of grpc.aio, metrics.
Data lane:    data logs, replication, coordinators, the Kafka listeners.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import grpc.aio

from barnabas_broker.admin.edge import AdminEdge
from barnabas_broker.admin.explain import ExplainService
from barnabas_broker.admin.inspection import InspectionService
from barnabas_broker.admin.service import AdminService
from barnabas_broker.admin.voters import make_change
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.config.dynamic import TopicSettings
from barnabas_broker.config.server import NodeConfig, ServerConfig, split_address
from barnabas_broker.controller_client.client import ControllerClient, GrpcControllerTransport
from barnabas_broker.controller_client.facts import ControllerFactsServicer
from barnabas_broker.controller_client.producer_ids import ProducerIds
from barnabas_broker.controller_client.quorum_view import LeaderView
from barnabas_broker.coordinator.group.service import OFFSETS_TOPIC, GroupCoordinator
from barnabas_broker.coordinator.replicated_log import ReplicatedLog
from barnabas_broker.metadata.applied import AppliedOffset
from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.controller_registration import ControllerRegistrar
from barnabas_broker.metadata.cut_off import CutOffWatch
from barnabas_broker.metadata.lifecycle import BrokerIdentity, BrokerLifecycle
from barnabas_broker.metadata.own_requests import OwnRequests
from barnabas_broker.metadata.placements import Placements
from barnabas_broker.metadata.publisher import BrokerMetadataPublisher, CoordinatorTopic
from barnabas_broker.metadata.replica_faults import ReplicaFaultReports
from barnabas_broker.metadata.service_gate import ServiceGate
from barnabas_broker.metrics.health import find_dead, find_unready
from barnabas_broker.metrics.http import HttpServer
from barnabas_broker.metrics.lane_probe import LaneProbe
from barnabas_broker.metrics.page import render_metrics
from barnabas_broker.metrics.sources import NodeSources
from barnabas_broker.network.listener import KafkaServer, ListenAddress
from barnabas_broker.node.bootstrap import BootstrapServicer, QuorumIdentity, discover_quorum
from barnabas_broker.node.control_lane import ControlLane
from barnabas_broker.node.descriptor_budget import DescriptorBudget
from barnabas_broker.node.facts import NodeFacts
from barnabas_broker.node.incarnation_file import (
    WHOLE_LOG,
    go_over,
    guard_incarnation,
    open_log,
    own_incarnation,
)
from barnabas_broker.node.incarnation_watch import IncarnationWatch
from barnabas_broker.node.metadata_log import MetadataLog
from barnabas_broker.node.storage import NodeStorage, format_storage, is_formatted, load_storage
from barnabas_broker.node.voter_addresses import VoterAddresses, own_address
from barnabas_broker.version import COMMIT, VERSION
from barnabas_log.disk import Disk, RealDisk
from barnabas_log.manager import LogManager
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.controller.partition_rules import MIN_INSYNC_REPLICAS
from barnabas_quorum.controller.requests import NO_BROKER_EPOCH
from barnabas_quorum.controller.requests_cluster import RegisterController
from barnabas_quorum.driver.broker_probe import TcpProbe
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.controller_service import ControllerService
from barnabas_quorum.driver.grpc_transport import GrpcTransport, QuorumServicer
from barnabas_quorum.driver.incarnation import Incarnation
from barnabas_quorum.driver.metadata_listener import MetadataListener
from barnabas_quorum.driver.node import QuorumNode
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.publisher import Publisher
from barnabas_quorum.raft.voters import VoterSet
from barnabas_replication.manager import ReplicaManager
from barnabas_replication.peer import KafkaPeer, Peer
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Offset, Uuid
from barnabas_wire.rpc.options import address_of
from barnabas_wire.rpc.server import new_server

logger = logging.getLogger(__name__)

SERVER_GRACE_S = 0.2
"""How long a stopping gRPC server waits for calls under way."""


def wall_ms() -> int:
    """Wall clock, ms since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """A clock that never jumps, for time-outs."""
    return time.monotonic_ns() // 1_000_000


class Node:
    """One node of the cluster, from start to stop. `run` is its whole life, on the data lane."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        control: ControlLane,
        descriptors: DescriptorBudget,
        open_disk: Callable[[], RealDisk] = RealDisk,
    ) -> None:
        self._config = config
        self._descriptors = descriptors
        self._open_disk = open_disk
        self._control = control
        self._data_loop = asyncio.get_running_loop()
        self._random = Random(os.urandom(16))
        self._started_s = time.time()
        self._incarnation_id = Uuid(os.urandom(16))
        self._data_probe = LaneProbe(clock_ms=monotonic_ms)

    async def run(self, stop: asyncio.Event) -> None:
        """Start, serve until `stop` is set, stop in order. Raises what made the node stop otherwise."""
        logger.info("%s", describe_node(self._config.server))
        disk = self._open_disk()
        disk.descriptors.files_max = self._descriptors.files_max
        try:
            identity = await self._identify(disk, stop)
            if identity is None:
                logger.info("node %d stops before a controller answered", self._config.server.node_id)
                return
            storage, voters, incarnation = identity
            control = await self._control.call(_ControlSide.make(self, storage, voters, incarnation))
            try:
                if self._config.server.is_broker:
                    await self._run_broker(disk, storage, control, stop)
                else:
                    await self._run_controller(control, stop)
            finally:
                await self._control.call(control.close())
        finally:
            disk.close()

    async def _identify(self, disk: Disk, stop: asyncio.Event) -> tuple[NodeStorage, VoterSet, Incarnation] | None:
        """Who this node is; None when it is to stop before it knows. A broker asks a controller, and formats itself on first
        boot; a voter never does."""
        server = self._config.server
        incarnation = own_incarnation(disk, server.metadata_directory)
        if server.is_controller:
            storage = load_storage(disk, server)
            return storage, storage.voters or VoterSet.unknown(), incarnation
        identity = await self._discover(incarnation, stop)
        if identity is None:
            return None
        if not is_formatted(disk, server):
            logger.info("first boot: formatting %s for cluster %s", ", ".join(server.log_dirs), identity.cluster_id)
            format_storage(
                disk,
                server,
                cluster_id=identity.cluster_id,
                make_voters=lambda directory_id: None,
                new_uuid=lambda: Uuid(os.urandom(16)),
                is_formatted_ignored=True,
            )
        storage = load_storage(disk, server)
        storage.check_cluster(identity.cluster_id)
        if identity.incarnation.number > incarnation.number:
            go_over(disk, storage.metadata_directory, identity.incarnation, former_epoch=WHOLE_LOG)
            incarnation = identity.incarnation
        return storage, identity.voters, incarnation

    async def _discover(self, known: Incarnation, stop: asyncio.Event) -> QuorumIdentity | None:
        """What a controller answers; None when the node is to stop before any does."""
        discovery = discover_quorum(self._config.server.quorum_bootstrap_servers, known=known)
        asking = asyncio.ensure_future(self._control.call(discovery))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if asking.done():
            return asking.result()
        asking.cancel()
        await asyncio.wait((asking,))
        return None

    async def _run_controller(self, control: _ControlSide, stop: asyncio.Event) -> None:
        """A node without a broker: the data lane only shows that it turns."""
        async with asyncio.TaskGroup() as tasks:
            probe = tasks.create_task(self._data_probe.run())
            serving = tasks.create_task(self._control.call(control.run()))
            await _first_of(stop, serving)
            await self._control.call(control.stop())
            await serving
            probe.cancel()

    async def _run_broker(
        self, disk: RealDisk, storage: NodeStorage, control: _ControlSide, stop: asyncio.Event
    ) -> None:
        config = self._config
        settings = control.settings
        logs = LogManager(
            disk=disk,
            directories=config.server.log_dirs,
            default_config=config.log,
            clock_ms=wall_ms,
            directory_ids=storage.directory_ids,
            offline=storage.offline,
            config=config.log_manager,
        )
        await logs.load()
        cache = MetadataCache(MetadataImage.EMPTY)
        lifecycle = control.make_lifecycle(previous_broker_epoch=logs.previous_broker_epoch)

        def tell_offline_directories() -> None:
            lifecycle.set_offline_directories(
                {storage.directory_ids[path] for path in logs.offline_directories if path in storage.directory_ids},
                count=len(logs.offline_directories),
            )

        tell_offline_directories()
        own_requests = OwnRequests(
            control.client, broker_id=config.server.id, broker_epoch=lambda: lifecycle.broker_epoch
        )
        replicas = ReplicaManager(
            broker_id=config.server.id,
            broker_epoch=lambda: lifecycle.broker_epoch,
            config=config.replication,
            logs=logs,
            log_config=settings.log_config,
            controller=own_requests,
            peers=self._make_peer,
            clock_ms=wall_ms,
            random=Random(self._random.random()),
        )
        groups = GroupCoordinator(
            config=config.groups,
            log=ReplicatedLog(OFFSETS_TOPIC, replicas=replicas, disk=disk),
            metadata=cache,
            controller=control.client,
            clock_ms=wall_ms,
        )
        server = KafkaServer(
            addresses=[ListenAddress(p.listener, p.host, p.port) for p in config.server.kafka_endpoints()],
            config=replace(
                config.network,
                max_connections=self._descriptors.connections_max,
                inter_broker_connections_reserved=self._descriptors.connections_reserved,
            ),
            services=BrokerServices(
                node_id=config.server.id,
                cluster_id=storage.cluster_id,
                config=config.api,
                replica_manager=replicas,
                metadata=cache,
                controller=control.client,
                groups=groups,
                producer_ids=ProducerIds(own_requests.allocate_producer_ids),
                clock_ms=wall_ms,
                quorum_description=lambda: self._control.call(control.leader_view.describe()),
                broker_keys=control.facts.described_keys,
                voters=lambda: control.quorum.voters.voters,
                change_voters=lambda change: self._control.call(make_change(control.leader_view, change)),
            ),
        )
        await server.start()

        placements = Placements(own_requests.assign_replicas_to_directories)
        replicas.on_placed = placements.note
        faults = ReplicaFaultReports(own_requests.alter_replica_faults)
        replicas.on_replica_fault = faults.note

        def on_directory_failed(directory: str, error: OSError) -> None:
            # One of several directories may fail: its partitions go offline. Without any, a broker that stayed would
            # keep its leaderships and answer nothing.
            if not logs.online_directories:
                failure = RuntimeError(f"the last log directory, {directory}, failed: {error}")
                self._control.loop.call_soon_threadsafe(control.fail, failure)
                return
            self._control.loop.call_soon_threadsafe(tell_offline_directories)

        replicas.on_directory_failed = on_directory_failed

        def update_configs(delta: MetadataDelta, image: MetadataImage) -> None:
            for topic in settings.changed_topics(delta, image):
                replicas.update_topic_config(topic, settings.log_config(topic, image))
            settings.apply_throttles(replicas.throttle, delta, image, replicas.now_ms())

        gate = ServiceGate(broker_id=config.server.id, incarnation_id=self._incarnation_id, on_registered=server.listen)
        watch = CutOffWatch(
            contact=lifecycle,
            gate=gate,
            is_left_alone=replicas.is_left_alone,
            serve_clients=server.serve_clients,
            session_timeout_ms=config.lifecycle.session_timeout_ms,
            clock_ms=monotonic_ms,
        )
        publisher = BrokerMetadataPublisher(
            broker_id=config.server.id,
            replicas=replicas,
            coordinators=[CoordinatorTopic(OFFSETS_TOPIC, groups)],
            update_configs=update_configs,
            cache=cache,
            gate=gate,
            control_loop=self._control.loop,
            data_loop=self._data_loop,
            on_applied=control.on_applied,
            on_error=control.fail,
        )
        control.attach_broker(
            publisher,
            gate,
            network=server.stats,
            replicas=replicas,
            logs=logs,
            log_descriptors=disk.descriptors,
            groups=groups,
        )
        async with asyncio.TaskGroup() as tasks:
            probe = tasks.create_task(self._data_probe.run())
            keeping = tasks.create_task(logs.run())
            replicating = tasks.create_task(replicas.run())
            placing = tasks.create_task(placements.run())
            reporting = tasks.create_task(faults.run())
            coordinating = tasks.create_task(groups.run())
            watching = tasks.create_task(watch.run())
            listening = tasks.create_task(server.run(wait_open=gate.wait_open))
            serving = tasks.create_task(self._control.call(control.run()))
            await self._control.call(control.announce_ready())
            await _first_of(stop, serving)
            logger.info("broker %d leaves the cluster", config.server.id)
            await self._control.call(control.leave())
            watching.cancel()
            placing.cancel()
            reporting.cancel()
            for task in (listening, coordinating, replicating):
                task.cancel()
            await asyncio.wait((listening, coordinating, replicating))
            publisher.stop()
            await replicas.close()
            keeping.cancel()
            await asyncio.wait((keeping,))
            # who never registered has changed nothing: what its last life left as clean is as clean as it was
            is_registered = lifecycle.broker_epoch != NO_BROKER_EPOCH
            await logs.close(broker_epoch=lifecycle.broker_epoch if is_registered else logs.previous_broker_epoch)
            await self._control.call(control.stop())
            await serving
            probe.cancel()
        logger.info("broker %d has stopped cleanly", config.server.id)

    def _make_peer(self, broker_id: BrokerId, endpoint: Endpoint) -> Peer:
        return KafkaPeer(
            endpoint=endpoint,
            client_id=f"broker-{self._config.server.node_id}-fetcher",
            timeout_ms=self._config.replication.replica_socket_timeout_ms,
        )

    # What the control side takes from the node; it is made on the control lane.

    @property
    def config(self) -> NodeConfig:
        """The node's config."""
        return self._config

    @property
    def open_disk(self) -> Callable[[], Disk]:
        """Makes a Disk; whoever calls it closes that."""
        return self._open_disk

    @property
    def control_loop(self) -> asyncio.AbstractEventLoop:
        """The control lane's loop."""
        return self._control.loop

    @property
    def incarnation_id(self) -> Uuid:
        """Random, one per process start."""
        return self._incarnation_id

    @property
    def started_s(self) -> float:
        """Wall clock at the start, s since 1970."""
        return self._started_s

    @property
    def data_probe(self) -> LaneProbe:
        """How late the data lane is."""
        return self._data_probe

    def new_random(self) -> Random:
        """A source of randomness of its own for one part."""
        return Random(self._random.random())


class _ControlSide:
    """Everything on the control lane. Made by `make`; all coroutines run on the lane."""

    def __init__(
        self,
        node: Node,
        storage: NodeStorage,
        voters: VoterSet,
        metadata_log: MetadataLog,
        incarnation: Incarnation,
    ) -> None:
        config = node.config
        server = config.server
        self._node = node
        self._storage = storage
        self._metadata_log = metadata_log
        self._stop = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._probe = LaneProbe(clock_ms=monotonic_ms)
        self._servers: list[grpc.aio.Server] = []
        self._http: HttpServer | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._is_left = False
        self._gate: ServiceGate | None = None
        self._broker_parts: dict[str, Any] = {}
        self.settings = TopicSettings(broker_id=server.id, properties=config.static_properties)
        self.loader = MetadataLoader()
        self._applied = AppliedOffset()
        self._driver: ControllerDriver | None = None
        if server.is_controller:
            validators = ConfigValidators(
                topic=self.settings.validate_topic,
                broker=self._validate_broker,
                group=self.settings.validate_group,
                topic_as_whole=self.settings.validate_topic_as_whole,
            )
            self._driver = ControllerDriver(
                Controller(
                    config=config.controller,
                    cluster_id=storage.cluster_id,
                    random=node.new_random(),
                    validators=validators,
                ),
                node_id=server.id,
                clock_ms=wall_ms,
                probe=TcpProbe(),
            )
        bootstrap_servers = [
            split_address(address, "controller.quorum.bootstrap.servers") for address in server.quorum_bootstrap_servers
        ]
        self._incarnation = guard_incarnation(
            incarnation,
            storage.metadata_directory,
            place=lambda: self.quorum,
            on_adopted=lambda found: logger.warning(
                "the quorum was recovered as incarnation %s; this node, which does not vote, follows it from now on",
                found,
            ),
            on_superseded=self.fail,
            on_conflict=logger.error,
            open_disk=node.open_disk,
        )
        transport = GrpcTransport(cluster_id=storage.cluster_id, incarnation=self._incarnation)
        self._listener = MetadataListener(self.loader, leader_observers=())
        self.quorum = QuorumNode(
            config=config.quorum,
            replica=storage.replica,
            voters=voters,
            log=metadata_log,
            transport=transport,
            clock_ms=wall_ms,
            random=node.new_random(),
            listener=self._listener,
            endpoint=own_address(server, storage.voters, storage.replica),
            on_loading=spare_the_collector,
            bootstrap_servers=bootstrap_servers,
        )
        addresses = VoterAddresses(lambda: self.quorum.voters, lambda: self.quorum.leader_endpoint)
        self.client = ControllerClient(
            GrpcControllerTransport(addresses, applied=self._applied),
            loop=node.control_loop,
            controllers=addresses,
            leader_hint=lambda: self.quorum.leader_and_epoch.leader_id,
        )
        self.leader_view = LeaderView(
            node_id=server.id,
            cluster_id=storage.cluster_id,
            quorum=self.quorum,
            clock_ms=wall_ms,
            recovered_beside=lambda: self._incarnation.recovered_beside,
        )
        self.facts = NodeFacts(
            config,
            cluster_id=storage.cluster_id,
            voters=lambda: self.quorum.voters,
            image=lambda: self.loader.image,
        )
        self._registrar: ControllerRegistrar | None = None
        self._watch: IncarnationWatch | None = None
        endpoint = server.controller_endpoint()
        if endpoint is not None:
            self._watch = IncarnationWatch(
                transport,
                own_address=own_address(server, storage.voters, storage.replica) or (endpoint.host, endpoint.port),
                voters=lambda: self.quorum.voters,
                addresses=[*bootstrap_servers, *((voter.host, voter.port) for voter in voters)],
                take_agreeing=self._incarnation.take_agreeing,
            )
            self._registrar = ControllerRegistrar(
                identity=RegisterController(
                    controller_id=server.id,
                    cluster_id=storage.cluster_id,
                    incarnation_id=node.incarnation_id,
                    endpoints=(endpoint,),
                    features=SUPPORTED_FEATURES,
                ),
                client=self.client,
                image=lambda: self.loader.image,
            )
        self._edge = AdminEdge(server.id)
        self._admin = AdminService(self.facts, self.client, self.leader_view, edge=self._edge, clock_ms=wall_ms)
        self._explain = ExplainService(
            node_id=server.id,
            log=metadata_log,
            quorum=self.quorum,
            image=lambda: self.loader.image,
            hold=lambda: self.loader.hold,
            controller=self.client,
            config=config.controller,
            bootstrap_servers=bootstrap_servers,
            edge=self._edge,
            clock_ms=wall_ms,
        )
        self._inspection = InspectionService(
            node_id=server.id,
            roles=server.process_roles,
            cluster_id=storage.cluster_id,
            loader=self.loader,
            log=metadata_log,
            quorum=self.quorum,
            controller=self.client,
            edge=self._edge,
        )
        self._wire_listeners(())

    @classmethod
    async def make(cls, node: Node, storage: NodeStorage, voters: VoterSet, incarnation: Incarnation) -> _ControlSide:
        """Open the metadata log and build everything that needs it."""

        async def open_it() -> MetadataLog:
            disk = node.open_disk()  # its own, so that its flushes never queue behind the data's
            try:
                return await MetadataLog.open(
                    disk=disk,
                    metadata_directory=storage.metadata_directory,
                    now_ms=wall_ms(),
                    segment_bytes=node.config.quorum.segment_bytes,
                    segment_ms=node.config.quorum.segment_ms,
                    replica=storage.replica,
                    formatted_voters=voters,
                )
            except BaseException:
                disk.close()
                raise

        log, was_former = await open_log(storage.metadata_directory, open_it=open_it, open_disk=node.open_disk)
        if was_former and node.config.server.is_controller:
            voters = VoterSet.unknown()  # those that it was formatted with belong to the log that was set aside
        return cls(node, storage, voters, log, incarnation)

    # -- before run: the broker's parts come in --------------------------------------------------------------------

    def make_lifecycle(self, *, previous_broker_epoch: int) -> BrokerLifecycle:
        """The broker's life; called from the data lane before anything runs here."""
        config = self._node.config
        self._lifecycle = BrokerLifecycle(
            identity=BrokerIdentity(
                broker_id=config.server.id,
                cluster_id=self._storage.cluster_id,
                incarnation_id=self._node.incarnation_id,
                endpoints=config.server.advertised_endpoints(),
                rack=config.server.rack,
                directories=tuple(
                    self._storage.directory_ids[path]
                    for path in config.server.log_dirs
                    if path in self._storage.directory_ids
                ),
                features=SUPPORTED_FEATURES,
                previous_broker_epoch=previous_broker_epoch,
            ),
            config=config.lifecycle,
            client=self.client,
            data_lane_last_tick_ms=lambda: self._node.data_probe.last_tick_ms,
            clock_ms=monotonic_ms,
        )
        return self._lifecycle

    def attach_broker(self, publisher: Publisher, gate: ServiceGate, **parts: Any) -> None:
        """The crossing to the data lane, whether clients are served, and the parts whose counters metrics read."""
        self._gate = gate
        self._broker_parts = parts
        self._wire_listeners((publisher,))

    def _wire_listeners(self, broker: tuple[Publisher, ...]) -> None:
        """The controller first: its answers leave on commit, whatever the broker side does with the image."""
        controller = (self._driver,) if self._driver is not None else ()
        registrar = (self._registrar,) if self._registrar is not None else ()
        self.loader.publishers = (*controller, *registrar, *(broker or (self._applied,)))
        observers = [part.on_leader_change for part in (self._driver, self._lifecycle) if part is not None]
        self._listener.leader_observers = tuple(observers)

    def on_applied(self, offset: Offset) -> None:
        """The data lane has applied the metadata up to here."""
        assert self._lifecycle is not None, "only a broker has a data lane that applies metadata"
        self._lifecycle.on_metadata_published(offset)
        self._applied.advance(offset)

    def fail(self, error: BaseException) -> None:
        """Metadata could not be applied: the node must stop rather than serve half of it."""
        if not self._failure.done():
            self._failure.set_exception(error)

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until `stop`. Raises what no part may survive."""
        if self._driver is not None:
            self._driver.attach(self.quorum, loader=self.loader)
        await self._start_servers()
        if self._watch is not None:
            await self._watch.look()
        parts: list[Coroutine[Any, Any, None]] = [self.quorum.run(), self._probe.run()]
        if self._driver is not None:
            parts.append(self._driver.run())
        if self._registrar is not None:
            parts.append(self._registrar.run())
        if self._watch is not None:
            parts.append(self._watch.run())
        if self._lifecycle is not None:
            parts.append(self._lifecycle.run())
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(part) for part in parts]
            running.append(tasks.create_task(_raise_from(self._failure)))
            await self._stop.wait()
            if self._driver is not None:
                await self.quorum.resign()
            for task in running:
                task.cancel()

    async def announce_ready(self) -> None:
        """The logs are recovered and the listeners are bound: the broker may be unfenced."""
        assert self._lifecycle is not None, "only a broker becomes ready"
        self._lifecycle.set_ready()

    async def leave(self) -> None:
        """Controlled shutdown of the broker."""
        assert self._lifecycle is not None, "only a broker leaves"
        await self._lifecycle.leave()

    async def stop(self) -> None:
        """Let `run` end in order."""
        self._stop.set()

    async def close(self) -> None:
        """Release everything; after run has ended."""
        await asyncio.gather(*(server.stop(SERVER_GRACE_S) for server in self._servers))
        if self._http is not None:
            await self._http.close()
        await self.leader_view.close()
        await self.client.close()
        await self._metadata_log.close()

    async def _start_servers(self) -> None:
        config = self._node.config.server
        endpoint = config.controller_endpoint()
        if self._driver is not None and endpoint is not None:
            server = new_server()
            QuorumServicer(
                cluster_id=self._storage.cluster_id,
                handle=self.quorum.handle,
                identity=self.quorum.identity,
                change_voters=self.quorum.change_voters,
                incarnation=self._incarnation,
            ).add_to(server)
            ControllerService(self._driver).add_to_server(server)
            BootstrapServicer(
                lambda: QuorumIdentity(self._storage.cluster_id, self.quorum.voters, self._incarnation.current)
            ).add_to(server)
            self.leader_view.add_to(server)
            ControllerFactsServicer(
                replica=self.quorum,
                sessions=self._driver,
                config=self._node.config.controller,
                incarnation=self._incarnation,
                clock_ms=wall_ms,
            ).add_to(server)
            await self._start(server, endpoint.host, endpoint.port)
        for address in config.admin_listeners:
            server = new_server()
            self._admin.add_to(server)
            self._explain.add_to(server)
            self._inspection.add_to(server)
            await self._start(server, *split_address(address, "admin.listeners"))
        sources = self._sources()
        self._http = HttpServer(
            addresses=[split_address(address, "metrics.listeners") for address in config.metrics_listeners],
            render=lambda: render_metrics(sources),
            find_dead=self._find_dead,
            find_unready=self._find_unready,
        )
        await self._http.start()

    async def _start(self, server: grpc.aio.Server, host: str, port: int) -> None:
        server.add_insecure_port(address_of(host, port))
        await server.start()
        self._servers.append(server)

    def _sources(self) -> NodeSources:
        config = self._node.config
        return NodeSources(
            node_id=config.server.id,
            cluster_id=self._storage.cluster_id,
            roles=config.server.process_roles,
            rack=config.server.rack,
            version=VERSION,
            commit=COMMIT,
            started_at_s=self._node.started_s,
            clock_ms=wall_ms,
            static_min_isr=config.log.min_insync_replicas,
            image=lambda: self.loader.image,
            loader=self.loader,
            quorum=self.quorum,
            recovered_beside=lambda: self._incarnation.recovered_beside,
            controller=self._driver,
            controller_client=self.client.stats,
            lifecycle=None if self._lifecycle is None else self._lifecycle.stats,
            admin=self._edge.stats,
            lanes={"control": self._probe.lag, "data": self._node.data_probe.lag},
            tasks={"control": self._probe.count_tasks, "data": self._node.data_probe.count_tasks},
            **self._broker_parts,
        )

    def _find_dead(self) -> list[str]:
        ticks = {"control": self._probe.last_tick_ms, "data": self._node.data_probe.last_tick_ms}
        return find_dead(now_ms=monotonic_ms(), last_tick_ms=ticks)

    def _find_unready(self) -> list[str]:
        server = self._node.config.server
        return find_unready(
            node_id=server.id,
            is_broker=server.is_broker,
            image=self.loader.image,
            hold=self.loader.hold,
            leader_id=self.quorum.describe().leader_id,
            high_watermark=self.quorum.high_watermark,
            is_serving=self._gate is not None and self._gate.is_open,
        )

    def _validate_broker(self, broker: str, key: str, value: str) -> None:
        if broker and key == MIN_INSYNC_REPLICAS:
            raise KafkaError.of(
                ErrorCode.INVALID_CONFIG,
                f"{key} cannot differ from broker to broker, or its leaders and the controller would disagree on who is "
                "eligible to lead; set it on the topic or for all brokers",
            )
        self.settings.validate_broker(key, value)


def spare_the_collector(is_loading: bool) -> None:
    """A snapshot makes a million objects that stay. Python's collector would look at all of them again and again while it
    is loaded: measured with 100 000 partitions, the control lane stood still for 210 ms at a time, without it for 19."""
    if is_loading:
        gc.disable()
    else:
        gc.freeze()
        gc.enable()


def describe_node(server: ServerConfig) -> str:
    """What starts here, in one line: version, node, roles, listeners, directories."""
    return (
        f"barnabas {VERSION}{f' ({COMMIT[:12]})' if COMMIT else ''} starts as node {server.node_id} "
        f"({','.join(server.process_roles)}), listeners {','.join(server.listeners)}, "
        f"admin {','.join(server.admin_listeners) or 'none'}, metrics {','.join(server.metrics_listeners) or 'none'}, "
        f"log directories {','.join(server.log_dirs)}, metadata in {server.metadata_directory}"
    )


async def _first_of(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    """Wait for the order to stop; raises at once what ended the control side."""
    waiting = asyncio.ensure_future(stop.wait())
    await asyncio.wait((waiting, serving), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if serving.done():
        serving.result()
        raise RuntimeError("the control lane ended without being asked")


async def _raise_from(failure: asyncio.Future[None]) -> None:
    await failure
