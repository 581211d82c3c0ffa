"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from configs (KIP-339).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class AlterableConfig:
    """The configurations."""

    name: str = string()  # The configuration key name
    config_operation: int = int8()  # The type (Set, Delete, Append, Subtract) of operation
    value: str | None = string(nullable="0+")  # The value to set for the configuration key


@dataclass(slots=True)
class AlterConfigsResource:
    """The incremental updates for each resource."""

    resource_type: int = int8()  # The resource type
    resource_name: str = string()  # The resource name
    configs: list[AlterableConfig] = array(AlterableConfig)  # The configurations


@dataclass(slots=True)
class IncrementalAlterConfigsRequest(Message):
    """IncrementalAlterConfigs request.

    Version 1 is the first flexible version.
    """

    API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)  # The incremental updates for each resource
    validate_only: bool = boolean()  # True if we should validate the request, but not change the configurations


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    """The responses for each resource."""

    error_code: int = int16()  # The resource error code
    error_message: str | None = string(nullable="0+")  # The resource error message, or null if there was no error
    resource_type: int = int8()  # The resource type
    resource_name: str = string()  # The resource name


@dataclass(slots=True)
class IncrementalAlterConfigsResponse(Message):
    """IncrementalAlterConfigs response.

    Version 1 is the first flexible version.
    """

    API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    # Duration in milliseconds for which the request was throttled due to a quota violation, or zero if the request
    # did not violate any quota
    throttle_time_ms: int = int32()
    # The responses for each resource
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
