"""The gRPC admin service that every node serves on admin.listeners.

May touch:  the node's image, the controller client, grpc.aio on the control lane.    Must not touch: logs, the data lane.
Invariants: a read is answered from one image; a change goes through the active controller and is answered once
            committed; every failure carries code, message and hint; generated types stop here.
Read next:  controller_client/client.py, which carries the changes; metrics/census.py, which counts the health.

Not obvious
- Only the quorum's leader knows how far the other replicas are: controller_client/quorum_view.py asks it.
- Topic names are checked here only for what an image can say; the rules of names and configs are the controller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar

import grpc
import grpc.aio

from barnabas_broker.admin import features, partitions, voters
from barnabas_broker.admin.edge import AdminEdge
from barnabas_broker.admin.errors import detail_of
from barnabas_broker.controller_client.quorum_health import bears_no_loss, present_observers, voters_down
from barnabas_broker.controller_client.quorum_view import LeaderView, quorum_to_message
from barnabas_broker.metrics.census import (
    CORRUPT,
    LEADERLESS,
    NO_ROOM,
    NOT_PREFERRED,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    Census,
    is_under_replicated,
    min_insync_replicas,
    partition_flags,
    take_census,
)
from barnabas_broker.version import VERSION
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    CreatableTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.topics import TopicImage
from barnabas_quorum.raft.voters import VoterSet
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, ZERO_UUID, BrokerId
from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc

INTERNAL_TOPIC_PREFIX = "__"
FORWARD_TIMEOUT_MS_MAX = 30_000
FORWARD_MARGIN_MS = 200
TOPICS_MAX = 10_000
"""Most topics named in one request."""

R = TypeVar("R")


class ConfigKeyView(NamedTuple):
    """One key that a topic or a broker may have: its value in the node's properties, or else its default."""

    name: str
    value: str
    is_static: bool
    """True when the node's properties file sets it."""
    doc: str


class NodeView(Protocol):
    """What the service needs of its node. Called on the control lane only."""

    @property
    def node_id(self) -> BrokerId:
        """node.id."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters."""
        ...

    @property
    def roles(self) -> Sequence[str]:
        """process.roles."""
        ...

    @property
    def voters(self) -> VoterSet:
        """The voters and the endpoints of their gRPC listeners."""
        ...

    @property
    def image(self) -> MetadataImage:
        """The control lane's newest image."""
        ...

    def topic_keys(self) -> Sequence[ConfigKeyView]:
        """Every topic config key, by name."""
        ...

    def broker_keys(self) -> Sequence[ConfigKeyView]:
        """Every key of server.properties, by name."""
        ...

    @property
    def default_partitions(self) -> int:
        """num.partitions."""
        ...

    @property
    def default_replication_factor(self) -> int:
        """default.replication.factor."""
        ...

    @property
    def static_min_isr(self) -> int:
        """min.insync.replicas of the node's properties."""
        ...


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

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on a server that is not started yet."""
        admin_pb2_grpc.add_AdminServicer_to_server(self, server)

    # The methods below have gRPC's names. Each is one line: what it does stands in the function it names.

    async def DescribeCluster(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("DescribeCluster", context, self._describe_cluster(context))

    async def DescribeHealth(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("DescribeHealth", context, self._describe_health(context))

    async def DescribeQuorum(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("DescribeQuorum", context, self._describe_quorum(context))

    async def ListBrokers(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("ListBrokers", context, self._list_brokers(context))

    async def ListTopics(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("ListTopics", context, self._list_topics(request))

    async def DescribeTopics(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("DescribeTopics", context, self._describe_topics(request))

    async def CreateTopics(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("CreateTopics", context, self._create_topics(request, context))

    async def DeleteTopics(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("DeleteTopics", context, self._delete_topics(request, context))

    async def AddPartitions(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("AddPartitions", context, self._add_partitions(request, context))

    async def DescribeConfigs(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("DescribeConfigs", context, self._describe_configs(request))

    async def AlterConfigs(self, request: Any, context: Any) -> Any:
        return await self._edge.answer("AlterConfigs", context, self._alter_configs(request, context))

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

    async def _describe_health(self, context: Any) -> admin_pb2.DescribeHealthResponse:
        image = self._node.image
        quorum = await self._quorum.describe(within_ms=remaining_ms(context))
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
        }
        reasons = [reason for reason, is_so in found.items() if is_so]
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

    async def _list_topics(self, request: admin_pb2.ListTopicsRequest) -> admin_pb2.ListTopicsResponse:
        image = self._node.image
        return admin_pb2.ListTopicsResponse(
            topics=[
                self._summary(topic)
                for topic in image.topics.sorted_topics()
                if request.include_internal or not is_internal(topic.name)
            ]
        )

    def _summary(self, topic: TopicImage) -> admin_pb2.TopicSummary:
        registered = topic.partitions.values()
        first = topic.partitions.get(0)
        return admin_pb2.TopicSummary(
            name=topic.name,
            id=str(topic.id),
            partitions=len(topic.partitions),
            replication_factor=len(first.replicas) if first else 0,
            internal=is_internal(topic.name),
            under_replicated=sum(is_under_replicated(partition) for partition in registered),
            leaderless=sum(not partition.has_leader for partition in registered),
        )

    async def _describe_topics(self, request: admin_pb2.DescribeTopicsRequest) -> admin_pb2.DescribeTopicsResponse:
        _check_count(request.names)
        image = self._node.image
        topics = []
        for name in request.names:
            topic = image.topics.get(name)
            if topic is None:
                topics.append(admin_pb2.Topic(name=name, error=detail_of(_unknown_topic(name))))
            else:
                topics.append(self._describe_topic(image, topic))
        return admin_pb2.DescribeTopicsResponse(topics=topics)

    def _describe_topic(self, image: MetadataImage, topic: TopicImage) -> admin_pb2.Topic:
        min_isr = min_insync_replicas(image, topic.name, static_default=self._node.static_min_isr)
        return admin_pb2.Topic(
            name=topic.name,
            id=str(topic.id),
            internal=is_internal(topic.name),
            partitions=[
                admin_pb2.Partition(
                    partition=index,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    replicas=partition.replicas,
                    isr=partition.isr,
                    elr=partition.elr,
                    offline_replicas=[
                        replica
                        for replica in partition.replicas
                        if (broker := image.cluster.broker(replica)) is None or broker.is_fenced
                    ],
                    flags=partition_flags(partition, min_isr=min_isr),
                )
                for index, partition in sorted(topic.partitions.items())
            ],
            overrides=dict(image.configs.topic(topic.name)),
        )

    async def _describe_configs(self, request: admin_pb2.DescribeConfigsRequest) -> admin_pb2.DescribeConfigsResponse:
        image = self._node.image
        cluster = image.configs.cluster_default
        if _resource_type(request.type) is ConfigResourceType.TOPIC:
            if image.topics.get(request.name) is None:
                raise _unknown_topic(request.name)
            layers = [("topic", image.configs.topic(request.name)), ("cluster", cluster)]
            keys = self._node.topic_keys()
        elif request.name == "":
            layers, keys = [("cluster", cluster)], self._node.broker_keys()
        else:
            broker_id = _broker_id(request.name)
            if image.cluster.broker(broker_id) is None:
                raise KafkaError.of(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
            layers = [("broker", image.configs.broker(broker_id)), ("cluster", cluster)]
            # Another broker's properties file is known to that broker alone.
            keys = self._node.broker_keys() if broker_id == self._node.node_id else ()
        entries = merge_configs(keys, layers, own_layer=layers[0][0], only_overrides=request.only_overrides)
        return admin_pb2.DescribeConfigsResponse(entries=entries)

    # -- changes ---------------------------------------------------------------------------------------------------

    async def _create_topics(
        self, request: admin_pb2.CreateTopicsRequest, context: Any
    ) -> admin_pb2.CreateTopicsResponse:
        _check_count(request.topics)
        topics = tuple(
            CreatableTopic(
                name=topic.name,
                partition_count=self._node.default_partitions if topic.partitions == -1 else topic.partitions,
                replication_factor=(
                    self._node.default_replication_factor
                    if topic.replication_factor == -1
                    else topic.replication_factor
                ),
                configs=dict(topic.configs),
            )
            for topic in request.topics
        )
        reply = await self._controller.ask(
            CreateTopics(topics=topics, validate_only=request.validate_only), timeout_ms=remaining_ms(context)
        )
        return admin_pb2.CreateTopicsResponse(
            topics=[
                admin_pb2.TopicOutcome(
                    name=topic.name,
                    id=str(topic.topic_id),
                    partitions=topic.partition_count,
                    replication_factor=topic.replication_factor,
                )
                if topic.error is None
                else admin_pb2.TopicOutcome(name=topic.name, error=detail_of(topic.error))
                for topic in reply.topics
            ]
        )

    async def _delete_topics(
        self, request: admin_pb2.DeleteTopicsRequest, context: Any
    ) -> admin_pb2.DeleteTopicsResponse:
        _check_count(request.names)
        topics = tuple(TopicReference(name=name) for name in request.names)
        reply = await self._controller.ask(DeleteTopics(topics=topics), timeout_ms=remaining_ms(context))
        return admin_pb2.DeleteTopicsResponse(
            topics=[
                admin_pb2.TopicOutcome(
                    name=topic.name or "",
                    id="" if topic.topic_id == ZERO_UUID else str(topic.topic_id),
                    error=detail_of(topic.error),
                )
                for topic in reply.topics
            ]
        )

    async def _add_partitions(
        self, request: admin_pb2.AddPartitionsRequest, context: Any
    ) -> admin_pb2.AddPartitionsResponse:
        growth = TopicGrowth(name=request.name, partition_count=request.total)
        reply = await self._controller.ask(
            CreatePartitions(topics=(growth,), validate_only=request.validate_only), timeout_ms=remaining_ms(context)
        )
        (outcome,) = reply.topics
        if outcome.error is not None:
            raise outcome.error
        return admin_pb2.AddPartitionsResponse(
            topic=admin_pb2.TopicOutcome(name=outcome.name, partitions=request.total)
        )

    async def _alter_configs(
        self, request: admin_pb2.AlterConfigsRequest, context: Any
    ) -> admin_pb2.AlterConfigsResponse:
        changes = tuple(
            ConfigChange(key=change.key, operation=ConfigOperation.SET, value=change.value)
            if change.HasField("value")
            else ConfigChange(key=change.key, operation=ConfigOperation.DELETE)
            for change in request.changes
        )
        if not changes:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "no config change is named")
        alteration = ConfigAlteration(
            resource_type=_resource_type(request.type), resource_name=request.name, changes=changes
        )
        reply = await self._controller.ask(
            IncrementalAlterConfigs(resources=(alteration,), validate_only=request.validate_only),
            timeout_ms=remaining_ms(context),
        )
        (outcome,) = reply.resources
        if outcome.error is not None:
            raise outcome.error
        return admin_pb2.AlterConfigsResponse()


def remaining_ms(context: Any) -> int:
    """How long the caller will still wait, less a margin to answer in; FORWARD_TIMEOUT_MS_MAX when it set no deadline."""
    left_s = context.time_remaining()
    if left_s is None:
        return FORWARD_TIMEOUT_MS_MAX
    return max(1, min(FORWARD_TIMEOUT_MS_MAX, int(left_s * 1000) - FORWARD_MARGIN_MS))


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to the cluster itself, by its name."""
    return topic.startswith(INTERNAL_TOPIC_PREFIX)


def merge_configs(
    keys: Sequence[ConfigKeyView],
    layers: Sequence[tuple[str, Mapping[str, str]]],
    *,
    own_layer: str,
    only_overrides: bool,
) -> list[admin_pb2.ConfigEntry]:
    """Each key once, with its value from the first layer (source name, overrides) that has it, else from the node's
    properties ("static") or its default ("default"); overrides of keys that are not listed come too."""
    known = {key.name: key for key in keys}
    names = known.keys() | {name for _, overrides in layers for name in overrides}
    entries = []
    for name in sorted(names):
        key = known.get(name)
        found = [(source, overrides[name]) for source, overrides in layers if name in overrides]
        if key is not None:
            found.append(("static" if key.is_static else "default", key.value))
        source, value = found[0]
        if not only_overrides or source == own_layer:
            entries.append(admin_pb2.ConfigEntry(key=name, value=value, source=source, doc=key.doc if key else ""))
    return entries


def _resource_type(kind: int) -> ConfigResourceType:
    if kind == admin_pb2.RESOURCE_TYPE_TOPIC:
        return ConfigResourceType.TOPIC
    if kind == admin_pb2.RESOURCE_TYPE_BROKER:
        return ConfigResourceType.BROKER
    raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configs")


def _broker_id(text: str) -> BrokerId:
    try:
        return BrokerId(int(text))
    except ValueError:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{text!r} is not a broker id") from None


def _check_count(items: Sequence[Any]) -> None:
    if len(items) > TOPICS_MAX:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{len(items)} topics in one request; at most {TOPICS_MAX}")


def _unknown_topic(name: str) -> KafkaError:
    return KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
