"""DescribeLogDirs v1-5 and DeleteRecords v0-2: how much a partition holds, and shortening it from the front.

May touch:  the replica manager, its partitions and their logs; asks the system how full a volume is.    Must not touch: files.
Invariants: every partition of a request is answered once; nothing above the high watermark is deleted.
Read next:  barnabas_replication/leader/deletion.py.

Behaviour: -1 in DeleteRecords means everything committed; it answers when every live replica has moved its log start, or with
REQUEST_TIMED_OUT. Differences from Kafka: the log starts are durable by then; while a replica that a clean election may take (ELR) is
away it answers NOT_ENOUGH_REPLICAS, and nothing is deleted. DescribeLogDirs names a directory
that has failed with KAFKA_STORAGE_ERROR, as Kafka does (KIP-113), and how big and how full its volume is (KIP-827);
no directory is ever cordoned (v5). Tagged fields of our own, which Kafka's clients neither send nor read: why records are not deleted;
why the cleaner has set a replica aside; and from v2 on a directory's totals in the place of its replicas, for whoever asks for no
more: naming each of thousands takes most of the time.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.image.rights import DELETE, TOPIC
from barnabas_replication.errors import DeletionTimedOut, InternalTopic, NotEnoughReplicas
from barnabas_replication.manager import ReplicaManager
from barnabas_replication.partition import Partition
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
    DescribableLogDirTopic,
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
    """Size and lag of the replicas held here, by log directory, or the sum of their sizes; null topics means all."""
    manager = services.replica_manager
    online, offline = manager.log_directories
    hosted: dict[str, list[Partition]] = {path: [] for path in online}
    for partition in manager.partitions() if request.topics is None else _asked(manager, request.topics):
        replicas = hosted.get(partition.log.directory.rpartition(os.sep)[0])
        if replicas is not None:
            replicas.append(partition)
    faults = manager.cleaner_faults
    results = [
        _summed(path, replicas) if request.is_summed else _listed(path, replicas, faults)
        for path, replicas in hosted.items()
    ]
    results += [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[]) for path in offline
    ]
    return DescribeLogDirsResponse(results=sorted(results, key=lambda result: result.log_dir))


def _asked(manager: ReplicaManager, topics: Iterable[DescribableLogDirTopic]) -> Iterator[Partition]:
    wanted = {TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions}
    return (partition for each in wanted if (partition := manager.partition(each)) is not None)


def _summed(path: str, replicas: Sequence[Partition]) -> DescribeLogDirsResult:
    total_bytes, usable_bytes = _volume(path)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        replica_count=len(replicas),
        replica_bytes=sum(partition.log.size_bytes for partition in replicas),
    )


def _listed(path: str, replicas: Iterable[Partition], faults: Mapping[TopicPartition, str]) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for partition in replicas:
        topic, number = partition.topic_partition
        topics[topic].append(
            DescribeLogDirsPartition(
                partition_index=number,
                partition_size=partition.log.size_bytes,
                offset_lag=max(0, partition.high_watermark - partition.log.log_end_offset),
                cleaner_fault=faults.get(partition.topic_partition, ""),
            )
        )
    total_bytes, usable_bytes = _volume(path)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=sorted(parts, key=lambda part: part.partition_index))
            for name, parts in sorted(topics.items())
        ],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _volume(path: str) -> tuple[int, int]:
    """How big its file system is, and how much of that is free."""
    try:
        volume = shutil.disk_usage(path)
    except OSError:  # it is about to fail; whoever writes to it next will say so
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return volume.total, volume.free


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
    admitted = [
        (TopicPartition(name, partition.partition_index), Offset(partition.offset))
        for name, partition in asked
        if name not in refused
    ]
    outcomes = await services.replica_manager.delete_records(admitted, timeout_ms=request.timeout_ms)
    services.audit.deleted(
        context.principal,
        context.client_host,
        request="DeleteRecords",
        changes=(
            {**key._asdict(), "records_before": offset, "log_start": result}
            if not isinstance(result, KafkaError)
            else {**key._asdict(), "records_before": offset, "unknown": result.message}
            for (key, offset), result in zip(admitted, outcomes, strict=True)
            if not isinstance(result, KafkaError) or isinstance(result, DeletionTimedOut)
        ),
    )
    results = iter(outcomes)
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
    # Codes say all that there is to know of the others, of which a request may have tens of thousands.
    message = error.message if isinstance(error, NotEnoughReplicas | DeletionTimedOut) else ""
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=-1, error_code=error.code, error_message=message
    )
