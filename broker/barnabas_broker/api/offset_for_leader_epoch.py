"""OffsetForLeaderEpoch v2-4: where a leader epoch ended, by which clients and followers notice that they must go back.

May touch:  the replica manager.      Must not touch: logs.
Invariants: the answer is the largest epoch not above the asked one, with its end; -1 and -1 when there is none (a wrong
            answer makes clients reset their offsets).
Read next:  barnabas_replication/leader/offset_lookup.py.
"""

from __future__ import annotations

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.image.rights import CLUSTER, CLUSTER_ACTION, DESCRIBE, TOPIC
from barnabas_replication.leader.offset_lookup import end_offset_for_epoch
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Epoch, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def _error(request: OffsetForLeaderEpochRequest, error: KafkaError) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(error_code=error.code, partition=asked.partition) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=(2, 4),
    on_error=_error,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
def offset_for_leader_epoch(
    services: BrokerServices, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Ask each partition that this broker leads."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_one(services, context, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _one(
    services: BrokerServices, context: RequestContext, topic: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        if not context.access.may(CLUSTER_ACTION, CLUSTER, is_noted=False):
            context.access.require(DESCRIBE, TOPIC, topic)
        led = services.replica_manager.hosted.leader_partition(
            TopicPartition(topic, asked.partition), Epoch(asked.current_leader_epoch)
        )
        end = end_offset_for_epoch(led, Epoch(asked.leader_epoch))
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    return EpochEndOffset(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
