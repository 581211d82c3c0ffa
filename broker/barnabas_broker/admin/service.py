"""The gRPC admin service that every node serves on admin.listeners.

May touch:  the node's image, the controller client, grpc.aio on the control lane.    Must not touch: logs, the data lane.
Invariants: a read is answered from one image; a change goes through the active controller and is answered once
            committed; every failure carries code, message and hint; generated types stop here.
Read next:  topics.py, configs.py, partitions.py, features.py, voters.py, the verbs; controller_client/client.py, which carries the changes;
            metrics/census.py, which counts the health.

Not obvious
- Only the quorum's leader knows how far the other replicas are: controller_client/quorum_view.py asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from barnabas_broker.admin import configs, features, partitions, topics, voters
from barnabas_broker.admin.edge import AdminEdge
from barnabas_broker.admin.node_view import NodeView
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
    take_census,
)
from barnabas_broker.version import VERSION
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.image.acls import AccessControlEntry, why_in_vain
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.ids import NO_BROKER, Uuid
from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc

FORWARD_TIMEOUT_MS_MAX = 30_000
FORWARD_MARGIN_MS = 200
ACLS_NAMED_MAX = 20
ACL_WORDS_MAX = 300
"""Of the ACLs that health names, and characters of each."""


class AdminService(admin_pb2_grpc.AdminServicer):
    """Answers for one node. `clock_ms` is wall time."""

    def __init__(
        self,
        node: NodeView,
        controller: ActiveController,
        quorum: LeaderView,
        *,
        edge: AdminEdge,
        clock_ms: Callable[[], int],
    ) -> None:
        self._node = node
        self._quorum = quorum
        self._controller = controller
        self._clock_ms = clock_ms
        self._edge = edge
        self._counted: tuple[MetadataImage, Census] | None = None
        self._judged: tuple[Mapping[Uuid, AccessControlEntry], list[str]] | None = None

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on a server that is not started yet."""
        admin_pb2_grpc.add_AdminServicer_to_server(self, server)

    # The methods below have gRPC's names. Each is one line: what it does stands in the function it names.

    async def DescribeCluster(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("DescribeCluster", context, self._describe_cluster(context))

    async def DescribeHealth(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("DescribeHealth", context, self.describe_health(within_ms=remaining_ms(context)))

    async def DescribeQuorum(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("DescribeQuorum", context, self._describe_quorum(context))

    async def ListBrokers(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("ListBrokers", context, self._list_brokers(context))

    async def ListTopics(self, request: Any, context: Any) -> Any:
        work = topics.list_topics(self._node.image, request)
        return await self._edge.answer("ListTopics", context, work)

    async def DescribeTopics(self, request: Any, context: Any) -> Any:
        work = topics.describe_topics(self._node.image, request, static_min_isr=self._node.static_min_isr)
        return await self._edge.answer("DescribeTopics", context, work)

    async def CreateTopics(self, request: Any, context: Any) -> Any:
        work = topics.create_topics(self._controller, request, self._node, timeout_ms=remaining_ms(context))
        return await self._edge.answer("CreateTopics", context, work)

    async def DeleteTopics(self, request: Any, context: Any) -> Any:
        work = topics.delete_topics(self._controller, request, timeout_ms=remaining_ms(context))
        return await self._edge.answer("DeleteTopics", context, work)

    async def AddPartitions(self, request: Any, context: Any) -> Any:
        work = topics.add_partitions(self._controller, request, timeout_ms=remaining_ms(context))
        return await self._edge.answer("AddPartitions", context, work)

    async def DescribeConfigs(self, request: Any, context: Any) -> Any:
        work = configs.describe_configs(self._node, request)
        return await self._edge.answer("DescribeConfigs", context, work)

    async def AlterConfigs(self, request: Any, context: Any) -> Any:
        work = configs.alter_configs(self._controller, request, timeout_ms=remaining_ms(context))
        return await self._edge.answer("AlterConfigs", context, work)

    async def ElectLeaders(self, request: Any, context: Any) -> Any:
        work = partitions.elect_leaders(self._controller, request, timeout_ms=remaining_ms(context))
        return await self._edge.answer("ElectLeaders", context, work)

    async def AlterReassignments(self, request: Any, context: Any) -> Any:
        work = partitions.alter_reassignments(self._controller, request, timeout_ms=remaining_ms(context))
        return await self._edge.answer("AlterReassignments", context, work)

    async def ListReassignments(self, request: Any, context: Any) -> Any:
        work = partitions.list_reassignments(
            self._controller, request, self._node.image, timeout_ms=remaining_ms(context)
        )
        return await self._edge.answer("ListReassignments", context, work)

    async def DescribeFeatures(self, request: Any, context: Any) -> Any:
        work = features.describe_features(self._node.image, self._node.voters)
        return await self._edge.answer("DescribeFeatures", context, work)

    async def UpdateFeatures(self, request: Any, context: Any) -> Any:
        work = features.update_features(
            self._controller,
            self._quorum,
            request,
            self._node.image,
            self._node.voters,
            timeout_ms=remaining_ms(context),
        )
        return await self._edge.answer("UpdateFeatures", context, work)

    async def UnregisterController(self, request: Any, context: Any) -> Any:
        work = features.unregister_controller(self._controller, request, timeout_ms=remaining_ms(context))
        return await self._edge.answer("UnregisterController", context, work)

    async def ChangeVoters(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("ChangeVoters", context, voters.change_voters(self._quorum, request))

    async def AlterMaintenance(self, request: Any, context: Any) -> Any:
        work = partitions.alter_maintenance(self._controller, request, timeout_ms=remaining_ms(context))
        return await self._edge.answer("AlterMaintenance", context, work)

    async def UnregisterBroker(self, request: Any, context: Any) -> Any:
        work = partitions.unregister_broker(self._controller, request, timeout_ms=remaining_ms(context))
        return await self._edge.answer("UnregisterBroker", context, work)

    # -- reads -----------------------------------------------------------------------------------------------------

    async def _describe_cluster(self, context: Any) -> admin_pb2.DescribeClusterResponse:
        image = self._node.image
        quorum = await self._quorum.describe(within_ms=remaining_ms(context))
        census = self._census(image)
        return admin_pb2.DescribeClusterResponse(
            cluster_id=self._node.cluster_id,
            answered_by=self._node.node_id,
            answered_by_roles=self._node.roles,
            controller_id=quorum.leader_id,
            controller_epoch=quorum.epoch,
            metadata_offset=image.offset,
            brokers=self._brokers(image),
            controllers=features.controllers_of(image, self._node.voters),
            topic_count=census.topics,
            partition_count=census.partitions,
            software_version=VERSION,
        )

    async def describe_health(self, *, within_ms: int) -> admin_pb2.DescribeHealthResponse:
        """How the cluster is, as the active controller, where it answers in time, and our image say."""
        image = self._node.image
        quorum = await self._quorum.describe(within_ms=within_ms)
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
        )

    async def _describe_quorum(self, context: Any) -> admin_pb2.DescribeQuorumResponse:
        quorum = await self._quorum.describe(within_ms=remaining_ms(context))
        observers = present_observers(quorum, self._node.image, now_ms=self._clock_ms())
        quorum = replace(quorum, observers=observers)
        return quorum_to_message(quorum, self._node.voters, cluster_id=self._node.cluster_id, now_ms=self._clock_ms())

    async def _list_brokers(self, context: Any) -> admin_pb2.ListBrokersResponse:
        quorum = await self._quorum.describe(within_ms=remaining_ms(context))
        return admin_pb2.ListBrokersResponse(brokers=self._brokers(self._node.image), controller_id=quorum.leader_id)

    def _census(self, image: MetadataImage) -> Census:
        """Counted once for each image: consoles ask every few seconds, and partitions are many."""
        if self._counted is None or self._counted[0] is not image:
            self._counted = (image, take_census(image, static_min_isr=self._node.static_min_isr))
        return self._counted[1]

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
            )
            for _, broker in sorted(image.cluster.brokers.items())
        ]


def remaining_ms(context: Any) -> int:
    """How long the caller will still wait, less a margin to answer in; FORWARD_TIMEOUT_MS_MAX when it set no deadline."""
    left_s = context.time_remaining()
    if left_s is None:
        return FORWARD_TIMEOUT_MS_MAX
    return max(1, min(FORWARD_TIMEOUT_MS_MAX, int(left_s * 1000) - FORWARD_MARGIN_MS))
