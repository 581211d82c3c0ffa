"""OffsetForLeaderEpoch (key 23): where a leader epoch ended (KIP-101, KIP-320)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class OffsetForLeaderPartition:
    """A partition, and the epoch whose end is sought there."""

    partition: int = int32()
    # What the asker takes for current, -1: no check. Ahead of the broker's: UNKNOWN_LEADER_EPOCH, behind:
    # FENCED_LEADER_EPOCH
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32()  # the one sought


@dataclass(slots=True)
class OffsetForLeaderTopic:
    """The partitions asked about of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@dataclass(slots=True)
class OffsetForLeaderEpochRequest(Message):
    """Ask where epochs ended, to find out whether one's own log or position has left the leader's."""

    API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 4, 4

    replica_id: int = int32("3+", default=-2)  # -1: a consumer, -2: one for debugging, who may see past the HW
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@dataclass(slots=True)
class EpochEndOffset:
    """The last epoch up to the one sought that the leader has, and the offset after its last record."""

    error_code: int = int16()
    partition: int = int32()
    # -1 in both: no such epoch
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64(default=-1)


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    """The answer for one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@dataclass(slots=True)
class OffsetForLeaderEpochResponse(Message):
    """Where the epochs ended."""

    API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 2, 4, 4

    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
