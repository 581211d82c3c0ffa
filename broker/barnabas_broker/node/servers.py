"""The listeners of a node beside Kafka's: the quorum's gRPC, the operators' gRPC, metrics over HTTP.

May touch:  gRPC servers, sockets.    Must not touch: how the parts are made; when they run.
Invariants: every method but the constructor runs on the control lane; every gRPC method has its row of rights.
Read next:  control_service.py, which starts and closes them; world.py.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import grpc.aio

from barnabas_broker.admin.edge import AdminEdge, CallersController
from barnabas_broker.admin.explain import ExplainService
from barnabas_broker.admin.inspection import InspectionService
from barnabas_broker.admin.service import AdminService
from barnabas_broker.api.services import ControlServices
from barnabas_broker.controller_client.facts import ControllerFactsServicer
from barnabas_broker.metrics.http import HttpServer
from barnabas_broker.metrics.page import render_metrics
from barnabas_broker.metrics.sources import NodeSources
from barnabas_broker.node.bootstrap import BootstrapServicer, QuorumIdentity
from barnabas_broker.node.grpc_connections import ADDRESS_SHARE, GrpcConnections, connections_max
from barnabas_broker.node.properties import split_address
from barnabas_broker.node.world import Served
from barnabas_broker.security.access import AccessControl
from barnabas_broker.security.callers import AdminCallers
from barnabas_broker.security.grpc_security import GrpcListenerSecurity
from barnabas_broker.version import COMMIT, VERSION
from barnabas_log.disk import RealDisk
from barnabas_quorum.driver.caller_ids import claimed_node_id
from barnabas_quorum.driver.controller_service import ControllerService
from barnabas_quorum.driver.grpc_transport import QuorumServicer
from barnabas_quorum.image.rights import RPC_RIGHTS
from barnabas_wire.kafka.errors import InvariantViolated, KafkaError
from barnabas_wire.rpc import (
    admin_pb2,
    bootstrap_pb2,
    controller_pb2,
    explain_pb2,
    inspection_pb2,
    login_pb2,
    quorum_pb2,
)
from barnabas_wire.rpc.options import address_of
from barnabas_wire.rpc.peers import PeerGuard
from barnabas_wire.rpc.server import new_server

logger = logging.getLogger(__name__)

CERTIFICATES_SCAN_S = 10.0
"""The time between two checks whether a certificate was renewed."""
SERVED = (admin_pb2, bootstrap_pb2, controller_pb2, explain_pb2, inspection_pb2, login_pb2, quorum_pb2)
"""Every module with a gRPC service."""
HEALTH_WITHIN_MS = 1_000
"""How long /healthz waits for the active controller; then it answers with what this node knows."""
SERVER_GRACE_S = 0.2
"""How long a stopping gRPC server waits for calls under way."""


def require_rows() -> None:
    """Raises InvariantViolated for a gRPC method without a row that says what its caller needs."""
    served = {
        f"{service.name}/{method.name}"
        for module in SERVED
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    if served != RPC_RIGHTS.keys():
        raise InvariantViolated(
            f"barnabas_quorum/image/rights.py and the gRPC services differ in {sorted(served ^ RPC_RIGHTS.keys())}"
        )


class NodeServers:
    """Meets Servers."""

    def __init__(self, served: Served) -> None:
        context = served.context
        self._served = served
        self._context = context
        self._parts = served.control
        self._servers: list[grpc.aio.Server] = []
        self._connections_max = connections_max(context.world.descriptors.limit)
        self._connections = GrpcConnections(
            bound=self._connections_max // ADDRESS_SHARE,
            address_max=context.config.network.max_connections_per_ip,
            overrides=context.config.network.address_overrides(),
        )
        self._http: HttpServer | None = None

    def _make_services(self) -> None:
        """Make the services of the admin listeners, which share one edge."""
        context, parts, broker = self._context, self._parts, self._served.broker
        config, world = context.config, context.world
        node_id, cluster_id = config.server.id, parts.storage.cluster_id
        self._edge = AdminEdge(
            node_id,
            AccessControl(
                config.authorization.new_authorizer(),
                acls=lambda: parts.loader.image.acls,
                on_denied=context.audit.denied,
            ),
        )
        asking = CallersController(parts.client)
        services = ControlServices(
            node_id=node_id,
            cluster_id=cluster_id,
            config=replace(config.api, delete_topic_enable=True),  # delete.topic.enable is about the Kafka listeners
            metadata=parts.facts,
            controller=parts.client,
            clock_ms=world.wall_ms,
            broker_keys=parts.facts.described_keys,
            audit=context.audit,
        )
        self._admin = AdminService(parts.facts, services, parts.leader_view, edge=self._edge)
        self._explain = ExplainService(
            node_id=node_id,
            log=parts.metadata_log,
            quorum=parts.quorum,
            image=lambda: parts.loader.image,
            blocked=lambda: parts.loader.blocked,
            controller=asking,
            config=config.controller,
            bootstrap_servers=config.server.bootstrap_servers(),
            dialer=config.grpc_security.controller.dialer(cluster_id),
            edge=self._edge,
            clock_ms=world.wall_ms,
        )
        self._inspection = InspectionService(
            node_id=node_id,
            roles=config.server.process_roles,
            cluster_id=cluster_id,
            loader=parts.loader,
            log=parts.metadata_log,
            quorum=parts.quorum,
            controller=asking,
            edge=self._edge,
        )
        if broker is not None:
            replicas = broker.replicas
            self._inspection.cleaner_faults = lambda: replicas.cleaner_faults

    async def start(self) -> None:
        """See Servers."""
        require_rows()
        self._make_services()
        config_of_node = self._context.config
        config = config_of_node.server
        endpoint = config.controller_endpoint()
        if self._parts.driver is not None and endpoint is not None:
            security = config_of_node.grpc_security.controller
            peers = None if security.credentials is None else PeerGuard(self._parts.storage.cluster_id, claimed_node_id)
            server = new_server([] if peers is None else [peers], connections_max=self._connections_max)
            QuorumServicer(
                cluster_id=self._parts.storage.cluster_id,
                handle=self._parts.quorum.handle,
                identity=self._parts.quorum.identity,
                change_voters=self._parts.quorum.change_voters,
                incarnation=self._parts.incarnation,
            ).add_to(server)
            ControllerService(self._parts.driver, peers=peers).add_to_server(server)
            BootstrapServicer(
                lambda: QuorumIdentity(
                    self._parts.storage.cluster_id, self._parts.quorum.voters, self._parts.incarnation.current
                )
            ).add_to(server)
            self._parts.leader_view.add_to(server)
            ControllerFactsServicer(
                replica=self._parts.quorum,
                sessions=self._parts.driver,
                config=self._context.config.controller,
                incarnation=self._parts.incarnation,
                clock_ms=self._context.world.wall_ms,
            ).add_to(server)
            await self._start(server, endpoint.host, endpoint.port, security)
        callers_of = {
            name: AdminCallers(
                security,
                credentials=lambda: self._parts.loader.image.scram,
                clock_ms=self._context.world.monotonic_ms,
                audit=self._context.audit,
            )
            for name, security in config_of_node.grpc_security.admins.items()
            if security.credentials is not None
        }
        for admin in config.admin_endpoints():
            callers = callers_of.get(admin.listener)
            server = new_server([] if callers is None else [callers], connections_max=self._connections_max)
            if callers is not None:
                callers.add_to(server)
            self._admin.add_to(server)
            self._explain.add_to(server)
            self._inspection.add_to(server)
            await self._start(server, admin.host, admin.port, config_of_node.grpc_security.admins[admin.listener])
        sources = self._sources()
        self._http = HttpServer(
            addresses=[split_address(address, "metrics.listeners") for address in config.metrics_listeners],
            render=lambda: render_metrics(sources),
            find_dead=self._served.find_dead,
            find_unready=self._served.find_unready,
            find_health=self._find_health,
        )
        await self._http.start()

    async def run(self) -> None:
        """See Servers."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._connections.run())
            tasks.create_task(self._renew_certificates())

    async def close(self) -> None:
        """See Servers."""
        await asyncio.gather(*(server.stop(SERVER_GRACE_S) for server in self._servers))
        if self._http is not None:
            await self._http.close()

    async def _start(self, server: grpc.aio.Server, host: str, port: int, security: GrpcListenerSecurity) -> None:
        if security.credentials is None:
            server.add_insecure_port(address_of(host, port))
        else:
            # gRPC either demands a certificate or does not ask for one: where operators log in it does not
            demands = not security.protocol.has_sasl
            server.add_secure_port(
                address_of(host, port), security.credentials.server_credentials(demands_certificate=demands)
            )
        await server.start()
        self._connections.watch(port)
        self._servers.append(server)

    async def _renew_certificates(self) -> None:
        """Take renewed certificates of the gRPC grpc_security: servers for the handshakes to come, clients by new channels."""
        grpc_security = self._context.config.grpc_security
        node_id, cluster_id = self._context.config.server.node_id, self._parts.storage.cluster_id
        watched = [
            (name, credentials, check)
            for name, credentials, check in (
                (
                    self._context.config.server.controller_listener_names[0],
                    grpc_security.controller.own,
                    lambda new: new.check_identity(node_id, cluster_id),
                ),
                *((name, security.credentials, None) for name, security in grpc_security.admins.items()),
            )
            if credentials is not None
        ]
        while watched:
            await asyncio.sleep(CERTIFICATES_SCAN_S)
            for name, credentials, check in watched:
                try:
                    if credentials.reload_if_changed(check):
                        logger.info("listener %s has a new certificate", name)
                except KafkaError as error:
                    logger.warning("listener %s keeps its certificate: %s", name, error.message)

    async def _find_health(self) -> tuple[list[str], int]:
        health = await self._admin.describe_health(within_ms=HEALTH_WITHIN_MS)
        return list(health.reasons), health.controller_id

    def _sources(self) -> NodeSources:
        config = self._context.config
        broker = self._served.broker
        disk = None if broker is None else broker.disk
        return NodeSources(
            node_id=config.server.id,
            cluster_id=self._parts.storage.cluster_id,
            roles=config.server.process_roles,
            rack=config.server.rack,
            version=VERSION,
            commit=COMMIT,
            started_at_s=self._context.started_s,
            clock_ms=self._context.world.wall_ms,
            static_min_isr=config.log.min_insync_replicas,
            image=lambda: self._parts.loader.image,
            loader=self._parts.loader,
            quorum=self._parts.quorum,
            recovered_beside=lambda: self._parts.incarnation.recovered_beside,
            controller=self._parts.driver,
            controller_client=self._parts.client.stats,
            lifecycle=None if broker is None else broker.lifecycle.stats,
            admin=self._edge.stats,
            audit=self._context.audit.stats,
            lanes={"control": self._served.probe.lag, "data": self._context.data_probe.lag},
            tasks={"control": self._served.probe.count_tasks, "data": self._context.data_probe.count_tasks},
            network=None if broker is None else broker.server.stats,
            replicas=None if broker is None else broker.replicas,
            logs=None if broker is None else broker.logs,
            clock=None if broker is None else broker.clock,
            log_descriptors=disk.descriptors if isinstance(disk, RealDisk) else None,
            groups=None if broker is None else broker.groups,
            transactions=None if broker is None else broker.transactions,
            share_state=None if broker is None else broker.share_state,
            persister=None if broker is None else broker.persister,
            shares=None if broker is None else broker.shares,
            dead_letters=None if broker is None else broker.dead_letters,
            due_times=None if broker is None else broker.due_times,
            telemetry=None if broker is None else broker.telemetry,
        )
