"""ApiVersions (key 18): which APIs and versions this broker serves, and its features (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ApiVersionsRequest(Message):
    """Ask what the other side can do. v4 says that a feature with minimum 0 is understood (KAFKA-17011); v5 whom the client means to
    ask (KIP-1242)."""

    API_KEY = ApiKey.API_VERSIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")
    cluster_id: str | None = string("5+", nullable="5+", default=None)  # null: whoever answers is right
    node_id: int = int32("5+", default=-1)


@dataclass(slots=True)
class ApiVersion:
    """The range of versions served for one API, both ends included."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(slots=True)
class SupportedFeatureKey:
    """The levels of one feature that this broker could run at; minimum 0 is shown to v4 only."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@dataclass(slots=True)
class FinalizedFeatureKey:
    """The levels of one feature that hold for the whole cluster."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@dataclass(slots=True)
class ApiVersionsResponse(Message):
    """APIs and features. Its header stays v0, without tagged fields, for clients that asked in too high a version.

    Those get UNSUPPORTED_VERSION, and in api_keys the range of ApiVersions itself to try again with (KIP-511).
    """

    API_KEY = ApiKey.API_VERSIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 5, 3

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)  # only grows; -1: not known, ignore the list below
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)  # from controllers that are configured to take over from ZooKeeper
