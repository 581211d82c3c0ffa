"""WriteShareGroupState (key 85): a leader has changes of share partitions kept (KIP-932)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.read_share_group_state import StateBatch
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class PartitionData:
    """What changed in one share partition."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()  # -1: as it was
    delivery_complete_count: int = int32("1+", default=-1)  # offsets from the start offset on that are done
    state_batches: list[StateBatch] = array(StateBatch)


@dataclass(slots=True)
class WriteStateData:
    """Partitions of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class WriteShareGroupStateRequest(Message):
    """Keep changes of partitions of one group. v1 counts what is done (KIP-1226)."""

    API_KEY = ApiKey.WRITE_SHARE_GROUP_STATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


@dataclass(slots=True)
class PartitionResult:
    """Whether the change of one partition is kept."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class WriteStateResult:
    """The outcomes of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class WriteShareGroupStateResponse(Message):
    """Whether each change is kept."""

    API_KEY = ApiKey.WRITE_SHARE_GROUP_STATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    results: list[WriteStateResult] = array(WriteStateResult)
