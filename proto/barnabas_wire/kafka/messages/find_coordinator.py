"""FindCoordinator (key 10): which broker coordinates a group or a transactional id."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class FindCoordinatorRequest(Message):
    """Ask for the coordinator of one key, from v4 on of many (KIP-699). v6 brings share groups (KIP-932)."""

    API_KEY = ApiKey.FIND_COORDINATOR
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 3

    key: str = string("0-3")
    key_type: int = int8("1+")  # 0: group id, 1: transactional id, 2: share partition, keyed group:topic id:partition
    coordinator_keys: list[str] = array(string, "4+")


@dataclass(slots=True)
class Coordinator:
    """The broker to turn to for one key."""

    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", default=None)


@dataclass(slots=True)
class FindCoordinatorResponse(Message):
    """The coordinators; TRANSACTION_ABORTABLE may occur from v5 on (KIP-890).

    From v2 a broker over quota answers at once and throttles afterwards.
    """

    API_KEY = ApiKey.FIND_COORDINATOR
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 3

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1+", default=None)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
