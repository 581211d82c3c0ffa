"""OffsetFetch (key 9): read committed offsets of groups."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    """A topic whose offsets are wanted, in the form with one group."""

    name: str = string("0-7")
    partition_indexes: list[int] = array(int32, "0-7")


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    """A topic whose offsets are wanted, in the form with many groups."""

    name: str = string("8-9")
    topic_id: Uuid = uuid("10+")
    partition_indexes: list[int] = array(int32, "8+")


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    """One group asked about, and for which topics."""

    group_id: str = string("8+")
    # Who asks, where the group speaks the consumer protocol of KIP-848; the broker then checks both
    member_id: str | None = string("9+", nullable="9+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")  # null: all


@dataclass(slots=True)
class OffsetFetchRequest(Message):
    """Ask what groups have committed: up to v7 one group, then many. v9 serves KIP-848's groups, v10 takes topic ids.

    v0, which read from ZooKeeper, went with Kafka 4.0.
    """

    API_KEY = ApiKey.OFFSET_FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 10, 6

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2+")  # null: all
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    # True: a partition with an offset still pending in a transaction gets UNSTABLE_OFFSET_COMMIT, to be tried again
    require_stable: bool = boolean("7+")


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    """What is committed for a partition, in the form with one group."""

    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1)
    metadata: str | None = string("0-7", nullable="0+")
    error_code: int = int16("0-7")


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    """A topic's committed offsets, in the form with one group."""

    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    """What is committed for a partition, in the form with many groups."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    """A topic's committed offsets, in the form with many groups."""

    name: str = string("8-9")
    topic_id: Uuid = uuid("10+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    """One group's committed offsets, or why there are none."""

    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@dataclass(slots=True)
class OffsetFetchResponse(Message):
    """What the groups have committed, or why that is not reported. Throttled answers come late up to v3, then at once.

    Newer errors: v7 UNSTABLE_OFFSET_COMMIT, v9 UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH, v10 UNKNOWN_TOPIC_ID.
    """

    API_KEY = ApiKey.OFFSET_FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 10, 6

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")  # of the group or its coordinator
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
