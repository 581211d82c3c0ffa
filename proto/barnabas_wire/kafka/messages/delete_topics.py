"""DeleteTopics (key 20): delete topics by name or id."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DeleteTopicState:
    """A topic to delete, named by one of the two."""

    name: str | None = string("6+", nullable="6+", default=None)  # null: go by the id
    topic_id: Uuid = uuid("6+")


@dataclass(slots=True)
class DeleteTopicsRequest(Message):
    """Delete topics by name, from v6 on also by id."""

    API_KEY = ApiKey.DELETE_TOPICS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 6, 4

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()  # how long the answer may wait for it to be done


@dataclass(slots=True)
class DeletableTopicResult:
    """What became of one topic."""

    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


@dataclass(slots=True)
class DeleteTopicsResponse(Message):
    """The outcome by topic.

    Errors new in v3: TOPIC_DELETION_DISABLED, in v5: THROTTLING_QUOTA_EXCEEDED (KIP-599), in v6: UNKNOWN_TOPIC_ID.
    """

    API_KEY = ApiKey.DELETE_TOPICS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 6, 4

    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
