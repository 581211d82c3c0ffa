"""What lies in the brokers' log directories: the totals of each directory, or the sizes of replicas.

May touch:  barnabas_wire.client.     Must not touch: printing.
Invariants: of a directory no more is asked than its totals; a broker that knows no totals names every replica, and they are summed
            here.
Read next:  commands/broker.py, console/topics.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


class DirectoryTotals(NamedTuple):
    """One log directory of one broker."""

    path: str
    error_code: int
    """KAFKA_STORAGE_ERROR where it is offline, else 0."""
    total_bytes: int | None
    """The size of its file system; None: not known."""
    usable_bytes: int | None
    replica_count: int
    replica_bytes: int


async def read_totals(client: ClusterClient, broker_id: int) -> list[DirectoryTotals]:
    """Each directory of a broker. Raises KafkaError, OSError, TimeoutError."""
    answer = await client.call(DescribeLogDirsRequest(topics=None, is_summed=True), broker_id=broker_id)
    return [_totals(found) for found in answer.results]


def _totals(found: Any) -> DirectoryTotals:
    count, size_bytes = found.replica_count, found.replica_bytes
    if count < 0:  # an older broker, or the directory is offline
        sizes = [part.partition_size for topic in found.topics for part in topic.partitions]
        count, size_bytes = len(sizes), sum(sizes)
    return DirectoryTotals(
        path=found.log_dir,
        error_code=found.error_code,
        total_bytes=found.total_bytes if found.total_bytes >= 0 else None,
        usable_bytes=found.usable_bytes if found.usable_bytes >= 0 else None,
        replica_count=count,
        replica_bytes=size_bytes,
    )


async def read_replica_sizes(
    client: ClusterClient, broker_id: int, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Bytes of the broker's replicas, of those that it has. Raises KafkaError, OSError."""
    asked: dict[str, list[int]] = {}
    for each in wanted:
        asked.setdefault(each.topic, []).append(each.partition)
    topics = [DescribableLogDirTopic(topic=topic, partitions=partitions) for topic, partitions in asked.items()]
    answer = await client.call(DescribeLogDirsRequest(topics=topics), broker_id=broker_id)
    return {
        TopicPartition(found.name, part.partition_index): part.partition_size
        for directory in answer.results
        for found in directory.topics
        for part in found.partitions
    }
