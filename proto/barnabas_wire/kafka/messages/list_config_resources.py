"""ListConfigResources (key 74): resources that have dynamic configs (KIP-1142).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string


@dataclass(slots=True)
class ListConfigResourcesRequest(Message):
    """ListConfigResources request.

    Version 0 is used as ListClientMetricsResourcesRequest which only lists client metrics resources. Version 1 adds
    ResourceTypes field (KIP-1142). If there is no specified ResourceTypes, it should return all configuration
    resources.
    """

    API_KEY = ApiKey.LIST_CONFIG_RESOURCES
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    # The list of resource type. If the list is empty, it uses default supported config resource types
    resource_types: list[int] = array(int8, "1+")


@dataclass(slots=True)
class ConfigResource:
    """Each config resource in the response."""

    resource_name: str = string()  # The resource name
    resource_type: int = int8("1+", default=16)  # The resource type


@dataclass(slots=True)
class ListConfigResourcesResponse(Message):
    """ListConfigResources response.

    Version 0 is used as ListClientMetricsResourcesResponse which returns all client metrics resources. Version 1
    adds ResourceType to ConfigResources (KIP-1142).
    """

    API_KEY = ApiKey.LIST_CONFIG_RESOURCES
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The error code, or 0 if there was no error
    config_resources: list[ConfigResource] = array(ConfigResource)  # Each config resource in the response
