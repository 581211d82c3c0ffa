"""ShareAcknowledge (key 79): a member of a share group says what became of records that it acquired (KIP-932, 1222)."""

from __future__ import annotations

from enum import IntEnum

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, int64, string, struct, uuid
from barnabas_wire.lazy_dataclass import dataclass


class AcknowledgeType(IntEnum):
    """What became of an acquired record."""

    GAP = 0
    """There is none at that offset."""
    ACCEPT = 1
    RELEASE = 2
    """It is to be delivered again."""
    REJECT = 3
    """It is never to be delivered again."""
    RENEW = 4
    """It is still being worked on (v2)."""


@dataclass(slots=True)
class AcknowledgementBatch:
    """A range of offsets, inclusive at both ends."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)  # one for all, or one for each offset


@dataclass(slots=True)
class AcknowledgePartition:
    """What became of records of one partition."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@dataclass(slots=True)
class AcknowledgeTopic:
    """The partitions of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


@dataclass(slots=True)
class ShareAcknowledgeRequest(Message):
    """Acknowledge, release, reject or renew."""

    API_KEY = ApiKey.SHARE_ACKNOWLEDGE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 0

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    share_session_epoch: int = int32()  # -1 ends the session; 0 is refused, only a fetch opens one
    is_renew_ack: bool = boolean("2+")  # whether some type is RENEW
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    """The leader now, for a client that asked the wrong broker."""

    leader_id: int = int32()  # -1: not known
    leader_epoch: int = int32()


@dataclass(slots=True)
class AcknowledgePartitionResponse:
    """Whether the acknowledgements of a partition count: all of them, or none."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)


@dataclass(slots=True)
class AcknowledgeTopicResponse:
    """The partitions of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[AcknowledgePartitionResponse] = array(AcknowledgePartitionResponse)


@dataclass(slots=True)
class NodeEndpoint:
    """Where a leader named in the answer is reached."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class ShareAcknowledgeResponse(Message):
    """Each partition of the request, by topic."""

    API_KEY = ApiKey.SHARE_ACKNOWLEDGE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+")  # how long an acquired or renewed record is locked
    responses: list[AcknowledgeTopicResponse] = array(AcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
