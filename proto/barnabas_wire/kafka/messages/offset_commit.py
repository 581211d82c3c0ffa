"""OffsetCommit (key 8): commit consumed offsets of a group."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    """How far the group has come in one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)  # -1: not known
    committed_metadata: str | None = string(nullable="0+")  # a free note of the client's, kept beside the offset


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    """A topic, by name or by id, with the offsets to keep."""

    name: str = string("0-9")
    topic_id: Uuid = uuid("10+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@dataclass(slots=True)
class OffsetCommitRequest(Message):
    """Store offsets for a group. Members of KIP-848 groups may send it from v9 on; topic ids replace names in v10."""

    API_KEY = ApiKey.OFFSET_COMMIT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 10, 8

    group_id: str = string()
    # classic groups: the generation, KIP-848 groups: the member's epoch; -1 from one who is no member
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)  # null: not a static member
    retention_time_ms: int = int64("2-4", default=-1)  # -1, and always from v5 on: as the broker is configured
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    """Whether one partition's offset was stored."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    """The outcomes of one topic, named as it was in the request."""

    name: str = string("0-9")
    topic_id: Uuid = uuid("10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@dataclass(slots=True)
class OffsetCommitResponse(Message):
    """The outcome by partition. From v4 a broker over quota answers at once and throttles afterwards.

    New errors: STALE_MEMBER_EPOCH (KIP-848 groups) and GROUP_ID_NOT_FOUND (any) in v9, UNKNOWN_TOPIC_ID in v10.
    """

    API_KEY = ApiKey.OFFSET_COMMIT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 10, 8

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
