"""ReadShareGroupStateSummary (key 87): how far share partitions are, without their batches (KIP-932)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class PartitionData:
    """One share partition."""

    partition: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class ReadStateSummaryData:
    """Partitions of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class ReadShareGroupStateSummaryRequest(Message):
    """Ask how far partitions of one group are. The answer counts what is done from v1 on (KIP-1226)."""

    API_KEY = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


@dataclass(slots=True)
class PartitionResult:
    """How far one partition is."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()  # -1: not decided yet, or nothing is known of the partition
    delivery_complete_count: int = int32(
        "1+", default=-1
    )  # offsets from the start offset on that are done; -1: not known


@dataclass(slots=True)
class ReadStateSummaryResult:
    """The outcomes of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class ReadShareGroupStateSummaryResponse(Message):
    """The summaries."""

    API_KEY = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
