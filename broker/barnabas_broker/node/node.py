"""One node: the order in which its parts start and stop.

May touch:  every room's start and stop.   Must not touch: how parts are made: control.py and data.py.
Invariants: what keeps the cluster alive runs on the control lane, what carries data on the data lane; a broker asks to be
    unfenced only when its logs are recovered, its metadata is applied and it listens; it serves clients once it is unfenced
    (metadata/readiness.py); it stops in the reverse order: hand over leaderships, close the listener, flush and mark the
    logs clean, resign from the quorum.
Read next:  control.py and data.py; world.py, what a node is given; process.py, which makes the lanes; metadata/publisher.py, the
    crossing between them.

Control lane: metadata log, quorum, metadata loader, controller, broker lifecycle, all of grpc.aio, metrics.
Data lane:    data logs, replication, coordinators, the Kafka listeners.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas_broker.metadata.incarnation_file import (
    WHOLE_LOG,
    go_over,
    own_incarnation,
)
from barnabas_broker.node.context import NodeContext
from barnabas_broker.node.control import build as build_control
from barnabas_broker.node.control_service import ControlService
from barnabas_broker.node.data import DataParts
from barnabas_broker.node.data import build as build_data
from barnabas_broker.node.properties import NodeConfig, ServerConfig
from barnabas_broker.node.storage import NodeStorage, format_storage, is_formatted, load_storage
from barnabas_broker.node.world import World
from barnabas_broker.version import COMMIT, VERSION
from barnabas_log.disk import Disk
from barnabas_quorum.driver.incarnation import Incarnation
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.ids import Uuid

if TYPE_CHECKING:
    from barnabas_broker.node.bootstrap import QuorumIdentity

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Node:
    """One node of the cluster, from start to stop. `run` is all of it, on the data lane."""

    def __init__(self, config: NodeConfig, world: World) -> None:
        self._context = NodeContext.make(config, world)
        self._world = world

    async def run(self, stop: asyncio.Event) -> None:
        """Start, serve until `stop` is set, stop in order. Raises what made the node stop otherwise."""
        context = self._context
        logger.info("%s", describe_node(context.config.server))
        async with AsyncExitStack() as opened:
            context.audit.start()
            opened.callback(context.audit.close)
            disk = self._world.open_disk(files_max=self._world.descriptors.files_max)
            opened.callback(disk.close)
            identity = await self._identify(disk, stop)
            if identity is None:
                logger.info("node %d stops before a controller answered", context.config.server.node_id)
                return
            storage, voters, incarnation = identity
            control = await self._world.control.call(build_control(context, storage, voters, incarnation))
            opened.push_async_callback(self._on_control, control.close)
            broker = None
            if context.config.server.is_broker:
                broker = await build_data(context, disk, storage, control)
            service = ControlService(context, control, broker, world=self._world)
            opened.push_async_callback(self._on_control, service.close)
            if broker is None:
                await self._run_controller(service, stop)
            else:
                await self._run_broker(service, broker, stop)

    async def _on_control(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something on the control lane, and wait for it."""
        return await self._world.control.call(work())

    async def _identify(self, disk: Disk, stop: asyncio.Event) -> tuple[NodeStorage, VoterSet, Incarnation] | None:
        """The identity of this node; None when it is to stop before it knows. A broker asks a controller, and formats
        itself on first boot; a voter never does."""
        server = self._context.config.server
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
                new_uuid=lambda: Uuid(self._world.random.randbytes(16)),
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
        config = self._context.config
        addresses = config.server.bootstrap_servers()
        security = config.grpc_security.controller
        dialer = security.dialer("" if security.own is None else security.own.cluster_of(config.server.node_id))
        world = self._world
        discovery = world.discover_quorum(addresses, known=known, dialer=dialer)
        asking = asyncio.ensure_future(world.control.call(discovery))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if asking.done():
            return asking.result()
        asking.cancel()
        await asyncio.wait((asking,))
        return None

    async def _run_controller(self, service: ControlService, stop: asyncio.Event) -> None:
        """A node without a broker: the data lane only shows that it turns."""
        async with asyncio.TaskGroup() as tasks:
            probe = tasks.create_task(self._context.data_probe.run())
            serving = tasks.create_task(self._on_control(service.run))
            await _first_of(stop, serving)
            await self._on_control(service.stop)
            await serving
            probe.cancel()

    async def _run_broker(self, service: ControlService, broker: DataParts, stop: asyncio.Event) -> None:
        """Start, serve, stop: leaderships are handed over; listeners, coordinators and replication end; then the publisher, the
        replicas and the logs close, in this order; then the control lane resigns. `run` lets go of the rest."""
        broker_id = self._context.config.server.id
        async with asyncio.TaskGroup() as tasks:
            probe = tasks.create_task(self._context.data_probe.run())
            keeping = tasks.create_task(broker.logs.run())
            replicating = tasks.create_task(broker.replicas.run())
            reporting = [tasks.create_task(part.run()) for part in (broker.placements, broker.faults, broker.watch)]
            coordinating = [
                tasks.create_task(part.run())
                for part in (
                    broker.groups,
                    broker.transactions,
                    broker.transactional,
                    broker.share_state,
                    broker.persister,
                    broker.shares,
                )
            ]
            listening = tasks.create_task(broker.server.run(wait_open=broker.readiness.wait_open))
            serving = tasks.create_task(self._on_control(service.run))
            await self._on_control(broker.announce_ready)
            await _first_of(stop, serving)
            logger.info("broker %d leaves the cluster", broker_id)
            await self._on_control(broker.lifecycle.leave)
            for task in reporting:
                task.cancel()
            for task in (listening, *coordinating, replicating):
                task.cancel()
            await asyncio.wait((listening, *coordinating, replicating))
            broker.telemetry.close()
            if broker.traces is not None:  # it may wait for a collector that is away; nothing waits for it but the end
                tasks.create_task(asyncio.to_thread(broker.traces.close), name="traces")
            await broker.brokers.close()
            await broker.share_brokers.close()
            await broker.letter_brokers.close()
            broker.publisher.stop()
            await broker.replicas.close()
            keeping.cancel()
            await asyncio.wait((keeping,))
            await broker.logs.close(broker_epoch=broker.epoch_to_keep)
            await self._on_control(service.stop)
            await serving
            probe.cancel()
        logger.info("broker %d has stopped cleanly", broker_id)


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
