"""ListOffsets v1-11: the offset that stands for a time, in partitions that this broker leads.

May touch:  the replica manager.      Must not touch: logs.
Invariants: every partition of the request is answered once; a time gives the first record not older than it, exactly,
            not the batch that holds it.
Read next:  barnabas_replication/leader/offset_lookup.py.

Behaviour: -1 latest (high watermark), -2 earliest, -3 largest timestamp, -4 earliest local, -5 latest tiered, -6
earliest waiting for upload. Nothing is tiered: -4 is the earliest offset, -5 and -6 answer -1. For a reader of
committed records the latest is the last stable offset, and no later record is found by time. A partition that is named twice is
refused. Below v5 a new leader that does not know its high watermark yet answers LEADER_NOT_AVAILABLE, which old clients
retry, in place of OFFSET_NOT_AVAILABLE (KIP-207).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.image.rights import DESCRIBE, TOPIC
from barnabas_replication.errors import OffsetNotAvailable
from barnabas_replication.leader.offset_lookup import LATEST_TIERED_TIMESTAMP, MAX_TIMESTAMP, list_offset
from barnabas_replication.requests import ListedOffset
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, Epoch, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

EARLIEST_PENDING_UPLOAD = -6
SPECIAL_SINCE = {-3: 7, -4: 8, -5: 9, -6: 11}
"""First version in which a special timestamp means something."""
OFFSET_NOT_AVAILABLE_SINCE = 5
READ_COMMITTED = 1
SEARCHED_PER_TURN = 256


def _error(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return _answer(request, lambda topic, partition: _refused(partition, error))


@handles(
    ApiKey.LIST_OFFSETS,
    versions=(1, 11),
    on_error=_error,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX // 2,
    ends_with_client=True,
)
def list_offsets(
    services: BrokerServices, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Look the times up; errors are beside the partition they belong to. Only what is searched in the log must wait."""
    if any(_is_time(partition.timestamp) for topic in request.topics for partition in topic.partitions):
        return _search(services, context, request)
    return _respond(services, context, request, {})


def _is_time(timestamp_ms: int) -> bool:
    return timestamp_ms >= 0 or timestamp_ms == MAX_TIMESTAMP


async def _search(
    services: BrokerServices, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """One search after the other, in the disk's threads: the loop serves others meanwhile."""
    searched: dict[TopicPartition, ListedOffset | KafkaError] = {}
    for topic in request.topics:
        is_allowed = context.access.may(DESCRIBE, TOPIC, topic.name)
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if not is_allowed or topic_partition in searched or not _is_time(partition.timestamp):
                continue
            try:
                searched[topic_partition] = await services.replica_manager.list_offset_by_time(
                    topic_partition,
                    partition.timestamp,
                    current_leader_epoch=Epoch(partition.current_leader_epoch),
                    is_read_committed=request.isolation_level == READ_COMMITTED,
                )
            except KafkaError as error:
                searched[topic_partition] = error
            if len(searched) % SEARCHED_PER_TURN == 0:
                await asyncio.sleep(0)  # one that is refused at once does not wait for a thread
    return _respond(services, context, request, searched)


def _respond(
    services: BrokerServices,
    context: RequestContext,
    request: ListOffsetsRequest,
    searched: Mapping[TopicPartition, ListedOffset | KafkaError],
) -> ListOffsetsResponse:
    asked = ((topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions)
    times = Counter(asked)

    def one(topic: str, partition: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        if times[(topic, partition.partition_index)] > 1:
            return _refused(partition, KafkaError.of(ErrorCode.INVALID_REQUEST, "each partition may be named once"))
        try:
            context.access.require(DESCRIBE, TOPIC, topic)
            found = _list_offset(
                services,
                context.api_version,
                topic,
                partition,
                searched,
                is_read_committed=request.isolation_level == READ_COMMITTED,
            )
        except OffsetNotAvailable as error:
            return _refused(partition, error if context.api_version >= OFFSET_NOT_AVAILABLE_SINCE else _retry(error))
        except KafkaError as error:
            return _refused(partition, error)
        return ListOffsetsPartitionResponse(
            partition_index=partition.partition_index,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    return _answer(request, one)


def _list_offset(
    services: BrokerServices,
    version: int,
    topic: str,
    partition: ListOffsetsPartition,
    searched: Mapping[TopicPartition, ListedOffset | KafkaError],
    *,
    is_read_committed: bool,
) -> ListedOffset:
    time_ms = partition.timestamp
    if time_ms < -2 and version < SPECIAL_SINCE.get(time_ms, 1 << 15):
        raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {time_ms} means nothing in version {version}")
    leader_epoch = Epoch(partition.current_leader_epoch)
    topic_partition = TopicPartition(topic, partition.partition_index)
    by_time = searched.get(topic_partition)
    if isinstance(by_time, KafkaError):
        raise by_time
    if by_time is not None:
        return by_time
    led = services.replica_manager.hosted.leader_partition(topic_partition, leader_epoch)
    return list_offset(
        led,
        LATEST_TIERED_TIMESTAMP if time_ms == EARLIEST_PENDING_UPLOAD else time_ms,
        is_read_committed=is_read_committed,
    )


def _retry(error: OffsetNotAvailable) -> KafkaError:
    return KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, error.message)


def _refused(partition: ListOffsetsPartition, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=partition.partition_index,
        error_code=error.code,
        timestamp=-1,
        offset=NO_OFFSET,
        leader_epoch=NO_EPOCH,
    )


def _answer(request: ListOffsetsRequest, one) -> ListOffsetsResponse:  # type: ignore[no-untyped-def]
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[one(topic.name, partition) for partition in topic.partitions]
            )
            for topic in request.topics
        ]
    )
