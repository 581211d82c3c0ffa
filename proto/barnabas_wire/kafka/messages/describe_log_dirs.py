"""DescribeLogDirs (key 35): log directories, their sizes and the replicas in them (KIP-113).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, int64, string


@dataclass(slots=True)
class DescribableLogDirTopic:
    """Each topic that we want to describe log directories for, or null for all topics."""

    topic: str = string()  # The topic name
    partitions: list[int] = array(int32)  # The partition indexes


@dataclass(slots=True)
class DescribeLogDirsRequest(Message):
    """DescribeLogDirs request.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. Version 1 is the same as version 0.
    Version 2 is the first flexible version. Version 3 is the same as version 2 (new field in response). Version 4
    is the same as version 2 (new fields in response). Version 5 is the same as version 2 (new fields in response).
    """

    API_KEY = ApiKey.DESCRIBE_LOG_DIRS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 5, 2

    # Each topic that we want to describe log directories for, or null for all topics
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@dataclass(slots=True)
class DescribeLogDirsPartition:
    """The partitions."""

    partition_index: int = int32()  # The partition index
    partition_size: int = int64()  # The size of the log segments in this partition in bytes
    # The lag of the log's LEO w.r.t. partition's HW (if it is the current log for the partition) or current replica's
    # LEO (if it is the future log for the partition)
    offset_lag: int = int64()
    # True if this log is created by AlterReplicaLogDirsRequest and will replace the current log of the replica in the
    # future
    is_future_key: bool = boolean()


@dataclass(slots=True)
class DescribeLogDirsTopic:
    """The topics."""

    name: str = string()  # The topic name
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)  # The partitions


@dataclass(slots=True)
class DescribeLogDirsResult:
    """The log directories."""

    error_code: int = int16()  # The error code, or 0 if there was no error
    log_dir: str = string()  # The absolute log directory path
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)  # The topics
    # The total size in bytes of the volume the log directory is in. This value does not include the size of data
    # stored in remote storage
    total_bytes: int = int64("4+", default=-1)
    # The usable size in bytes of the volume the log directory is in. This value does not include the size of data
    # stored in remote storage
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+")  # True if this log directory is cordoned


@dataclass(slots=True)
class DescribeLogDirsResponse(Message):
    """DescribeLogDirs response.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. Starting in version 1, on quota
    violation, brokers send out responses before throttling. Version 2 is the first flexible version. Version 3 adds
    the top-level ErrorCode field Version 4 adds the TotalBytes and UsableBytes fields Version 5 adds IsCordoned
    field
    """

    API_KEY = ApiKey.DESCRIBE_LOG_DIRS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 5, 2

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")  # The error code, or 0 if there was no error
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)  # The log directories
