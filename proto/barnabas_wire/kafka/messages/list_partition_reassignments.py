"""ListPartitionReassignments (key 46): which partitions are moving between brokers (KIP-455)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    """A topic asked about, and which of its partitions."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@dataclass(slots=True)
class ListPartitionReassignmentsRequest(Message):
    """Ask which moves are under way."""

    API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    timeout_ms: int = int32(default=60000)
    # null: every move in the cluster
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


@dataclass(slots=True)
class OngoingPartitionReassignment:
    """A partition on the move. The lists hold broker ids."""

    partition_index: int = int32()
    replicas: list[int] = array(int32)  # as they are now
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


@dataclass(slots=True)
class OngoingTopicReassignment:
    """A topic with partitions on the move."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@dataclass(slots=True)
class ListPartitionReassignmentsResponse(Message):
    """The moves under way, or an error for the whole request."""

    API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
