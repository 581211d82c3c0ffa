"""DescribeLogDirs v1-5 and DeleteRecords v0-2: how much a partition holds, and shortening it from the front.

May touch:  the replica manager, its partitions and their logs; asks the system how full a volume is.    Must not touch: files.
Invariants: every partition of a request is answered once; nothing above the high watermark is deleted.
Read next:  barnabas_replication/deletion.py.

Behaviour: -1 in DeleteRecords means everything committed; it answers when every live replica has moved its log start, or with
REQUEST_TIMED_OUT. Difference from Kafka: the log starts are durable by then. DescribeLogDirs names a directory
that has failed with KAFKA_STORAGE_ERROR, as Kafka does (KIP-113), and how big and how full its volume is (KIP-827);
no directory is ever cordoned (v5). A replica that the cleaner has set aside is named with the reason, in a tagged field that Kafka's
clients skip.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.image.rights import DELETE, TOPIC
from barnabas_replication.errors import InternalTopic
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import INTERNAL_TOPICS, Offset, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas_wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_BYTES = -1


@handles(
    ApiKey.DESCRIBE_LOG_DIRS,
    versions=(1, 5),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
def describe_log_dirs(
    services: BrokerServices, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Size and lag of the replicas held here, by log directory; null topics means all."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    online, offline = services.replica_manager.log_directories
    faults = services.replica_manager.cleaner_faults
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {path: defaultdict(list) for path in online}
    for partition in services.replica_manager.partitions():
        topic, number = partition.topic_partition
        topics = found.get(os.path.dirname(partition.log.directory))
        if topics is not None and (wanted is None or (topic, number) in wanted):
            topics[topic].append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=partition.log.size_bytes,
                    offset_lag=max(0, partition.high_watermark - partition.log.log_end_offset),
                    cleaner_fault=faults.get(partition.topic_partition, ""),
                )
            )
    results = [_directory(path, topics) for path, topics in found.items()]
    results += [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[]) for path in offline
    ]
    return DescribeLogDirsResponse(results=sorted(results, key=lambda result: result.log_dir))


def _directory(path: str, topics: dict[str, list[DescribeLogDirsPartition]]) -> DescribeLogDirsResult:
    try:
        volume = shutil.disk_usage(path)
        total_bytes, usable_bytes = volume.total, volume.free
    except OSError:  # it is about to fail; whoever writes to it next will say so
        total_bytes = usable_bytes = UNKNOWN_BYTES
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=sorted(parts, key=lambda part: part.partition_index))
            for name, parts in sorted(topics.items())
        ],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _delete_error(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=[_kept(asked, error) for asked in topic.partitions])
            for topic in request.topics
        ]
    )


@handles(
    ApiKey.DELETE_RECORDS,
    versions=(0, 2),
    on_error=_delete_error,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
async def delete_records(
    services: BrokerServices, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Move the log start of partitions that this broker leads."""
    asked = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    known = services.metadata.image.topics
    refused: dict[str, KafkaError] = {
        name: InternalTopic(f"{name} is the cluster's own: its records stay")
        for name in {name for name, _ in asked}
        if name in INTERNAL_TOPICS and known.get(name) is not None
    }
    for name in {topic.name for topic in request.topics}:
        if not context.access.may(DELETE, TOPIC, name):
            refused[name] = context.access.refusal(DELETE, TOPIC, name)
    results = iter(
        await services.replica_manager.delete_records(
            [
                (TopicPartition(name, partition.partition_index), Offset(partition.offset))
                for name, partition in asked
                if name not in refused
            ],
            timeout_ms=request.timeout_ms,
        )
    )
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _result(partition, refused[topic.name] if topic.name in refused else next(results))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _result(asked: DeleteRecordsPartition, result: Offset | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(result, KafkaError):
        return _kept(asked, result)
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=result)


def _kept(asked: DeleteRecordsPartition, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1, error_code=error.code)
