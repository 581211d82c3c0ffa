"""Fetch (key 1): read record batches from partitions; consumers and followers alike.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.primitives import Buffer
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, int64, records, string, struct, uuid


@dataclass(slots=True)
class ReplicaState:
    """The state of the replica in the follower."""

    # The replica ID of the follower, or -1 if this request is from a consumer
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)  # The epoch of this follower, or -1 if not available


@dataclass(slots=True)
class FetchPartition:
    """The partitions to fetch."""

    partition: int = int32()  # The partition index
    current_leader_epoch: int = int32("9+", default=-1)  # The current leader epoch of the partition
    fetch_offset: int = int64()  # The message offset
    last_fetched_epoch: int = int32("12+", default=-1)  # The epoch of the last fetched record or -1 if there is none
    # The earliest available offset of the follower replica. The field is only used when the request is sent by the
    # follower
    log_start_offset: int = int64("5+", default=-1)
    # The maximum bytes to fetch from this partition. See KIP-74 for cases where this limit may not be honored
    partition_max_bytes: int = int32()
    replica_directory_id: Uuid = uuid("17+", tag=0)  # The directory id of the follower fetching
    # The high-watermark known by the replica. -1 if the high-watermark is not known and 9223372036854775807 if the
    # feature is not supported
    high_watermark: int = int64("18+", default=9223372036854775807, tag=1)


@dataclass(slots=True)
class FetchTopic:
    """The topics to fetch."""

    topic: str = string("0-12")  # The name of the topic to fetch
    topic_id: Uuid = uuid("13+")  # The unique topic ID
    partitions: list[FetchPartition] = array(FetchPartition)  # The partitions to fetch


@dataclass(slots=True)
class ForgottenTopic:
    """In an incremental fetch request, the partitions to remove."""

    topic: str = string("7-12")  # The topic name
    topic_id: Uuid = uuid("13+")  # The unique topic ID
    partitions: list[int] = array(int32, "7+")  # The partitions indexes to forget


@dataclass(slots=True)
class FetchRequest(Message):
    """Fetch request.

    Versions 0-3 were removed in Apache Kafka 4.0, Version 4 is the new baseline. Version 1 is the same as version
    0. Starting in Version 2, the requester must be able to handle Kafka Log Message format version 1. Version 3
    adds MaxBytes. Starting in version 3, the partition ordering in the request is now relevant. Partitions will be
    processed in the order they appear in the request. Version 4 adds IsolationLevel. Starting in version 4, the
    requestor must be able to handle Kafka log message format version 2. Version 5 adds LogStartOffset to indicate
    the earliest available offset of partition data that can be consumed. Version 6 is the same as version 5.
    Version 7 adds incremental fetch request support. Version 8 is the same as version 7. Version 9 adds
    CurrentLeaderEpoch, as described in KIP-320. Version 10 indicates that we can use the ZStd compression
    algorithm, as described in KIP-110. Version 12 adds flexible versions support as well as epoch validation
    through the `LastFetchedEpoch` field Version 13 replaces topic names with topic IDs (KIP-516). May return
    UNKNOWN_TOPIC_ID error code. Version 14 is the same as version 13 but it also receives a new error called
    OffsetMovedToTieredStorageException(KIP-405) Version 15 adds the ReplicaState which includes new field
    ReplicaEpoch and the ReplicaId. Also, deprecate the old ReplicaId field and set its default value to -1.
    (KIP-903) Version 16 is the same as version 15 (KIP-951). Version 17 adds directory id support from KIP-853
    Version 18 adds high-watermark from KIP-1166
    """

    API_KEY = ApiKey.FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 4, 18, 12

    # The clusterId if known. This is used to validate metadata fetches prior to broker registration
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    # The broker ID of the follower, of -1 if this request is from a consumer
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)  # The state of the replica in the follower
    max_wait_ms: int = int32()  # The maximum time in milliseconds to wait for the response
    min_bytes: int = int32()  # The minimum bytes to accumulate in the response
    # The maximum bytes to fetch. See KIP-74 for cases where this limit may not be honored
    max_bytes: int = int32("3+", default=2147483647)
    # This setting controls the visibility of transactional records. Using READ_UNCOMMITTED (isolation_level = 0)
    # makes all records visible. With READ_COMMITTED (isolation_level = 1), non-transactional and COMMITTED
    # transactional records are visible. To be more concrete, READ_COMMITTED returns all data from offsets smaller
    # than the current LSO (last stable offset), and enables the inclusion of the list of aborted transactions in the
    # result, which allows consumers to discard ABORTED transactional records
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")  # The fetch session ID
    # The fetch session epoch, which is used for ordering requests in a session
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)  # The topics to fetch
    # In an incremental fetch request, the partitions to remove
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")  # Rack ID of the consumer making this request


@dataclass(slots=True)
class EpochEndOffset:
    """In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the request, this field
    indicates the largest epoch and its end offset such that subsequent records are known to diverge.
    """

    epoch: int = int32("12+", default=-1)  # The largest epoch
    end_offset: int = int64("12+", default=-1)  # The end offset of the epoch


@dataclass(slots=True)
class LeaderIdAndEpoch:
    """The current leader of the partition."""

    leader_id: int = int32("12+", default=-1)  # The ID of the current leader or -1 if the leader is unknown
    leader_epoch: int = int32("12+", default=-1)  # The latest known leader epoch


@dataclass(slots=True)
class SnapshotId:
    """In the case of fetching an offset less than the LogStartOffset, this is the end offset and epoch that should
    be used in the FetchSnapshot request.
    """

    end_offset: int = int64(default=-1)  # The end offset of the epoch
    epoch: int = int32(default=-1)  # The largest epoch


@dataclass(slots=True)
class AbortedTransaction:
    """The aborted transactions."""

    producer_id: int = int64("4+")  # The producer id associated with the aborted transaction
    first_offset: int = int64("4+")  # The first offset in the aborted transaction


@dataclass(slots=True)
class PartitionData:
    """The topic partitions."""

    partition_index: int = int32()  # The partition index
    error_code: int = int16()  # The error code, or 0 if there was no fetch error
    high_watermark: int = int64()  # The current high water mark
    # The last stable offset (or LSO) of the partition. This is the last offset such that the state of all
    # transactional records prior to this offset have been decided (ABORTED or COMMITTED)
    last_stable_offset: int = int64("4+", default=-1)
    log_start_offset: int = int64("5+", default=-1)  # The current log start offset
    # In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the request, this field
    # indicates the largest epoch and its end offset such that subsequent records are known to diverge
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)  # The current leader of the partition
    # In the case of fetching an offset less than the LogStartOffset, this is the end offset and epoch that should be
    # used in the FetchSnapshot request
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    # The aborted transactions
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, "4+", nullable="4+")
    # The preferred read replica for the consumer to use on its next fetch request
    preferred_read_replica: int = int32("11+", default=-1)
    records: Buffer | None = records(nullable="0+")  # The record data


@dataclass(slots=True)
class FetchableTopicResponse:
    """The response topics."""

    topic: str = string("0-12")  # The topic name
    topic_id: Uuid = uuid("13+")  # The unique topic ID
    partitions: list[PartitionData] = array(PartitionData)  # The topic partitions


@dataclass(slots=True)
class NodeEndpoint:
    """Endpoints for all current-leaders enumerated in PartitionData, with errors NOT_LEADER_OR_FOLLOWER &
    FENCED_LEADER_EPOCH.
    """

    node_id: int = int32("16+")  # The ID of the associated node
    host: str = string("16+")  # The node's hostname
    port: int = int32("16+")  # The node's port
    # The rack of the node, or null if it has not been assigned to a rack
    rack: str | None = string("16+", nullable="16+", default=None)


@dataclass(slots=True)
class FetchResponse(Message):
    """Fetch response.

    Versions 0-3 were removed in Apache Kafka 4.0, Version 4 is the new baseline. Version 1 adds throttle time.
    Version 2 and 3 are the same as version 1. Version 4 adds features for transactional consumption. Version 5 adds
    LogStartOffset to indicate the earliest available offset of partition data that can be consumed. Starting in
    version 6, we may return KAFKA_STORAGE_ERROR as an error code. Version 7 adds incremental fetch request support.
    Starting in version 8, on quota violation, brokers send out responses before throttling. Version 9 is the same
    as version 8. Version 10 indicates that the response data can use the ZStd compression algorithm, as described
    in KIP-110. Version 12 adds support for flexible versions, epoch detection through the `TruncationOffset` field,
    and leader discovery through the `CurrentLeader` field Version 13 replaces the topic name field with topic ID
    (KIP-516). Version 14 is the same as version 13 but it also receives a new error called
    OffsetMovedToTieredStorageException (KIP-405) Version 15 is the same as version 14 (KIP-903). Version 16 adds
    the 'NodeEndpoints' field (KIP-951). Version 17 no changes to the response (KIP-853). Version 18 no changes to
    the response (KIP-1166)
    """

    API_KEY = ApiKey.FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 4, 18, 12

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")  # The top level response error code
    session_id: int = int32("7+")  # The fetch session ID, or 0 if this is not part of a fetch session
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)  # The response topics
    # Endpoints for all current-leaders enumerated in PartitionData, with errors NOT_LEADER_OR_FOLLOWER &
    # FENCED_LEADER_EPOCH
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
