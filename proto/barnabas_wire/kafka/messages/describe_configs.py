"""DescribeConfigs (key 32): configs of topics and brokers, with source and synonyms."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DescribeConfigsResource:
    """A topic, broker or the like whose settings are asked for."""

    resource_type: int = int8()  # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")  # null asks for every key


@dataclass(slots=True)
class DescribeConfigsRequest(Message):
    """Ask how resources are configured. No broker since 4.0 serves v0."""

    API_KEY = ApiKey.DESCRIBE_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 4, 4

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@dataclass(slots=True)
class DescribeConfigsSynonym:
    """One place that a setting's value can come from, and what stands there."""

    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")  # numbered like config_source below


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    """One setting of a resource."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    # 1 topic, 2 one broker, 3 all brokers (both dynamic), 4 server.properties, 5 built in, 6 broker logger,
    # 7 client metrics, 8 group
    config_source: int = int8("1+", default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+")
    # 0 unknown, 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="0+")


@dataclass(slots=True)
class DescribeConfigsResult:
    """The settings of one resource, or why there are none."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@dataclass(slots=True)
class DescribeConfigsResponse(Message):
    """Settings by resource; config_source took the place of v0's is_default."""

    API_KEY = ApiKey.DESCRIBE_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 4, 4

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
