"""CreatePartitions (key 37): add partitions to topics."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class CreatePartitionsAssignment:
    """The brokers for one of the added partitions."""

    broker_ids: list[int] = array(int32)


@dataclass(slots=True)
class CreatePartitionsTopic:
    """A topic that shall grow."""

    name: str = string()
    count: int = int32()  # in all, with those it has
    # one for each added partition; null leaves the choice to the controller
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@dataclass(slots=True)
class CreatePartitionsRequest(Message):
    """Ask for more partitions. With v3 a client understands THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

    API_KEY = ApiKey.CREATE_PARTITIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 3, 2

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()  # a dry run: checked, and nothing grows


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    """Whether one topic grew."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class CreatePartitionsResponse(Message):
    """The outcome by topic."""

    API_KEY = ApiKey.CREATE_PARTITIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 3, 2

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
