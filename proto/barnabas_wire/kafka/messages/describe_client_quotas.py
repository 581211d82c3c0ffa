"""DescribeClientQuotas (key 48): the quotas of the entities that a filter means (KIP-546)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, float64, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ComponentData:
    """What the filter wants of one entity type."""

    entity_type: str = string()
    match_type: int = int8()  # 0: the name in match, 1: the default, 2: any name given
    match: str | None = string(nullable="0+", default=None)  # null where match_type needs no name


@dataclass(slots=True)
class DescribeClientQuotasRequest(Message):
    """Ask for the quotas of all entities that fit a filter."""

    API_KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()  # leave out entities that also have a type no component names


@dataclass(slots=True)
class EntityData:
    """A type and a name, which alone or with others make up an entity."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+", default=None)  # null: the default


@dataclass(slots=True)
class ValueData:
    """One quota that is set."""

    key: str = string()
    value: float = float64()


@dataclass(slots=True)
class EntryData:
    """An entity that fits, with its quotas."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@dataclass(slots=True)
class DescribeClientQuotasResponse(Message):
    """The entities that fit, or an error for the whole filter."""

    API_KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 1

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entries: list[EntryData] | None = array(EntryData, nullable="0+")  # null with an error
