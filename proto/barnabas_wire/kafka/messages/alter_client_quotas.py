"""AlterClientQuotas (key 49): set and remove quotas (KIP-546).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, float64, int16, int32, string


@dataclass(slots=True)
class EntityData:
    """One side of a quota entity."""

    entity_type: str = string()  # The entity type
    entity_name: str | None = string(nullable="0+", default=None)  # The name of the entity, or null if the default


@dataclass(slots=True)
class OpData:
    """An individual quota configuration entry to alter."""

    key: str = string()  # The quota configuration key
    value: float = float64()  # The value to set, otherwise ignored if the value is to be removed
    remove: bool = boolean()  # Whether the quota configuration value should be removed, otherwise set


@dataclass(slots=True)
class EntryData:
    """The quota configuration entries to alter of one entity."""

    entity: list[EntityData] = array(EntityData)  # The quota entity to alter
    ops: list[OpData] = array(OpData)  # An individual quota configuration entry to alter


@dataclass(slots=True)
class AlterClientQuotasRequest(Message):
    """AlterClientQuotas request.

    Version 1 is the first flexible version.
    """

    API_KEY = ApiKey.ALTER_CLIENT_QUOTAS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    entries: list[EntryData] = array(EntryData)  # The quota configuration entries to alter
    validate_only: bool = boolean()  # Whether the alteration should be validated, but not performed


@dataclass(slots=True)
class AlteredEntryData:
    """The outcome for one entity."""

    error_code: int = int16()  # The error code, or 0 if there was no error
    # The error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    entity: list[EntityData] = array(EntityData)  # The quota entity altered


@dataclass(slots=True)
class AlterClientQuotasResponse(Message):
    """AlterClientQuotas response.

    Version 1 is the first flexible version.
    """

    API_KEY = ApiKey.ALTER_CLIENT_QUOTAS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
    entries: list[AlteredEntryData] = array(AlteredEntryData)  # The quota configuration entries altered
