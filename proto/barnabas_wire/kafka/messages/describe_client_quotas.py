"""DescribeClientQuotas (key 48): the quotas of the entities that a filter means (KIP-546).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, float64, int8, int16, int32, string


@dataclass(slots=True)
class ComponentData:
    """Filter component to apply to quota entities."""

    entity_type: str = string()  # The entity type that the filter component applies to
    match_type: int = int8()  # How to match the entity: 0 = exact name, 1 = default name, 2 = any specified name
    # The string to match against, or null if unused for the match type
    match: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class DescribeClientQuotasRequest(Message):
    """DescribeClientQuotas request.

    Version 1 is the first flexible version.
    """

    API_KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    components: list[ComponentData] = array(ComponentData)  # Filter components to apply to quota entities
    # Whether the match is strict, i.e. should exclude entities with unspecified entity types
    strict: bool = boolean()


@dataclass(slots=True)
class EntityData:
    """One side of a quota entity."""

    entity_type: str = string()  # The entity type
    entity_name: str | None = string(nullable="0+", default=None)  # The name of the entity, or null if the default


@dataclass(slots=True)
class ValueData:
    """A quota value of the entity."""

    key: str = string()  # The quota configuration key
    value: float = float64()  # The quota configuration value


@dataclass(slots=True)
class EntryData:
    """A result entry."""

    entity: list[EntityData] = array(EntityData)  # The quota entity description
    values: list[ValueData] = array(ValueData)  # The quota values for the entity


@dataclass(slots=True)
class DescribeClientQuotasResponse(Message):
    """DescribeClientQuotas response.

    Version 1 is the first flexible version.
    """

    API_KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The error code, or 0 if there was no error
    # The error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    entries: list[EntryData] | None = array(EntryData, nullable="0+")  # A result entry; null with an error
