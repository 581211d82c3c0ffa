"""OffsetForLeaderEpoch (key 23): where a leader epoch ended (KIP-101, KIP-320).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string


@dataclass(slots=True)
class OffsetForLeaderPartition:
    """Each partition to get offsets for."""

    partition: int = int32()  # The partition index
    # An epoch used to fence consumers/replicas with old metadata. If the epoch provided by the client is larger than
    # the current epoch known to the broker, then the UNKNOWN_LEADER_EPOCH error code will be returned. If the
    # provided epoch is smaller, then the FENCED_LEADER_EPOCH error code will be returned
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32()  # The epoch to look up an offset for


@dataclass(slots=True)
class OffsetForLeaderTopic:
    """Each topic to get offsets for."""

    topic: str = string()  # The topic name
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)  # Each partition to get offsets for


@dataclass(slots=True)
class OffsetForLeaderEpochRequest(Message):
    """OffsetForLeaderEpoch request.

    Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline. Version 1 is the same as version
    0. Version 2 adds the current leader epoch to support fencing. Version 3 adds ReplicaId (the default is -2 which
    conventionally represents a "debug" consumer which is allowed to see offsets beyond the high watermark).
    Followers will use this replicaId when using an older version of the protocol. Version 4 enables flexible
    versions.
    """

    API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 4, 4

    # The broker ID of the follower, of -1 if this request is from a consumer
    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)  # Each topic to get offsets for


@dataclass(slots=True)
class EpochEndOffset:
    """Each partition in the topic we fetched offsets for."""

    error_code: int = int16()  # The error code 0, or if there was no error
    partition: int = int32()  # The partition index
    leader_epoch: int = int32("1+", default=-1)  # The leader epoch of the partition
    end_offset: int = int64(default=-1)  # The end offset of the epoch


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    """Each topic we fetched offsets for."""

    topic: str = string()  # The topic name
    partitions: list[EpochEndOffset] = array(EpochEndOffset)  # Each partition in the topic we fetched offsets for


@dataclass(slots=True)
class OffsetForLeaderEpochResponse(Message):
    """OffsetForLeaderEpoch response.

    Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline. Version 1 added the leader epoch
    to the response. Version 2 added the throttle time. Version 3 is the same as version 2. Version 4 enables
    flexible versions.
    """

    API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 4, 4

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)  # Each topic we fetched offsets for
