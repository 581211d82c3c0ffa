"""ReadShareGroupState (key 84): a leader reads the state of share partitions, and shuts former leaders out (KIP-932)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass

OWN_TAG = 10_000
"""The tag of the field that only Barnabas has: far from what Kafka will number."""


@dataclass(slots=True)
class StateBatch:
    """Offsets in one state, both ends inclusive."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()  # 0 available, 2 acknowledged, 3 archiving, 4 archived
    delivery_count: int = int16()
    due_ms: int = int64(tag=OWN_TAG)  # ours: wall clock ms before which they are not delivered; 0: at once


@dataclass(slots=True)
class PartitionData:
    """One share partition, and the epoch of the leader that asks."""

    partition: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class ReadStateData:
    """Partitions of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class ReadShareGroupStateRequest(Message):
    """Read the state of partitions of one group."""

    API_KEY = ApiKey.READ_SHARE_GROUP_STATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


@dataclass(slots=True)
class PartitionResult:
    """The state of one partition, or why there is none."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()  # -1: not decided yet
    state_batches: list[StateBatch] = array(StateBatch)


@dataclass(slots=True)
class ReadStateResult:
    """The outcomes of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class ReadShareGroupStateResponse(Message):
    """The states."""

    API_KEY = ApiKey.READ_SHARE_GROUP_STATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    results: list[ReadStateResult] = array(ReadStateResult)
