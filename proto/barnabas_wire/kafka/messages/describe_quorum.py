"""DescribeQuorum (key 55): state of the metadata quorum (KIP-595, KIP-836, KIP-853).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uint16, uuid


@dataclass(slots=True)
class DescribeQuorumRequestPartitionData:
    """The partitions to describe."""

    partition_index: int = int32()  # The partition index


@dataclass(slots=True)
class DescribeQuorumRequestTopicData:
    """The topics to describe."""

    topic_name: str = string()  # The topic name
    # The partitions to describe
    partitions: list[DescribeQuorumRequestPartitionData] = array(DescribeQuorumRequestPartitionData)


@dataclass(slots=True)
class DescribeQuorumRequest(Message):
    """DescribeQuorum request.

    Version 1 adds additional fields in the response. The request is unchanged (KIP-836). Version 2 adds additional
    fields in the response. The request is unchanged (KIP-853).
    """

    API_KEY = ApiKey.DESCRIBE_QUORUM
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    topics: list[DescribeQuorumRequestTopicData] = array(DescribeQuorumRequestTopicData)  # The topics to describe


@dataclass(slots=True)
class ReplicaState:
    """The current voters of the partition."""

    replica_id: int = int32()  # The ID of the replica
    replica_directory_id: Uuid = uuid("2+")  # The replica directory ID of the replica
    log_end_offset: int = int64()  # The last known log end offset of the follower or -1 if it is unknown
    # The last known leader wall clock time time when a follower fetched from the leader. This is reported as -1 both
    # for the current leader or if it is unknown for a voter
    last_fetch_timestamp: int = int64("1+", default=-1)
    # The leader wall clock append time of the offset for which the follower made the most recent fetch request. This
    # is reported as the current time for the leader and -1 if unknown for a voter
    last_caught_up_timestamp: int = int64("1+", default=-1)


@dataclass(slots=True)
class PartitionData:
    """The partition data."""

    partition_index: int = int32()  # The partition index
    error_code: int = int16()  # The partition error code
    error_message: str | None = string("2+", nullable="2+")  # The error message, or null if there was no error
    leader_id: int = int32()  # The ID of the current leader or -1 if the leader is unknown
    leader_epoch: int = int32()  # The latest known leader epoch
    high_watermark: int = int64()  # The high water mark
    current_voters: list[ReplicaState] = array(ReplicaState)  # The current voters of the partition
    observers: list[ReplicaState] = array(ReplicaState)  # The observers of the partition


@dataclass(slots=True)
class TopicData:
    """The response from the describe quorum API."""

    topic_name: str = string()  # The topic name
    partitions: list[PartitionData] = array(PartitionData)  # The partition data


@dataclass(slots=True)
class Listener:
    """The listeners of this controller."""

    name: str = string("2+")  # The name of the endpoint
    host: str = string("2+")  # The hostname
    port: int = uint16("2+")  # The port


@dataclass(slots=True)
class Node:
    """The nodes in the quorum."""

    node_id: int = int32("2+")  # The ID of the associated node
    listeners: list[Listener] = array(Listener, "2+")  # The listeners of this controller


@dataclass(slots=True)
class DescribeQuorumResponse(Message):
    """DescribeQuorum response.

    Version 1 adds LastFetchTimeStamp and LastCaughtUpTimestamp in ReplicaState (KIP-836). Version 2 adds
    ErrorMessage, Nodes, ErrorMessage in PartitionData, ReplicaDirectoryId in ReplicaState (KIP-853).
    """

    API_KEY = ApiKey.DESCRIBE_QUORUM
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    error_code: int = int16()  # The top level error code
    error_message: str | None = string("2+", nullable="2+")  # The error message, or null if there was no error
    topics: list[TopicData] = array(TopicData)  # The response from the describe quorum API
    nodes: list[Node] = array(Node, "2+")  # The nodes in the quorum
