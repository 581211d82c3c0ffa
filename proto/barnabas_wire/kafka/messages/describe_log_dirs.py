"""DescribeLogDirs (key 35): log directories, their sizes and the replicas in them (KIP-113)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DescribableLogDirTopic:
    """A topic, and which of its partitions are asked about."""

    topic: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class DescribeLogDirsRequest(Message):
    """Ask a broker what lies in its log directories. From v3 on only the answer changes."""

    API_KEY = ApiKey.DESCRIBE_LOG_DIRS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 5, 2

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")  # null: all
    # Ours alone, far above Kafka's tags: the totals of each directory are enough. A broker that does not know it, Kafka's too,
    # answers with every replica
    is_summed: bool = boolean("2+", tag=64)


@dataclass(slots=True)
class DescribeLogDirsPartition:
    """A replica in a log directory."""

    partition_index: int = int32()
    partition_size: int = int64()  # bytes of its segments
    # How far its end is behind: the high watermark's, or for a future log the present log's end
    offset_lag: int = int64()
    is_future_key: bool = boolean()  # a copy still being moved here (AlterReplicaLogDirs), to take over when done
    # Ours alone, far above Kafka's tags, so that other clients pass over it: why the replica is not compacted, kind first
    cleaner_fault: str = string("2+", tag=64)


@dataclass(slots=True)
class DescribeLogDirsTopic:
    """A topic's replicas in a log directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@dataclass(slots=True)
class DescribeLogDirsResult:
    """A log directory and what it holds."""

    error_code: int = int16()
    log_dir: str = string()  # absolute path
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    # Size and free space of the directory's file system, without remote storage; -1: not known
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+")  # no new replicas are placed here
    # Ours alone, answers to is_summed, in the place of `topics`: the replicas asked about, and their bytes; -1: see `topics`
    replica_count: int = int32("2+", default=-1, tag=64)
    replica_bytes: int = int64("2+", default=-1, tag=65)


@dataclass(slots=True)
class DescribeLogDirsResponse(Message):
    """The broker's log directories; before v3 a failure of the whole request has no place to stand."""

    API_KEY = ApiKey.DESCRIBE_LOG_DIRS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 5, 2

    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
