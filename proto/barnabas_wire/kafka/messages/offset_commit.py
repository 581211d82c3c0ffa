"""OffsetCommit (key 8): commit consumed offsets of a group.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uuid


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    """Each partition to commit offsets for."""

    partition_index: int = int32()  # The partition index
    committed_offset: int = int64()  # The message offset to be committed
    committed_leader_epoch: int = int32("6+", default=-1)  # The leader epoch of this partition
    committed_metadata: str | None = string(nullable="0+")  # Any associated metadata the client wants to keep


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    """The topics to commit offsets for."""

    name: str = string("0-9")  # The topic name
    topic_id: Uuid = uuid("10+")  # The topic ID
    # Each partition to commit offsets for
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@dataclass(slots=True)
class OffsetCommitRequest(Message):
    """OffsetCommit request.

    Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline. Version 1 adds timestamp and group
    membership information, as well as the commit timestamp. Version 2 adds retention time. It removes the commit
    timestamp added in version 1. Version 3 and 4 are the same as version 2. Version 5 removes the retention time,
    which is now controlled only by a broker configuration. Version 6 adds the leader epoch for fencing. version 7
    adds a new field called groupInstanceId to indicate member identity across restarts. Version 8 is the first
    flexible version. Version 9 is the first version that can be used with the new consumer group protocol
    (KIP-848). The request is the same as version 8. Version 10 adds support for topic ids and removes support for
    topic names (KIP-848).
    """

    API_KEY = ApiKey.OFFSET_COMMIT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 10, 8

    group_id: str = string()  # The unique group identifier
    # The generation of the group if using the classic group protocol or the member epoch if using the consumer
    # protocol
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")  # The member ID assigned by the group coordinator
    # The unique identifier of the consumer instance provided by end user
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)  # The time period in ms to retain the offset
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)  # The topics to commit offsets for


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    """The responses for each partition in the topic."""

    partition_index: int = int32()  # The partition index
    error_code: int = int16()  # The error code, or 0 if there was no error


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    """The responses for each topic."""

    name: str = string("0-9")  # The topic name
    topic_id: Uuid = uuid("10+")  # The topic ID
    # The responses for each partition in the topic
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@dataclass(slots=True)
class OffsetCommitResponse(Message):
    """OffsetCommit response.

    Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline. Versions 1 and 2 are the same as
    version 0. Version 3 adds the throttle time to the response. Starting in version 4, on quota violation, brokers
    send out responses before throttling. Versions 5 and 6 are the same as version 4. Version 7 offsetCommitRequest
    supports a new field called groupInstanceId to indicate member identity across restarts. Version 8 is the first
    flexible version. Version 9 is the first version that can be used with the new consumer group protocol
    (KIP-848). The response is the same as version 8 but can return STALE_MEMBER_EPOCH when the new consumer group
    protocol is used and GROUP_ID_NOT_FOUND when the group does not exist for both protocols. Version 10 adds
    support for topic ids and removes support for topic names (KIP-848). Supported errors: -
    GROUP_AUTHORIZATION_FAILED (version 0+) - NOT_COORDINATOR (version 0+) - COORDINATOR_NOT_AVAILABLE (version 0+)
    - COORDINATOR_LOAD_IN_PROGRESS (version 0+) - ILLEGAL_GENERATION (version 1+) - UNKNOWN_MEMBER_ID (version 1+) -
    INVALID_COMMIT_OFFSET_SIZE (version 0+) - FENCED_MEMBER_EPOCH (version 7+) - GROUP_ID_NOT_FOUND (version 9+) -
    STALE_MEMBER_EPOCH (version 9+) - UNKNOWN_TOPIC_ID (version 10+)
    """

    API_KEY = ApiKey.OFFSET_COMMIT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 10, 8

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)  # The responses for each topic
