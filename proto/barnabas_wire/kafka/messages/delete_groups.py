"""DeleteGroups (key 42): delete empty groups."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DeleteGroupsRequest(Message):
    """Forget some groups and their offsets."""

    API_KEY = ApiKey.DELETE_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 3, 2

    groups_names: list[str] = array(string)


@dataclass(slots=True)
class DeletableGroupResult:
    """Whether one group could be deleted."""

    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None)


@dataclass(slots=True)
class DeleteGroupsResponse(Message):
    """How each group fared. From v1 a broker over quota answers at once and throttles afterwards."""

    API_KEY = ApiKey.DELETE_GROUPS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 3, 2

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
