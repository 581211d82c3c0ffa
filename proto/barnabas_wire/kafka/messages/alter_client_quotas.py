"""AlterClientQuotas (key 49): set and remove quotas (KIP-546)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, float64, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class EntityData:
    """One side of a quota entity."""

    entity_type: str = string()  # user, client-id or ip
    entity_name: str | None = string(nullable="0+", default=None)  # null: the type's default


@dataclass(slots=True)
class OpData:
    """A quota to set or take away."""

    key: str = string()
    value: float = float64()  # unread where remove is set
    remove: bool = boolean()


@dataclass(slots=True)
class EntryData:
    """What changes for one entity."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@dataclass(slots=True)
class AlterClientQuotasRequest(Message):
    """Change the quotas of users, clients and addresses."""

    API_KEY = ApiKey.ALTER_CLIENT_QUOTAS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()  # check, change nothing


@dataclass(slots=True)
class AlteredEntryData:
    """The outcome for one entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entity: list[EntityData] = array(EntityData)


@dataclass(slots=True)
class AlterClientQuotasResponse(Message):
    """The outcomes, one for each entity of the request."""

    API_KEY = ApiKey.ALTER_CLIENT_QUOTAS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    throttle_time_ms: int = int32()
    entries: list[AlteredEntryData] = array(AlteredEntryData)
