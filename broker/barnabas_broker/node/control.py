"""Builds what runs on the control lane: metadata log, quorum, loader, controller.

May touch:  every room, to build it.   Must not touch: the data lane; the order of start and stop.
Invariants: what `build` returns is frozen and does not run yet.
Read next:  control_service.py, which runs it; servers.py, which makes the services of its listeners; data.py.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from barnabas_broker.controller_client.applied import AppliedOffset
from barnabas_broker.controller_client.client import ControllerClient
from barnabas_broker.controller_client.quorum_view import LeaderView
from barnabas_broker.metadata.controller_registration import ControllerRegistrar
from barnabas_broker.metadata.incarnation_file import (
    guard_incarnation,
    open_log,
)
from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_broker.node.context import NodeContext
from barnabas_broker.node.facts import NodeFacts
from barnabas_broker.node.incarnation_watch import IncarnationWatch
from barnabas_broker.node.storage import NodeStorage
from barnabas_broker.node.topic_settings import LEVELS_OF_KEYS, TopicSettings
from barnabas_broker.node.voter_addresses import VoterAddresses, node_address
from barnabas_broker.security.grpc_security import DIAL_PLAINTEXT
from barnabas_broker.telemetry.subscriptions import subscription_value
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.controller.guard import RequestGuard
from barnabas_quorum.controller.partition_rules import MIN_INSYNC_REPLICAS
from barnabas_quorum.controller.requests_cluster import RegisterController
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.incarnation import Incarnation, IncarnationGuard
from barnabas_quorum.driver.metadata_listener import MetadataListener
from barnabas_quorum.driver.node import QuorumNode
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.raft.messages import VoterChange
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)


class Failure:
    """The first error that the node must not survive. Used on the control lane."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: BaseException) -> None:
        """The node must stop rather than serve half of its metadata."""
        if not self._future.done():
            self._future.set_exception(error)

    async def watch(self) -> None:
        """Raise it as soon as there is one."""
        await self._future


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlParts:
    """Everything on the control lane, before it runs."""

    storage: NodeStorage
    metadata_log: MetadataLog
    failure: Failure
    settings: TopicSettings
    loader: MetadataLoader
    applied: AppliedOffset
    """How far this node has applied the metadata."""
    driver: ControllerDriver | None
    """The driver of the controller; None on a node that is none."""
    listener: MetadataListener
    incarnation: IncarnationGuard
    quorum: QuorumNode
    client: ControllerClient
    leader_view: LeaderView
    facts: NodeFacts
    registrar: ControllerRegistrar | None
    watch: IncarnationWatch | None

    async def close(self) -> None:
        """Release everything, on the control lane, after it has run."""
        await self.leader_view.close()
        await self.client.close()
        await self.metadata_log.close()


async def build(context: NodeContext, storage: NodeStorage, voters: VoterSet, incarnation: Incarnation) -> ControlParts:
    """Open the metadata log and make everything that needs it; on the control lane.

    Args:
        voters: those that the node was formatted with or learned of; the metadata log may know newer ones.
        incarnation: of the quorum, as this node's files have it.
    """

    world = context.world

    async def open_it() -> MetadataLog:
        disk = world.open_disk()  # its own, so that its flushes never queue behind the data's
        try:
            return await MetadataLog.open(
                disk=disk,
                metadata_directory=storage.metadata_directory,
                now_ms=world.wall_ms(),
                segment_bytes=context.config.quorum.segment_bytes,
                segment_ms=context.config.quorum.segment_ms,
                replica=storage.replica,
                formatted_voters=voters,
            )
        except BaseException:
            disk.close()
            raise

    metadata_log, was_former = await open_log(storage.metadata_directory, open_it=open_it, open_disk=world.open_disk)
    if was_former and context.config.server.is_controller:
        voters = VoterSet.unknown()  # those that it was formatted with belong to the log that was set aside
    failure = Failure()
    config = context.config
    server = config.server
    settings = TopicSettings(broker_id=server.id, properties=config.static_properties, shape=config.shape_log)
    loader = MetadataLoader()
    applied = AppliedOffset()
    driver: ControllerDriver | None = None
    authorizer = config.authorization.new_authorizer()
    request_guard = None if authorizer is None else RequestGuard(authorizer, on_verdict=context.audit.denied)
    if server.is_controller:
        validators = ConfigValidators(
            topic=settings.validate_topic,
            broker=partial(_validate_broker, settings),
            group=settings.validate_group,
            client_metrics=subscription_value,
            topic_as_whole=settings.validate_topic_as_whole,
            group_as_whole=settings.validate_group_as_whole,
            levels_of_keys=LEVELS_OF_KEYS,
            inherited=settings.inherited,
        )
        driver = ControllerDriver(
            Controller(
                config=config.controller,
                cluster_id=storage.cluster_id,
                random=context.new_random(),
                validators=validators,
                first_records=storage.first_records,
            ),
            node_id=server.id,
            clock_ms=world.wall_ms,
            probe=world.broker_probe(),
            guard=request_guard,
            on_change=context.audit.changed if context.audit.is_on else None,
            voters_clock_ms=lambda: place().voters_clock_ms,
        )
    bootstrap_servers = server.bootstrap_servers()

    def place() -> QuorumNode:
        # Three need each other: the quorum its transport, that the incarnation, and that the place in the quorum.
        return quorum

    guard = guard_incarnation(
        incarnation,
        storage.metadata_directory,
        place=place,
        on_adopted=lambda found: logger.warning(
            "the quorum was recovered as incarnation %s; this node, which does not vote, follows it from now on",
            found,
        ),
        on_superseded=failure.fail,
        on_conflict=logger.error,
        open_disk=world.open_disk,
    )
    security = config.grpc_security.controller
    if security.own is not None:
        security.own.check_identity(server.node_id, storage.cluster_id)
    if security.dials_plaintext:
        logger.warning(
            "%s is set: controllers are called in plain text where they speak no TLS; take it off when every node has %s:SSL",
            DIAL_PLAINTEXT,
            server.controller_listener_names[0],
        )
    dialer = security.dialer(storage.cluster_id)

    def check_voters(change: VoterChange, principal: str, host: str) -> None:
        assert request_guard is not None, "without an authorizer nobody asks"
        request_guard.check_voters(loader.image, change, principal=principal, host=host)

    transport = world.quorum_transport(storage.cluster_id, incarnation=guard, dialer=dialer)
    listener = MetadataListener(loader, leader_observers=())
    quorum = QuorumNode(
        config=config.quorum,
        replica=storage.replica,
        voters=voters,
        log=metadata_log,
        transport=transport,
        clock_ms=world.wall_ms,
        random=context.new_random(),
        listener=listener,
        endpoint=node_address(server, storage.voters, storage.replica),
        on_loading=world.spare_collector,
        bootstrap_servers=bootstrap_servers,
        voters_guard=None if request_guard is None else check_voters,
        on_voters_changed=context.audit.voters_changed if context.audit.is_on else None,
    )
    addresses = VoterAddresses(lambda: quorum.voters, lambda: quorum.leader_endpoint)
    client = ControllerClient(
        world.controller_transport(addresses, applied=applied, dialer=dialer),
        loop=world.control.loop,
        controllers=addresses,
        leader_hint=lambda: quorum.leader_and_epoch.leader_id,
    )
    leader_view = LeaderView(
        node_id=server.id,
        cluster_id=storage.cluster_id,
        quorum=quorum,
        clock_ms=world.wall_ms,
        recovered_beside=lambda: guard.recovered_beside,
        dialer=dialer,
    )
    facts = NodeFacts(
        config,
        cluster_id=storage.cluster_id,
        voters=lambda: quorum.voters,
        image=lambda: loader.image,
    )
    registrar: ControllerRegistrar | None = None
    watch: IncarnationWatch | None = None
    endpoint = server.controller_endpoint()
    if endpoint is not None:
        reached = node_address(server, storage.voters, storage.replica) or (endpoint.host, endpoint.port)
        watch = IncarnationWatch(
            transport,
            node_address=reached,
            voters=lambda: quorum.voters,
            addresses=[*bootstrap_servers, *((voter.host, voter.port) for voter in voters)],
            take_agreeing=guard.take_agreeing,
        )
        registrar = ControllerRegistrar(
            identity=RegisterController(
                controller_id=server.id,
                cluster_id=storage.cluster_id,
                incarnation_id=context.incarnation_id,
                endpoints=(endpoint._replace(host=reached[0], port=reached[1]),),
                features=SUPPORTED_FEATURES,
            ),
            client=client,
            image=lambda: loader.image,
        )
    return ControlParts(
        storage=storage,
        metadata_log=metadata_log,
        failure=failure,
        settings=settings,
        loader=loader,
        applied=applied,
        driver=driver,
        listener=listener,
        incarnation=guard,
        quorum=quorum,
        client=client,
        leader_view=leader_view,
        facts=facts,
        registrar=registrar,
        watch=watch,
    )


def _validate_broker(settings: TopicSettings, broker: str, key: str, value: str) -> str:
    if broker and key == MIN_INSYNC_REPLICAS:
        raise KafkaError.of(
            ErrorCode.INVALID_CONFIG,
            f"{key} cannot differ from broker to broker, or its leaders and the controller would disagree on who is "
            "eligible to lead; set it on the topic or for all brokers",
        )
    return settings.validate_broker(key, value)
