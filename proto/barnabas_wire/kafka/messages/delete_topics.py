"""DeleteTopics (key 20): delete topics by name or id.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string, uuid


@dataclass(slots=True)
class DeleteTopicState:
    """The name or topic ID of the topic."""

    name: str | None = string("6+", nullable="6+", default=None)  # The topic name
    topic_id: Uuid = uuid("6+")  # The unique topic ID


@dataclass(slots=True)
class DeleteTopicsRequest(Message):
    """DeleteTopics request.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. Versions 0, 1, 2, and 3 are the same.
    Version 4 is the first flexible version. Version 5 adds ErrorMessage in the response and may return a
    THROTTLING_QUOTA_EXCEEDED error in the response if the topics deletion is throttled (KIP-599). Version 6
    reorganizes topics, adds topic IDs and allows topic names to be null.
    """

    API_KEY = ApiKey.DELETE_TOPICS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 6, 4

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")  # The name or topic ID of the topic
    topic_names: list[str] = array(string, "0-5")  # The names of the topics to delete
    timeout_ms: int = int32()  # The length of time in milliseconds to wait for the deletions to complete


@dataclass(slots=True)
class DeletableTopicResult:
    """The results for each topic we tried to delete."""

    name: str | None = string(nullable="6+")  # The topic name
    topic_id: Uuid = uuid("6+")  # The unique topic ID
    error_code: int = int16()  # The deletion error, or 0 if the deletion succeeded
    # The error message, or null if there was no error
    error_message: str | None = string("5+", nullable="5+", default=None)


@dataclass(slots=True)
class DeleteTopicsResponse(Message):
    """DeleteTopics response.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. Version 1 adds the throttle time.
    Starting in version 2, on quota violation, brokers send out responses before throttling. Starting in version 3,
    a TOPIC_DELETION_DISABLED error code may be returned. Version 4 is the first flexible version. Version 5 adds
    ErrorMessage in the response and may return a THROTTLING_QUOTA_EXCEEDED error in the response if the topics
    deletion is throttled (KIP-599). Version 6 adds topic ID to responses. An UNSUPPORTED_VERSION error code will be
    returned when attempting to delete using topic IDs when IBP < 2.8. UNKNOWN_TOPIC_ID error code will be returned
    when IBP is at least 2.8, but the topic ID was not found.
    """

    API_KEY = ApiKey.DELETE_TOPICS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 6, 4

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    # The results for each topic we tried to delete
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
