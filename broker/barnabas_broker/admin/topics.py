"""The admin service's verbs on topics, with what Kafka's answers lack: what is wrong with their partitions.

May touch:  the node's image.         Must not touch: grpc, logs, the data lane, the controller.
Invariants: a read is answered from one image.
Read next:  service.py, which serves these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas_broker.admin.errors import unknown_topic
from barnabas_broker.metrics.census import is_under_replicated, min_insync_replicas, partition_flags
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.topics import TopicImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.rpc import admin_pb2
from barnabas_wire.rpc.error_details import detail_of

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


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to the cluster itself, by its name."""
    return topic.startswith(INTERNAL_TOPIC_PREFIX)


def _check_count(items: Sequence[Any]) -> None:
    if len(items) > TOPICS_MAX:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{len(items)} topics in one request; at most {TOPICS_MAX}")
