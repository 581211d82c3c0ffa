"""DescribeConfigs (key 32): configs of topics and brokers, with source and synonyms.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class DescribeConfigsResource:
    """The resources whose configurations we want to describe."""

    resource_type: int = int8()  # The resource type
    resource_name: str = string()  # The resource name
    # The configuration keys to list, or null to list all configuration keys
    configuration_keys: list[str] | None = array(string, nullable="0+")


@dataclass(slots=True)
class DescribeConfigsRequest(Message):
    """DescribeConfigs request.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. Version 1 adds IncludeSynonyms and
    removes IsDefault. Version 2 is the same as version 1. Version 4 enables flexible versions.
    """

    API_KEY = ApiKey.DESCRIBE_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 4, 4

    # The resources whose configurations we want to describe
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")  # True if we should include all synonyms
    include_documentation: bool = boolean("3+")  # True if we should include configuration documentation


@dataclass(slots=True)
class DescribeConfigsSynonym:
    """The synonyms for this configuration key."""

    name: str = string("1+")  # The synonym name
    value: str | None = string("1+", nullable="0+")  # The synonym value
    source: int = int8("1+")  # The synonym source


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    """Each listed configuration."""

    name: str = string()  # The configuration name
    value: str | None = string(nullable="0+")  # The configuration value
    read_only: bool = boolean()  # True if the configuration is read-only
    config_source: int = int8("1+", default=-1)  # The configuration source
    is_sensitive: bool = boolean()  # True if this configuration is sensitive
    # The synonyms for this configuration key
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+")
    # The configuration data type. Type can be one of the following values - BOOLEAN, STRING, INT, SHORT, LONG,
    # DOUBLE, LIST, CLASS, PASSWORD
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="0+")  # The configuration documentation


@dataclass(slots=True)
class DescribeConfigsResult:
    """The results for each resource."""

    error_code: int = int16()  # The error code, or 0 if we were able to successfully describe the configurations
    # The error message, or null if we were able to successfully describe the configurations
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()  # The resource type
    resource_name: str = string()  # The resource name
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)  # Each listed configuration


@dataclass(slots=True)
class DescribeConfigsResponse(Message):
    """DescribeConfigs response.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline. Version 1 adds ConfigSource and the
    synonyms. Starting in version 2, on quota violation, brokers send out responses before throttling. Version 4
    enables flexible versions.
    """

    API_KEY = ApiKey.DESCRIBE_CONFIGS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 4, 4

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)  # The results for each resource
