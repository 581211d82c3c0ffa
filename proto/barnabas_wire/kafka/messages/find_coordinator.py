"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string


@dataclass(slots=True)
class FindCoordinatorRequest(Message):
    """FindCoordinator request.

    Version 1 adds KeyType. Version 2 is the same as version 1. Version 3 is the first flexible version. Version 4
    adds support for batching via CoordinatorKeys (KIP-699) Version 5 adds support for new error code
    TRANSACTION_ABORTABLE (KIP-890). Version 6 adds support for share groups (KIP-932). For key type SHARE (2), the
    coordinator key format is "groupId:topicId:partition".
    """

    API_KEY = ApiKey.FIND_COORDINATOR
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 3

    key: str = string("0-3")  # The coordinator key
    key_type: int = int8("1+")  # The coordinator key type. (group, transaction, share)
    coordinator_keys: list[str] = array(string, "4+")  # The coordinator keys


@dataclass(slots=True)
class Coordinator:
    """Each coordinator result in the response."""

    key: str = string("4+")  # The coordinator key
    node_id: int = int32("4+")  # The node id
    host: str = string("4+")  # The host name
    port: int = int32("4+")  # The port
    error_code: int = int16("4+")  # The error code, or 0 if there was no error
    error_message: str | None = string("4+", nullable="4+")  # The error message, or null if there was no error


@dataclass(slots=True)
class FindCoordinatorResponse(Message):
    """FindCoordinator response.

    Version 1 adds throttle time and error messages. Starting in version 2, on quota violation, brokers send out
    responses before throttling. Version 3 is the first flexible version. Version 4 adds support for batching via
    Coordinators (KIP-699) Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890). Version 6 adds
    support for share groups (KIP-932).
    """

    API_KEY = ApiKey.FIND_COORDINATOR
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 3

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")  # The error code, or 0 if there was no error
    error_message: str | None = string("1-3", nullable="1+")  # The error message, or null if there was no error
    node_id: int = int32("0-3")  # The node id
    host: str = string("0-3")  # The host name
    port: int = int32("0-3")  # The port
    coordinators: list[Coordinator] = array(Coordinator, "4+")  # Each coordinator result in the response
