"""A real gRPC admin service over a fake node and a fake controller, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc.aio

from barnabas_broker.admin_edge import AdminEdge
from barnabas_broker.admin_rpc import AdminService
from barnabas_broker.quorum_view import LeaderView
from barnabas_quorum.controller.requests import (
    AlteredConfig,
    ConfigAlteration,
    ControllerRequest,
    CreatableTopic,
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.controller.requests_cluster import FeatureUpdateResult, UpdateFeatures, UpdateFeaturesReply
from barnabas_quorum.controller.requests_partitions import (
    ElectedPartition,
    ElectionType,
    OngoingReassignment,
    PartitionReassignment,
    ReassignedPartition,
)
from barnabas_quorum.driver.grpc_transport import VoterChangeAnswer
from barnabas_quorum.driver.quorum_description import QuorumDescription
from barnabas_quorum.raft.messages import VoterChange
from barnabas_quorum.raft.voters import Voter, VoterSet
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId
from barnabas_wire.rpc.options import SERVER_OPTIONS
from tests.admin.images import NOW_MS, FakeNode, uuid

T = TypeVar("T")


@dataclass
class FakeController:
    """Takes every change; a topic named `taken` exists, one named `absent` does not."""

    asked: list[Any] = field(default_factory=list)
    refuse: KafkaError | None = None
    validate_only: bool = False
    ongoing: list[OngoingReassignment] = field(default_factory=list)

    def _take(self, items: Sequence[Any], validate_only: bool = False) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.asked += items
        self.validate_only = validate_only

    async def ask(self, request: ControllerRequest, reply_type: type[T], *, timeout_ms: int) -> T:
        """Takes feature updates; every one is fine."""
        assert isinstance(request, UpdateFeatures)
        self._take(request.updates, request.validate_only)
        reply = UpdateFeaturesReply(results=tuple(FeatureUpdateResult(name=item.name) for item in request.updates))
        assert isinstance(reply, reply_type)
        return reply

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[CreatedTopic]:
        self._take(topics, validate_only)
        exists = KafkaError.of(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'taken' already exists")
        return [
            CreatedTopic(name=topic.name, error=exists)
            if topic.name == "taken"
            else CreatedTopic(
                name=topic.name,
                topic_id=uuid(77),
                partition_count=topic.partition_count,
                replication_factor=topic.replication_factor,
            )
            for topic in topics
        ]

    async def delete_topics(self, topics: Sequence[TopicReference], *, timeout_ms: int) -> list[DeletedTopic]:
        self._take(topics)
        absent = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [
            DeletedTopic(name=topic.name, topic_id=ZERO_UUID, error=absent)
            if topic.name == "absent"
            else DeletedTopic(name=topic.name, topic_id=uuid(77))
            for topic in topics
        ]

    async def create_partitions(
        self, topics: Sequence[TopicGrowth], *, validate_only: bool, timeout_ms: int
    ) -> list[GrownTopic]:
        self._take(topics, validate_only)
        fewer = KafkaError.of(ErrorCode.INVALID_PARTITIONS, "the topic has more partitions already")
        return [GrownTopic(name=topic.name, error=fewer if topic.partition_count < 2 else None) for topic in topics]

    async def incremental_alter_configs(
        self, resources: Sequence[ConfigAlteration], *, validate_only: bool, timeout_ms: int
    ) -> list[AlteredConfig]:
        self._take(resources, validate_only)
        return [AlteredConfig(resource_type=r.resource_type, resource_name=r.resource_name) for r in resources]

    async def elect_leaders(
        self, election_type: ElectionType, partitions: tuple[tuple[str, int], ...] | None = None, *, timeout_ms: int
    ) -> list[ElectedPartition]:
        self._take([election_type, *(partitions or ())])
        needless = KafkaError.of(ErrorCode.ELECTION_NOT_NEEDED, "it leads already")
        return [
            ElectedPartition(
                topic=topic, partition_id=index, leader=BrokerId(2), error=needless if index == 9 else None
            )
            for topic, index in partitions or ()
        ]

    async def alter_partition_reassignments(
        self, partitions: Sequence[PartitionReassignment], *, validate_only: bool = False, timeout_ms: int
    ) -> list[ReassignedPartition]:
        self._take(partitions, validate_only)
        nothing = KafkaError.of(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not being reassigned")
        return [
            ReassignedPartition(
                topic=item.topic, partition_id=item.partition_id, error=nothing if item.partition_id == 9 else None
            )
            for item in partitions
        ]

    async def list_partition_reassignments(
        self, partitions: tuple[tuple[str, int], ...] | None = None, *, timeout_ms: int
    ) -> list[OngoingReassignment]:
        self._take([])
        return list(self.ongoing)

    async def unregister_broker(self, broker_id: BrokerId, *, timeout_ms: int) -> None:
        self._take([broker_id])


class FakeMember:
    """The quorum member of a node of tests."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def describe(self) -> QuorumDescription:
        """See QuorumMember."""
        return self._node.quorum

    @property
    def voters(self) -> VoterSet:
        """See QuorumMember."""
        return self._node.voters

    @property
    def leader_endpoint(self) -> Voter | None:
        """See QuorumMember."""
        return self._node.voters.by_id(self._node.quorum.leader_id)

    async def ask_for_voters(self, change: VoterChange) -> VoterChangeAnswer:
        """See QuorumMember."""
        self._node.voter_changes.append(change)
        return VoterChangeAnswer(self._node.voter_error, "because of a rule", None)


class AdminServer:
    """Serves until closed. `node` and `controller` may be changed between calls."""

    def __init__(self, node: FakeNode | None = None) -> None:
        self.node = node or FakeNode()
        self.controller = FakeController()
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: self.loop.run_until_complete(self._serve()), daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        view = LeaderView(
            node_id=self.node.node_id,
            cluster_id=self.node.cluster_id,
            quorum=FakeMember(self.node),
            clock_ms=lambda: NOW_MS,
            recovered_beside=lambda: self.node.recovered_beside,
        )
        self.edge = AdminEdge(self.node.node_id)
        self.service = AdminService(self.node, self.controller, view, edge=self.edge, clock_ms=lambda: NOW_MS)
        server = grpc.aio.server(options=SERVER_OPTIONS)
        self.service.add_to(server)
        view.add_to(server)
        self.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self._started.set()
        await self._stopped.wait()
        await view.close()
        await server.stop(None)

    def close(self) -> None:
        """Stop serving; a second call does nothing."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self.loop.close()
