"""DescribeProducers v0 (KIP-664): which idempotent producers have written to a partition, and how far.

May touch:  the replica manager, producer states.     Must not touch: logs beyond reading.
Invariants: a partition that is named more than once is answered once; any replica may be asked, each reports what it knows.
Read next:  barnabas_log/tail/producer_state.py.

Behaviour: a partition that no replica here holds gets NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION, a topic's name that
cannot be one INVALID_TOPIC_EXCEPTION. Without transactions no producer has a coordinator epoch or an open transaction: both -1.
Differs from Kafka: more than PRODUCERS_MAX producers are not described in one answer, and the partition says so.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.metadata import is_valid_topic_name
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.image.rights import READ, TOPIC
from barnabas_replication.partition import Partition
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

PRODUCERS_MAX: Final = 200_000
"""The most producers in one answer: 8 MB of them."""
PRODUCERS_PER_TURN: Final = 2_000
"""Described before other requests get their turn: a few ms."""


def _error(request: DescribeProducersRequest, error: KafkaError) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_refused(index, error) for index in dict.fromkeys(topic.partition_indexes)]
            )
            for topic in request.topics
        ]
    )


@handles(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), on_error=_error, elements_max=PARTITION_ELEMENTS_MAX)
async def describe_producers(
    services: BrokerServices, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """The producers that each partition remembers (producer.id.expiration.ms)."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    left, turn = PRODUCERS_MAX, 0
    topics = []
    for name, indexes in wanted.items():
        partitions = []
        for index in indexes:
            try:
                context.access.require(READ, TOPIC, name)
                partition = _held(services, name, index)
                count = len(partition.log.producers)
                if count > left:
                    raise KafkaError.of(
                        ErrorCode.INVALID_REQUEST,
                        f"the answer has {PRODUCERS_MAX - left} producers and this partition {count} more: ask for it alone",
                    )
                described = _described(index, partition)
                left -= count
                turn += count
            except KafkaError as error:
                described = _refused(index, error)
            partitions.append(described)
            turn += 1
            if turn >= PRODUCERS_PER_TURN:
                turn = 0
                await asyncio.sleep(0)
        topics.append(TopicResponse(name=name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _held(services: BrokerServices, topic: str, index: int) -> Partition:
    """Raises INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR."""
    if not is_valid_topic_name(topic):
        raise KafkaError.of(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is not a topic name")
    return services.replica_manager.hosted.hosted_partition(TopicPartition(topic, index))


def _described(index: int, partition: Partition) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last.last_sequence,
                last_timestamp=entry.last.timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_start,
            )
            for entry in partition.log.producers
        ],
    )


def _refused(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(partition_index=index, **error_fields(error))
