"""ApiVersions (key 18): which APIs and versions this broker serves, and its features (KIP-35, KIP-511, KIP-584).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, int64, string


@dataclass(slots=True)
class ApiVersionsRequest(Message):
    """ApiVersions request.

    Versions 0 through 2 of ApiVersionsRequest are the same. Version 3 is the first flexible version and adds
    ClientSoftwareName and ClientSoftwareVersion. Version 4 fixes KAFKA-17011, which blocked
    SupportedFeatures.MinVersion in the response from being 0.
    """

    API_KEY = ApiKey.API_VERSIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 3

    client_software_name: str = string("3+")  # The name of the client
    client_software_version: str = string("3+")  # The version of the client


@dataclass(slots=True)
class ApiVersion:
    """The APIs supported by the broker."""

    api_key: int = int16()  # The API index
    min_version: int = int16()  # The minimum supported version, inclusive
    max_version: int = int16()  # The maximum supported version, inclusive


@dataclass(slots=True)
class SupportedFeatureKey:
    """Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0 are omitted."""

    name: str = string("3+")  # The name of the feature
    min_version: int = int16("3+")  # The minimum supported version for the feature
    max_version: int = int16("3+")  # The maximum supported version for the feature


@dataclass(slots=True)
class FinalizedFeatureKey:
    """List of cluster-wide finalized features. The information is valid only if FinalizedFeaturesEpoch >= 0."""

    name: str = string("3+")  # The name of the feature
    max_version_level: int = int16("3+")  # The cluster-wide finalized max version level for the feature
    min_version_level: int = int16("3+")  # The cluster-wide finalized min version level for the feature


@dataclass(slots=True)
class ApiVersionsResponse(Message):
    """ApiVersions response.

    Version 1 adds throttle time to the response. Starting in version 2, on quota violation, brokers send out
    responses before throttling. Version 3 is the first flexible version. Tagged fields are only supported in the
    body but not in the header. The length of the header must not change in order to guarantee the backward
    compatibility. Starting from Apache Kafka 2.4 (KIP-511), ApiKeys field is populated with the supported versions
    of the ApiVersionsRequest when an UNSUPPORTED_VERSION error is returned. Version 4 fixes KAFKA-17011, which
    blocked SupportedFeatures.MinVersion from being 0.
    """

    API_KEY = ApiKey.API_VERSIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 4, 3

    error_code: int = int16()  # The top-level error code
    api_keys: list[ApiVersion] = array(ApiVersion)  # The APIs supported by the broker
    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    # Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0 are omitted
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    # The monotonically increasing epoch for the finalized features information. Valid values are >= 0. A value of -1
    # is special and represents unknown epoch
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    # List of cluster-wide finalized features. The information is valid only if FinalizedFeaturesEpoch >= 0
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    # Set by a KRaft controller if the required configurations for ZK migration are present
    zk_migration_ready: bool = boolean("3+", tag=3)
