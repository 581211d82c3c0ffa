"""ListOffsets (key 2): offsets by timestamp, earliest, latest.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, int64, string


@dataclass(slots=True)
class ListOffsetsPartition:
    """Each partition in the request."""

    partition_index: int = int32()  # The partition index
    current_leader_epoch: int = int32("4+", default=-1)  # The current leader epoch
    timestamp: int = int64()  # The current timestamp


@dataclass(slots=True)
class ListOffsetsTopic:
    """Each topic in the request."""

    name: str = string()  # The topic name
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)  # Each partition in the request


@dataclass(slots=True)
class ListOffsetsRequest(Message):
    """ListOffsets request.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. Version 1 removes MaxNumOffsets. From
    this version forward, only a single offset can be returned. Version 2 adds the isolation level, which is used
    for transactional reads. Version 3 is the same as version 2. Version 4 adds the current leader epoch, which is
    used for fencing. Version 5 is the same as version 4. Version 6 enables flexible versions. Version 7 enables
    listing offsets by max timestamp (KIP-734). Version 8 enables listing offsets by local log start offset
    (KIP-405). Version 9 enables listing offsets by last tiered offset (KIP-1005). Version 10 enables async remote
    list offsets support (KIP-1075) Version 11 enables listing offsets by earliest pending upload offset (KIP-1023)
    """

    API_KEY = ApiKey.LIST_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 11, 6

    # The broker ID of the requester, or -1 if this request is being made by a normal consumer
    replica_id: int = int32()
    # This setting controls the visibility of transactional records. Using READ_UNCOMMITTED (isolation_level = 0)
    # makes all records visible. With READ_COMMITTED (isolation_level = 1), non-transactional and COMMITTED
    # transactional records are visible. To be more concrete, READ_COMMITTED returns all data from offsets smaller
    # than the current LSO (last stable offset), and enables the inclusion of the list of aborted transactions in the
    # result, which allows consumers to discard ABORTED transactional records
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)  # Each topic in the request
    # The timeout to await a response in milliseconds for requests that require reading from remote storage for topics
    # enabled with tiered storage
    timeout_ms: int = int32("10+")


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    """Each partition in the response."""

    partition_index: int = int32()  # The partition index
    error_code: int = int16()  # The partition error code, or 0 if there was no error
    timestamp: int = int64("1+", default=-1)  # The timestamp associated with the returned offset
    offset: int = int64("1+", default=-1)  # The returned offset
    leader_epoch: int = int32("4+", default=-1)  # The leader epoch associated with the returned offset


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    """Each topic in the response."""

    name: str = string()  # The topic name
    # Each partition in the response
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@dataclass(slots=True)
class ListOffsetsResponse(Message):
    """ListOffsets response.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. Version 1 removes the offsets array in
    favor of returning a single offset. Version 1 also adds the timestamp associated with the returned offset.
    Version 2 adds the throttle time. Starting in version 3, on quota violation, brokers send out responses before
    throttling. Version 4 adds the leader epoch, which is used for fencing. Version 5 adds a new error code,
    OFFSET_NOT_AVAILABLE. Version 6 enables flexible versions. Version 7 is the same as version 6 (KIP-734). Version
    8 enables listing offsets by local log start offset. This is the earliest log start offset in the local log.
    (KIP-405). Version 9 enables listing offsets by last tiered offset (KIP-1005). Version 10 enables async remote
    list offsets support (KIP-1075) Version 11 enables listing offsets by earliest pending upload offset (KIP-1023)
    """

    API_KEY = ApiKey.LIST_OFFSETS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 11, 6

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)  # Each topic in the response
