"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from configs (KIP-339)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class AlterableConfig:
    """One change to one config."""

    name: str = string()
    config_operation: int = int8()  # 0 set, 1 delete, 2 append, 3 subtract; the last two only for lists
    value: str | None = string(nullable="0+")


@dataclass(slots=True)
class AlterConfigsResource:
    """A resource and the changes to it; configs not listed stay as they are."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@dataclass(slots=True)
class IncrementalAlterConfigsRequest(Message):
    """Change single configs of some resources."""

    API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()  # a dry run: nothing is changed


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    """Whether one resource took its changes."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()


@dataclass(slots=True)
class IncrementalAlterConfigsResponse(Message):
    """How each resource fared."""

    API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
