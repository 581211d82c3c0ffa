"""ElectLeaders (key 43): elect preferred or unclean leaders (KIP-183, KIP-460).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string


@dataclass(slots=True)
class TopicPartitions:
    """The topic partitions to elect leaders."""

    topic: str = string()  # The name of a topic
    partitions: list[int] = array(int32)  # The partitions of this topic whose leader should be elected


@dataclass(slots=True)
class ElectLeadersRequest(Message):
    """ElectLeaders request.

    Version 1 implements multiple leader election types, as described by KIP-460. Version 2 is the first flexible
    version.
    """

    API_KEY = ApiKey.ELECT_LEADERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    # Type of elections to conduct for the partition. A value of '0' elects the preferred replica. A value of '1'
    # elects the first live replica if there are no in-sync replica
    election_type: int = int8("1+")
    # The topic partitions to elect leaders
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)  # The time in ms to wait for the election to complete


@dataclass(slots=True)
class PartitionResult:
    """The results for each partition."""

    partition_id: int = int32()  # The partition id
    error_code: int = int16()  # The result error, or zero if there was no error
    error_message: str | None = string(nullable="0+")  # The result message, or null if there was no error


@dataclass(slots=True)
class ReplicaElectionResult:
    """The election results, or an empty array if the requester did not have permission and the request asks for
    all partitions.
    """

    topic: str = string()  # The topic name
    partition_result: list[PartitionResult] = array(PartitionResult)  # The results for each partition


@dataclass(slots=True)
class ElectLeadersResponse(Message):
    """ElectLeaders response.

    Version 1 adds a top-level error code. Version 2 is the first flexible version.
    """

    API_KEY = ApiKey.ELECT_LEADERS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")  # The top level response error code
    # The election results, or an empty array if the requester did not have permission and the request asks for all
    # partitions
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
