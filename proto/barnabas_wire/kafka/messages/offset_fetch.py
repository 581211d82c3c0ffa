"""OffsetFetch (key 9): read committed offsets of groups.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, int64, string, uuid


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    name: str = string("0-7")  # The topic name
    partition_indexes: list[int] = array(int32, "0-7")  # The partition indexes we would like to fetch offsets for


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    name: str = string("8-9")  # The topic name
    topic_id: Uuid = uuid("10+")  # The topic ID
    partition_indexes: list[int] = array(int32, "8+")  # The partition indexes we would like to fetch offsets for


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    """Each group we would like to fetch offsets for."""

    group_id: str = string("8+")  # The group ID
    member_id: str | None = string("9+", nullable="9+", default=None)  # The member id
    member_epoch: int = int32("9+", default=-1)  # The member epoch if using the new consumer protocol (KIP-848)
    # Each topic we would like to fetch offsets for, or null to fetch offsets for all topics
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


@dataclass(slots=True)
class OffsetFetchRequest(Message):
    """OffsetFetch request.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. In version 0, the request read offsets
    from ZK. Starting in version 1, the broker supports fetching offsets from the internal __consumer_offsets topic.
    Starting in version 2, the request can contain a null topics array to indicate that offsets for all topics
    should be fetched. It also returns a top level error code for group or coordinator level errors. Version 3, 4,
    and 5 are the same as version 2. Version 6 is the first flexible version. Version 7 is adding the require stable
    flag. Version 8 is adding support for fetching offsets for multiple groups at a time. Version 9 is the first
    version that can be used with the new consumer group protocol (KIP-848). It adds the MemberId and MemberEpoch
    fields. Those are filled in and validated when the new consumer protocol is used. Version 10 adds support for
    topic ids and removes support for topic names (KIP-848).
    """

    API_KEY = ApiKey.OFFSET_FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 10, 6

    group_id: str = string("0-7")  # The group to fetch offsets for
    # Each topic we would like to fetch offsets for, or null to fetch offsets for all topics
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2+")
    # Each group we would like to fetch offsets for
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    # Whether broker should hold on returning unstable offsets but set a retriable error code for the partitions
    require_stable: bool = boolean("7+")


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    """The responses per partition."""

    partition_index: int = int32("0-7")  # The partition index
    committed_offset: int = int64("0-7")  # The committed message offset
    committed_leader_epoch: int = int32("5-7", default=-1)  # The leader epoch
    metadata: str | None = string("0-7", nullable="0+")  # The partition metadata
    error_code: int = int16("0-7")  # The error code, or 0 if there was no error


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    """The responses per topic."""

    name: str = string("0-7")  # The topic name
    # The responses per partition
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    """The responses per partition."""

    partition_index: int = int32("8+")  # The partition index
    committed_offset: int = int64("8+")  # The committed message offset
    committed_leader_epoch: int = int32("8+", default=-1)  # The leader epoch
    metadata: str | None = string("8+", nullable="8+")  # The partition metadata
    error_code: int = int16("8+")  # The partition-level error code, or 0 if there was no error


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    """The responses per topic."""

    name: str = string("8-9")  # The topic name
    topic_id: Uuid = uuid("10+")  # The topic ID
    # The responses per partition
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    """The responses per group id."""

    group_id: str = string("8+")  # The group ID
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")  # The responses per topic
    error_code: int = int16("8+")  # The group-level error code, or 0 if there was no error


@dataclass(slots=True)
class OffsetFetchResponse(Message):
    """OffsetFetch response.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. Version 1 is the same as version 0.
    Version 2 adds a top-level error code. Version 3 adds the throttle time. Starting in version 4, on quota
    violation, brokers send out responses before throttling. Version 5 adds the leader epoch to the committed
    offset. Version 6 is the first flexible version. Version 7 adds pending offset commit as new error response on
    partition level. Version 8 is adding support for fetching offsets for multiple groups Version 9 is the first
    version that can be used with the new consumer group protocol (KIP-848). The response is the same as version 8
    but can return STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID errors when the new consumer group protocol is used.
    Version 10 adds support for topic ids and removes support for topic names (KIP-848). It can return
    UNKNOWN_TOPIC_ID if topic IDs used and the topic is not found in metadata. Supported errors: -
    GROUP_AUTHORIZATION_FAILED (version 0+) - NOT_COORDINATOR (version 0+) - COORDINATOR_NOT_AVAILABLE (version 0+)
    - COORDINATOR_LOAD_IN_PROGRESS (version 0+) - GROUP_ID_NOT_FOUND (version 0+) - UNSTABLE_OFFSET_COMMIT (version
    7+) - UNKNOWN_MEMBER_ID (version 9+) - STALE_MEMBER_EPOCH (version 9+) - UNKNOWN_TOPIC_ID (version 10+)
    """

    API_KEY = ApiKey.OFFSET_FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 10, 6

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")  # The responses per topic
    error_code: int = int16("2-7")  # The top-level error code, or 0 if there was no error
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")  # The responses per group id
