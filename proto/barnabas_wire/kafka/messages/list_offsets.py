"""ListOffsets (key 2): offsets by timestamp, earliest, latest."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ListOffsetsPartition:
    """A partition, and the point of it whose offset is wanted."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)  # as the client knows it, to fence stale ones
    # ms, or a special point. -1: latest, -2: earliest, -3: largest timestamp (v7, KIP-734). With tiered storage also
    # -4: start of what is on local disk (v8, KIP-405), -5: end of what is remote (v9, KIP-1005),
    # -6: start of what is still to be uploaded (v11, KIP-1023).
    timestamp: int = int64()


@dataclass(slots=True)
class ListOffsetsTopic:
    """A topic with the partitions asked about."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@dataclass(slots=True)
class ListOffsetsRequest(Message):
    """Ask for one offset per partition. v10 lets the broker wait for remote storage (KIP-1075)."""

    API_KEY = ApiKey.LIST_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 11, 6

    replica_id: int = int32()  # -1: a consumer, not a broker
    isolation_level: int = int8("2+")  # 0: READ_UNCOMMITTED, 1: READ_COMMITTED, where latest means the LSO
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")  # for lookups in remote storage only


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    """The offset found in one partition."""

    partition_index: int = int32()
    error_code: int = int16()  # v5 brings OFFSET_NOT_AVAILABLE
    # timestamp and epoch go with the offset; -1: none
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    """The offsets found in one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@dataclass(slots=True)
class ListOffsetsResponse(Message):
    """Offsets by topic and partition. From v3 on a broker over quota answers first and throttles after."""

    API_KEY = ApiKey.LIST_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 11, 6

    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
