"""AlterConfigs (key 33): replace all configs of a resource; the older form of IncrementalAlterConfigs."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class AlterableConfig:
    """A config and its new value."""

    name: str = string()
    value: str | None = string(nullable="0+")


@dataclass(slots=True)
class AlterConfigsResource:
    """A resource and its full new set of configs; those not listed fall back to their defaults."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@dataclass(slots=True)
class AlterConfigsRequest(Message):
    """Overwrite the configs of some resources."""

    API_KEY = ApiKey.ALTER_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()  # a dry run: nothing is changed


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    """Whether one resource took its new configs."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()


@dataclass(slots=True)
class AlterConfigsResponse(Message):
    """How each resource fared. From v1 a broker over quota answers at once and throttles afterwards."""

    API_KEY = ApiKey.ALTER_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
