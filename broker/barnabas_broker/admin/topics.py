"""The admin service's verbs on topics: list, describe, create, delete, grow.

May touch:  the node's image, the controller client.    Must not touch: grpc, logs, the data lane.
Invariants: a read is answered from one image; names are checked here only for what an image can say, the rules of names and
            configs are the controller's.
Read next:  service.py, which serves these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas_broker.admin.errors import detail_of, unknown_topic
from barnabas_broker.admin.node_view import NodeView
from barnabas_broker.metrics.census import is_under_replicated, min_insync_replicas, partition_flags
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests import (
    CreatableTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.topics import TopicImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID
from barnabas_wire.rpc import admin_pb2

INTERNAL_TOPIC_PREFIX = "__"
TOPICS_MAX = 10_000
"""Most topics named in one request."""


async def list_topics(image: MetadataImage, request: admin_pb2.ListTopicsRequest) -> admin_pb2.ListTopicsResponse:
    """By name, each with what its partitions lack."""
    return admin_pb2.ListTopicsResponse(
        topics=[
            _summary(topic)
            for topic in image.topics.sorted_topics()
            if request.include_internal or not is_internal(topic.name)
        ]
    )


def _summary(topic: TopicImage) -> admin_pb2.TopicSummary:
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


async def describe_topics(
    image: MetadataImage, request: admin_pb2.DescribeTopicsRequest, *, static_min_isr: int
) -> admin_pb2.DescribeTopicsResponse:
    """Those that are named; of one that is not there, why."""
    _check_count(request.names)
    topics = []
    for name in request.names:
        topic = image.topics.get(name)
        if topic is None:
            topics.append(admin_pb2.Topic(name=name, error=detail_of(unknown_topic(name))))
        else:
            topics.append(_describe_topic(image, topic, static_min_isr=static_min_isr))
    return admin_pb2.DescribeTopicsResponse(topics=topics)


def _describe_topic(image: MetadataImage, topic: TopicImage, *, static_min_isr: int) -> admin_pb2.Topic:
    min_isr = min_insync_replicas(image, topic.name, static_default=static_min_isr)
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


async def create_topics(
    controller: ActiveController, request: admin_pb2.CreateTopicsRequest, node: NodeView, *, timeout_ms: int
) -> admin_pb2.CreateTopicsResponse:
    """What is -1 in the request takes this node's defaults. See controller/topics.py."""
    _check_count(request.topics)
    topics = tuple(
        CreatableTopic(
            name=topic.name,
            partition_count=node.default_partitions if topic.partitions == -1 else topic.partitions,
            replication_factor=(
                node.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
            ),
            configs=dict(topic.configs),
        )
        for topic in request.topics
    )
    reply = await controller.ask(
        CreateTopics(topics=topics, validate_only=request.validate_only), timeout_ms=timeout_ms
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


async def delete_topics(
    controller: ActiveController, request: admin_pb2.DeleteTopicsRequest, *, timeout_ms: int
) -> admin_pb2.DeleteTopicsResponse:
    """See controller/topics.py."""
    _check_count(request.names)
    topics = tuple(TopicReference(name=name) for name in request.names)
    reply = await controller.ask(DeleteTopics(topics=topics), timeout_ms=timeout_ms)
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


async def add_partitions(
    controller: ActiveController, request: admin_pb2.AddPartitionsRequest, *, timeout_ms: int
) -> admin_pb2.AddPartitionsResponse:
    """See controller/topics.py."""
    growth = TopicGrowth(name=request.name, partition_count=request.total)
    reply = await controller.ask(
        CreatePartitions(topics=(growth,), validate_only=request.validate_only), timeout_ms=timeout_ms
    )
    (outcome,) = reply.topics
    if outcome.error is not None:
        raise outcome.error
    return admin_pb2.AddPartitionsResponse(topic=admin_pb2.TopicOutcome(name=outcome.name, partitions=request.total))


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to the cluster itself, by its name."""
    return topic.startswith(INTERNAL_TOPIC_PREFIX)


def _check_count(items: Sequence[Any]) -> None:
    if len(items) > TOPICS_MAX:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{len(items)} topics in one request; at most {TOPICS_MAX}")
