"""UpdateFeatures (key 57): raise and lower finalized feature levels (KIP-584)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class FeatureUpdateKey:
    """A feature and the level it shall have. v0 has a flag for lowering it, v1 a kind of change instead."""

    feature: str = string()
    max_version_level: int = int16()  # 0 or less removes the feature
    allow_downgrade: bool = boolean("0-0")
    upgrade_type: int = int8("1+", default=1)  # 1: raise, 2: lower if safe, 3: lower even if unsafe


@dataclass(slots=True)
class UpdateFeaturesRequest(Message):
    """Ask for other feature levels."""

    API_KEY = ApiKey.UPDATE_FEATURES
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")  # a dry run: no level is changed


@dataclass(slots=True)
class UpdatableFeatureResult:
    """Whether one feature took its level."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class UpdateFeaturesResponse(Message):
    """How the update went. v2 answers for all features together, with a single error (KIP-1022)."""

    API_KEY = ApiKey.UPDATE_FEATURES
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")
