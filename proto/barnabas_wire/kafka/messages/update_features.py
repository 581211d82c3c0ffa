"""UpdateFeatures (key 57): raise and lower finalized feature levels (KIP-584).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class FeatureUpdateKey:
    """An update to a finalized feature."""

    feature: str = string()  # The name of the finalized feature to be updated
    max_version_level: int = int16()  # The new maximum version level; a value below 1 is for deletion
    allow_downgrade: bool = boolean("0-0")  # DEPRECATED in version 1: whether the level may be downgraded
    upgrade_type: int = int8("1+", default=1)  # 1 = upgrade, 2 = safe downgrade, 3 = unsafe downgrade


@dataclass(slots=True)
class UpdateFeaturesRequest(Message):
    """UpdateFeatures request.

    Version 1 replaces AllowDowngrade with UpgradeType and adds ValidateOnly; version 2 has no results per feature (KIP-1022).
    """

    API_KEY = ApiKey.UPDATE_FEATURES
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    timeout_ms: int = int32(default=60000)  # How long to wait in ms before timing out the request
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)  # The list of updates to finalized features
    # True if we should validate the request, but not perform the upgrade or downgrade
    validate_only: bool = boolean("1+")


@dataclass(slots=True)
class UpdatableFeatureResult:
    """The result for one feature update."""

    feature: str = string()  # The name of the finalized feature
    error_code: int = int16()  # The error code, or 0 if there was no error
    # The error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class UpdateFeaturesResponse(Message):
    """UpdateFeatures response.

    Version 1 replaces AllowDowngrade with UpgradeType and adds ValidateOnly; version 2 has no results per feature (KIP-1022).
    """

    API_KEY = ApiKey.UPDATE_FEATURES
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The top-level error code, or 0 if there was no top-level error
    # The top-level error message, or null if there was no top-level error
    error_message: str | None = string(nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")  # Results for each feature update
