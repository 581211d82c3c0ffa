"""InitializeShareGroupState (key 83): the group coordinator has the state of share partitions begun (KIP-932)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class PartitionData:
    """One share partition."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()  # -1: left to the first leader that reads it


@dataclass(slots=True)
class InitializeStateData:
    """Partitions of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class InitializeShareGroupStateRequest(Message):
    """Begin, or begin again, the state of partitions of one group."""

    API_KEY = ApiKey.INITIALIZE_SHARE_GROUP_STATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


@dataclass(slots=True)
class PartitionResult:
    """Whether one partition has a state now."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class InitializeStateResult:
    """The outcomes of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class InitializeShareGroupStateResponse(Message):
    """Whether each state is begun."""

    API_KEY = ApiKey.INITIALIZE_SHARE_GROUP_STATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    results: list[InitializeStateResult] = array(InitializeStateResult)
