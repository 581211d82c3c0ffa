"""A real gRPC admin service over a fake node and a fake controller, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from barnabas_broker.admin.edge import AdminEdge
from barnabas_broker.admin.service import AdminService
from barnabas_broker.api.config import ApiConfig
from barnabas_broker.api.services import ControlServices
from barnabas_broker.controller_client.quorum_view import LeaderView
from barnabas_quorum.controller.requests import (
    AlteredConfig,
    CreatableTopic,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsReply,
    GrownTopic,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsReply,
    TopicReference,
)
from barnabas_quorum.controller.requests_cluster import FeatureUpdateResult, UpdateFeatures, UpdateFeaturesReply
from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ElectedPartition,
    ElectLeaders,
    ElectLeadersReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
    OngoingReassignment,
    ReassignedPartition,
    UnregisterBroker,
    UnregisterBrokerReply,
)
from barnabas_quorum.driver.quorum_description import QuorumDescription
from barnabas_quorum.driver.transport import VoterChangeAnswer
from barnabas_quorum.raft.messages import VoterChange
from barnabas_quorum.raft.voters import Voter, VoterSet
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId
from barnabas_wire.rpc.options import SERVER_OPTIONS
from tests.support.images import NOW_MS, FakeNode, uuid


@dataclass
class FakeController:
    """Takes every change; a topic named `taken` exists, one named `absent` does not."""

    asked: list[Any] = field(default_factory=list)
    refuse: KafkaError | None = None
    validate_only: bool = False
    checked: int = 0
    """Requests that were to change nothing."""
    ongoing: list[OngoingReassignment] = field(default_factory=list)

    def _take(self, items: Sequence[Any], validate_only: bool = False) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.asked += items
        self.validate_only = validate_only
        self.checked += validate_only

    async def ask(self, request: Any, **options: Any) -> Any:
        """See ActiveController."""
        match request:
            case UpdateFeatures():
                self._take(request.updates, request.validate_only)
                return UpdateFeaturesReply(
                    results=tuple(FeatureUpdateResult(name=item.name) for item in request.updates)
                )
            case CreateTopics():
                self._take(request.topics, request.validate_only)
                return CreateTopicsReply(topics=tuple(self._created(topic) for topic in request.topics))
            case DeleteTopics():
                self._take(request.topics)
                return DeleteTopicsReply(topics=tuple(self._deleted(topic) for topic in request.topics))
            case CreatePartitions():
                self._take(request.topics, request.validate_only)
                fewer = KafkaError.of(ErrorCode.INVALID_PARTITIONS, "the topic has more partitions already")
                return CreatePartitionsReply(
                    topics=tuple(
                        GrownTopic(name=topic.name, error=fewer if topic.partition_count < 2 else None)
                        for topic in request.topics
                    )
                )
            case IncrementalAlterConfigs():
                self._take(request.resources, request.validate_only)
                return IncrementalAlterConfigsReply(
                    resources=tuple(
                        AlteredConfig(resource_type=r.resource_type, resource_name=r.resource_name)
                        for r in request.resources
                    )
                )
            case ElectLeaders():
                self._take([request.election_type, *(request.partitions or ())])
                needless = KafkaError.of(ErrorCode.ELECTION_NOT_NEEDED, "it leads already")
                return ElectLeadersReply(
                    partitions=tuple(
                        ElectedPartition(
                            topic=topic, partition_id=index, leader=BrokerId(2), error=needless if index == 9 else None
                        )
                        for topic, index in request.partitions or ()
                    )
                )
            case AlterPartitionReassignments():
                self._take(request.partitions, request.validate_only)
                nothing = KafkaError.of(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not being reassigned")
                return AlterPartitionReassignmentsReply(
                    partitions=tuple(
                        ReassignedPartition(
                            topic=item.topic,
                            partition_id=item.partition_id,
                            error=nothing if item.partition_id == 9 else None,
                        )
                        for item in request.partitions
                    )
                )
            case ListPartitionReassignments():
                self._take([])
                return ListPartitionReassignmentsReply(partitions=tuple(self.ongoing))
            case UnregisterBroker():
                self._take([request.broker_id])
                return UnregisterBrokerReply()
        raise AssertionError(f"nobody here asks {request}")

    @staticmethod
    def _created(topic: CreatableTopic) -> CreatedTopic:
        if topic.name == "taken":
            exists = KafkaError.of(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'taken' already exists")
            return CreatedTopic(name=topic.name, error=exists)
        return CreatedTopic(
            name=topic.name,
            topic_id=uuid(77),
            partition_count=topic.partition_count,
            replication_factor=topic.replication_factor,
        )

    @staticmethod
    def _deleted(topic: TopicReference) -> DeletedTopic:
        if topic.name == "absent":
            absent = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return DeletedTopic(name=topic.name, topic_id=ZERO_UUID, error=absent)
        return DeletedTopic(name=topic.name, topic_id=uuid(77))


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

    async def ask_for_voters(self, change: VoterChange, *, principal: str, client_host: str) -> VoterChangeAnswer:
        """See QuorumMember."""
        self._node.voter_changes.append(change)
        return VoterChangeAnswer(self._node.voter_error, "because of a rule", None)


class _WithoutCallKafka(grpc.aio.ServerInterceptor):
    """As a node of the version before that call."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        is_unknown = handler_call_details.method.endswith("/CallKafka")
        return None if is_unknown else await continuation(handler_call_details)


class AdminServer:
    """Serves until closed. `node` and `controller` may be changed between calls."""

    def __init__(self, node: FakeNode | None = None, *, is_former: bool = False) -> None:
        self.is_former = is_former
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
        services = ControlServices(
            node_id=self.node.node_id,
            cluster_id=self.node.cluster_id,
            config=ApiConfig(num_partitions=1, default_replication_factor=3),
            metadata=self.node,
            controller=self.controller,
            clock_ms=lambda: NOW_MS,
            broker_keys=self.node.broker_keys,
        )
        self.service = AdminService(self.node, services, view, edge=self.edge)
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[_WithoutCallKafka()] if self.is_former else [])
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
