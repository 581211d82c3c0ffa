"""ListConfigResources (key 74): resources that have dynamic configs (KIP-1142)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ListConfigResourcesRequest(Message):
    """Ask for resources of some types. v0, then called ListClientMetricsResources, knew client metrics alone."""

    API_KEY = ApiKey.LIST_CONFIG_RESOURCES
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    # 2: topics, 4: brokers, 8: loggers of brokers, 16: client metrics, 32: groups; empty: whatever the broker supports
    resource_types: list[int] = array(int8, "1+")


@dataclass(slots=True)
class ConfigResource:
    """A resource found; in v0 always of client metrics."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


@dataclass(slots=True)
class ListConfigResourcesResponse(Message):
    """The resources, without their configs."""

    API_KEY = ApiKey.LIST_CONFIG_RESOURCES
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
