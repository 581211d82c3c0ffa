"""The gRPC admin service that every node serves on admin.listeners.

May touch:  the node's image, the controller client, grpc.aio on the control lane.    Must not touch: logs, the data lane.
Invariants: a read is answered from one image; a change goes through the active controller and is answered once
            committed; every failure carries code, message and hint; generated types stop here.
Read next:  kafka_calls.py (what Kafka has); controller_calls.py (what the controller answers itself); topics.py, features.py,
            voters.py, the rest; controller_client/client.py, which carries the changes; metrics/census.py, which counts the health.

Not obvious
- Only the quorum's leader knows how far the other replicas are: controller_client/quorum_view.py asks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, cast

import grpc
import grpc.aio

from barnabas_broker.admin import features, topics, voters
from barnabas_broker.admin.controller_calls import add_controller_calls
from barnabas_broker.admin.edge import AdminEdge, CallersController
from barnabas_broker.admin.kafka_calls import KafkaCalls, name_of
from barnabas_broker.admin.node_view import NodeView
from barnabas_broker.api.services import ControlServices
from barnabas_broker.controller_client.quorum_health import bears_no_loss, present_observers, voters_down
from barnabas_broker.controller_client.quorum_view import LeaderView, quorum_to_message
from barnabas_broker.metrics.census import (
    CORRUPT,
    LEADERLESS,
    LOST,
    NO_ROOM,
    NOT_PREFERRED,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    Census,
    min_insync_replicas,
    take_census,
)
from barnabas_broker.version import VERSION
from barnabas_quorum.controller.requests_partitions import AlterMaintenance
from barnabas_quorum.image.acls import AccessControlEntry, why_in_vain
from barnabas_quorum.image.hosts import count_sharing_host, lost_hosts
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Uuid
from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc
from barnabas_wire.rpc.admin_verbs import CARRIED_VERBS, Asking, is_dry

FORWARD_TIMEOUT_MS_MAX = 30_000
FORWARD_MARGIN_MS = 200
ACLS_NAMED_MAX = 20
ACL_WORDS_MAX = 300
"""How many ACLs health names, and characters of each."""


class AdminService:
    """Answers for one node. Its gRPC methods are made from the tables below the class."""

    def __init__(self, node: NodeView, services: ControlServices, quorum: LeaderView, *, edge: AdminEdge) -> None:
        self.node = node
        self.quorum = quorum
        self.controller = CallersController(services.controller)
        self._clock_ms = services.clock_ms
        self.edge = edge
        self._kafka = KafkaCalls(services, edge)
        self._counted: tuple[MetadataImage, Census] | None = None
        self._shared: tuple[MetadataImage, int] | None = None
        self._judged: tuple[Mapping[Uuid, AccessControlEntry], list[str]] | None = None

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on a server that is not started yet."""
        # most of its methods are set below: the generated code asks for each by its name
        admin_pb2_grpc.add_AdminServicer_to_server(cast(admin_pb2_grpc.AdminServicer, self), server)
        add_controller_calls(server, self.controller, edge=self.edge, remaining_ms=remaining_ms)

    async def CallKafka(self, request: Any, context: Any) -> Any:
        return await self.edge.answer(
            "CallKafka", context, self._kafka.carry(request), counted_as=name_of(request.api_key)
        )

    # -- reads -----------------------------------------------------------------------------------------------------

    async def describe_cluster(self, within_ms: int) -> admin_pb2.DescribeClusterResponse:
        """Nodes and sizes, as the active controller, where it answers in time, and our image say."""
        image = self.node.image
        quorum = await self.quorum.describe(within_ms=within_ms)
        census = self._census(image)
        return admin_pb2.DescribeClusterResponse(
            cluster_id=self.node.cluster_id,
            answered_by=self.node.node_id,
            answered_by_roles=self.node.roles,
            controller_id=quorum.leader_id,
            controller_epoch=quorum.epoch,
            metadata_offset=image.offset,
            brokers=self._brokers(image),
            controllers=features.controllers_of(image, self.node.voters),
            topic_count=census.topics,
            partition_count=census.partitions,
            software_version=VERSION,
        )

    async def describe_health(self, within_ms: int) -> admin_pb2.DescribeHealthResponse:
        """How the cluster is, as the active controller, where it answers in time, and our image say."""
        image = self.node.image
        quorum = await self.quorum.describe(within_ms=within_ms)
        census = self._census(image)
        fenced = sorted(broker.id for broker in image.cluster.brokers.values() if broker.is_fenced)
        down = voters_down(quorum, now_ms=self._clock_ms())
        leaderless, under_min_isr = census.flags[LEADERLESS], census.flags[UNDER_MIN_ISR]
        under_replicated = census.flags[UNDER_REPLICATED]
        found = {
            "recovered_twice": bool(quorum.recovered_beside),
            "no_controller": quorum.leader_id == NO_BROKER,
            "voter_down": bool(down),
            "quorum_no_tolerance": bears_no_loss(quorum, image),
            "no_broker": len(fenced) == len(image.cluster.brokers),
            "broker_down": bool(fenced),
            "leaderless": leaderless > 0,
            "under_min_isr": under_min_isr > 0,
            "under_replicated": under_replicated > 0,
            "corrupt": census.flags[CORRUPT] > 0,
            "no_room": census.flags[NO_ROOM] > 0,
            "records_lost": census.flags[LOST] > 0,
        }
        reasons = [reason for reason, is_so in found.items() if is_so]
        in_vain = self._acls_in_vain(image)
        return admin_pb2.DescribeHealthResponse(
            is_healthy=not reasons,
            reasons=reasons,
            controller_id=quorum.leader_id,
            controller_epoch=quorum.epoch,
            voters=[voter.key.id for voter in quorum.voters],
            voters_down=down,
            brokers=sorted(image.cluster.brokers),
            brokers_fenced=fenced,
            partitions=census.partitions,
            leaderless=leaderless,
            under_min_isr=under_min_isr,
            under_replicated=under_replicated,
            not_preferred_leader=census.flags[NOT_PREFERRED],
            metadata_timestamp_ms=image.timestamp_ms,
            brokers_in_maintenance=sorted(image.cluster.in_maintenance),
            acls_in_vain=[each[:ACL_WORDS_MAX] for each in in_vain[:ACLS_NAMED_MAX]],
            acls_in_vain_count=len(in_vain),
            sharing_host=self._sharing_host(image),
            hosts_lost=self._hosts_lost(image),
        )

    async def describe_quorum(self, within_ms: int) -> admin_pb2.DescribeQuorumResponse:
        """The voters and the observers, and how far each is."""
        quorum = await self.quorum.describe(within_ms=within_ms)
        observers = present_observers(quorum, self.node.image, now_ms=self._clock_ms())
        quorum = replace(quorum, observers=observers)
        return quorum_to_message(quorum, self.node.voters, cluster_id=self.node.cluster_id, now_ms=self._clock_ms())

    # -- the former version's --------------------------------------------------------------------------------------

    async def former_call(self, verb: Callable[[Any], Asking[Any]], request: Any, within_ms: int) -> Any:
        """A verb that Kafka has, for a command line of the former version: as this version's asks it by CallKafka."""
        asking = verb(request)
        message = next(asking)
        while True:
            if hasattr(message, "timeout_ms"):
                message.timeout_ms = within_ms
            response = await self._kafka.ask(message, is_dry=is_dry(request, message))
            try:
                message = asking.send(response)
            except StopIteration as done:
                return done.value

    async def describe_broker_configs(self, request: admin_pb2.DescribeConfigsRequest, within_ms: int) -> Any:
        """The same for DescribeConfigs, whose former form any node answered for any broker: with what is in the metadata, if it is
        not that broker."""
        verb, own = CARRIED_VERBS["DescribeConfigs"], str(self.node.node_id)
        if request.type == admin_pb2.RESOURCE_TYPE_BROKER and request.name not in ("", own):
            image = self.node.image
            broker_id = BrokerId(int(request.name)) if request.name.isdecimal() else NO_BROKER
            if image.cluster.broker(broker_id) is None:
                raise KafkaError.of(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.name} is not registered")
            overrides = sorted(image.configs.broker(broker_id).items())
            entries = [admin_pb2.ConfigEntry(key=key, value=value, source="broker") for key, value in overrides]
            return admin_pb2.DescribeConfigsResponse(entries=entries)
        if request.type == admin_pb2.RESOURCE_TYPE_BROKER and not request.name and not request.only_overrides:
            request.name = own
        return await self.former_call(verb, request, within_ms)

    async def alter_maintenance(
        self, request: admin_pb2.AlterMaintenanceRequest, within_ms: int
    ) -> admin_pb2.AlterMaintenanceResponse:
        """As controller_calls.py forwards it now."""
        wanted = AlterMaintenance(broker_id=BrokerId(request.broker_id), is_in_maintenance=request.in_maintenance)
        reply = await self.controller.ask(wanted, timeout_ms=within_ms)
        return admin_pb2.AlterMaintenanceResponse(handed_over=reply.handed_over, kept=reply.kept)

    async def list_brokers(self, within_ms: int) -> admin_pb2.ListBrokersResponse:
        """The brokers of describe_cluster."""
        found = await self.describe_cluster(within_ms)
        return admin_pb2.ListBrokersResponse(brokers=found.brokers, controller_id=found.controller_id)

    # -- counts ----------------------------------------------------------------------------------------------------

    def _census(self, image: MetadataImage) -> Census:
        """Counted once for each image: consoles ask every few seconds, and partitions are many."""
        if self._counted is None or self._counted[0] is not image:
            self._counted = (image, take_census(image, static_min_isr=self.node.static_min_isr))
        return self._counted[1]

    def _sharing_host(self, image: MetadataImage) -> int:
        """Counted once for each image, as the census."""
        if self._shared is None or self._shared[0] is not image:
            self._shared = (image, count_sharing_host(image))
        return self._shared[1]

    def _hosts_lost(self, image: MetadataImage) -> list[admin_pb2.LostHost]:
        lost = lost_hosts(image.cluster)
        at_min_isr: Counter[str] = Counter()
        for topic in image.topics.topics.values() if lost else ():
            min_isr = min_insync_replicas(image, topic.name, static_default=self.node.static_min_isr)
            for partition in topic.partitions.values():
                if len(partition.isr) <= min_isr:
                    replicas = {*partition.replicas}
                    at_min_isr.update(host for host, brokers in lost.items() if not replicas.isdisjoint(brokers))
        return [
            admin_pb2.LostHost(host=host, brokers=brokers, at_min_isr=at_min_isr[host])
            for host, brokers in lost.items()
        ]

    def _acls_in_vain(self, image: MetadataImage) -> list[str]:
        """ACLs of an older cluster that match no client, found once for each change of them. New ones are refused."""
        entries = image.acls.entries
        if self._judged is None or self._judged[0] is not entries:
            told = sorted(
                f"{entry.permission.name} {entry.operation.name} on {entry.resource_type.name} {entry.resource_name!r} {reason}"
                for entry in entries.values()
                if (reason := why_in_vain(entry)) is not None
            )
            self._judged = (entries, told)
        return self._judged[1]

    def _brokers(self, image: MetadataImage) -> list[admin_pb2.Broker]:
        census = self._census(image)
        return [
            admin_pb2.Broker(
                id=broker.id,
                epoch=broker.epoch,
                fenced=broker.is_fenced,
                in_controlled_shutdown=broker.is_in_controlled_shutdown,
                rack=broker.rack or "",
                listeners=[
                    admin_pb2.Listener(name=point.listener, host=point.host, port=point.port)
                    for point in broker.endpoints
                ],
                leader_count=census.led[broker.id],
                replica_count=census.held[broker.id],
                in_maintenance=broker.is_in_maintenance,
                host=broker.host or "",
            )
            for _, broker in sorted(image.cluster.brokers.items())
        ]


Work = Coroutine[Any, Any, Any]
Verb = Callable[[AdminService, Any, int], Work]
"""(service, request, how long the caller waits in ms) -> answer."""


def _former(verb: Callable[[Any], Asking[Any]]) -> Verb:
    return lambda service, request, within_ms: service.former_call(verb, request, within_ms)


VERBS: Mapping[str, Verb] = {
    "DescribeCluster": lambda service, request, within_ms: service.describe_cluster(within_ms),
    "DescribeHealth": lambda service, request, within_ms: service.describe_health(within_ms),
    "DescribeQuorum": lambda service, request, within_ms: service.describe_quorum(within_ms),
    "ListTopics": lambda service, request, within_ms: topics.list_topics(service.node.image, request),
    "DescribeTopics": lambda service, request, within_ms: topics.describe_topics(
        service.node.image, request, static_min_isr=service.node.static_min_isr
    ),
    "DescribeFeatures": lambda service, request, within_ms: features.describe_features(
        service.node.image, service.node.voters
    ),
    "UpdateFeatures": lambda service, request, within_ms: features.update_features(
        service.controller,
        service.quorum,
        request,
        service.node.image,
        service.node.voters,
        timeout_ms=within_ms,
    ),
    "UnregisterController": lambda service, request, within_ms: features.unregister_controller(
        service.controller, request, timeout_ms=within_ms
    ),
    "ChangeVoters": lambda service, request, within_ms: voters.change_voters(service.quorum, request),
    "AlterMaintenance": AdminService.alter_maintenance,
    "ListBrokers": lambda service, request, within_ms: service.list_brokers(within_ms),
    **{name: _former(verb) for name, verb in CARRIED_VERBS.items()},
    "DescribeConfigs": AdminService.describe_broker_configs,
}
"""Every typed call, by gRPC's name."""


def _method(name: str, verb: Verb) -> Callable[[AdminService, Any, Any], Work]:
    async def method(self: AdminService, request: Any, context: Any) -> Any:
        return await self.edge.answer(name, context, verb(self, request, remaining_ms(context)))

    return method


for _name, _verb in VERBS.items():
    setattr(AdminService, _name, _method(_name, _verb))


def remaining_ms(context: Any) -> int:
    """How long the caller will still wait, less a margin to answer in; FORWARD_TIMEOUT_MS_MAX when it set no deadline."""
    left_s = context.time_remaining()
    if left_s is None:
        return FORWARD_TIMEOUT_MS_MAX
    return max(1, min(FORWARD_TIMEOUT_MS_MAX, int(left_s * 1000) - FORWARD_MARGIN_MS))
