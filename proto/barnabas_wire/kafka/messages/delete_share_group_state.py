"""DeleteShareGroupState (key 86): the group coordinator has the state of share partitions forgotten (KIP-932)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class PartitionData:
    """One share partition."""

    partition: int = int32()


@dataclass(slots=True)
class DeleteStateData:
    """Partitions of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class DeleteShareGroupStateRequest(Message):
    """Forget the state of partitions of one group."""

    API_KEY = ApiKey.DELETE_SHARE_GROUP_STATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


@dataclass(slots=True)
class PartitionResult:
    """Whether the state of one partition is gone."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class DeleteStateResult:
    """The outcomes of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class DeleteShareGroupStateResponse(Message):
    """Whether each state is gone."""

    API_KEY = ApiKey.DELETE_SHARE_GROUP_STATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    results: list[DeleteStateResult] = array(DeleteStateResult)
