"""Client quotas: image, delta, and which of them a filter means (KIP-546).

May touch:  records_security.   Must not touch: asyncio, clock, files, controller, who is throttled.
Invariants: an entity without a key has no entry; the parts of an entity are in the order of their types.
Read next:  metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import singledispatchmethod

from barnabas_quorum.records import Record
from barnabas_quorum.records_security import ClientQuotaRecord, QuotaEntity
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.lazy_dataclass import dataclass

NO_QUOTAS: Mapping[str, float] = {}


class QuotaMatch(IntEnum):
    """How a filter component means a name; Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilterPart:
    """An entity must have a part of this type."""

    type: str
    match: QuotaMatch
    name: str | None = None


def sorted_entity(entity: QuotaEntity) -> tuple[tuple[str, bool, str], ...]:
    """A key that sorts entities, None (the default) first."""
    return tuple((part.type, part.name is not None, part.name or "") for part in entity)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasImage:
    """Quota keys of each entity that has any."""

    entities: Mapping[QuotaEntity, Mapping[str, float]]

    def get(self, entity: QuotaEntity) -> Mapping[str, float]:
        """The keys of an entity; empty when it has none."""
        return self.entities.get(entity, NO_QUOTAS)

    def sorted_entities(self) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        """The order for whoever decides or prints."""
        return sorted(self.entities.items(), key=lambda item: sorted_entity(item[0]))

    def find(
        self, parts: Sequence[QuotaFilterPart], *, is_strict: bool
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        """Entities that have every part asked for; strictly: and no part of another type."""
        return [
            (entity, values)
            for entity, values in self.sorted_entities()
            if _is_meant(entity, parts, is_strict=is_strict)
        ]

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image, canonical order."""
        for entity, values in self.sorted_entities():
            for key in sorted(values):
                yield ClientQuotaRecord(entity=entity, key=key, value=values[key])


EMPTY_QUOTAS = QuotasImage(entities={})


def _is_meant(entity: QuotaEntity, parts: Sequence[QuotaFilterPart], *, is_strict: bool) -> bool:
    names = {part.type: part.name for part in entity}
    if is_strict and names.keys() != {part.type for part in parts}:
        return False
    for part in parts:
        if part.type not in names:
            return False
        name = names[part.type]
        if part.match is QuotaMatch.EXACT and name != part.name:
            return False
        if part.match is QuotaMatch.DEFAULT and name is not None:
            return False
    return True


class QuotasDelta:
    """Entities whose quotas changed since an image, with all their keys as they now are; empty = none left."""

    __slots__ = ("changed", "image")

    def __init__(self, image: QuotasImage) -> None:
        self.image = image
        self.changed: dict[QuotaEntity, dict[str, float]] = {}

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record."""
        raise TypeError(f"quotas have no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: ClientQuotaRecord) -> None:
        types = [part.type for part in record.entity]
        if not types or types != sorted(set(types)):
            raise InvariantViolated(f"a quota of the entity {record.entity}, whose types are not in order")
        values = self.changed.get(record.entity)
        if values is None:
            values = self.changed[record.entity] = dict(self.image.get(record.entity))
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value

    @classmethod
    def between(cls, before: QuotasImage, after: QuotasImage) -> QuotasDelta:
        """What leads from one image to another, for whoever loads a snapshot."""
        delta = cls(before)
        for key in before.entities.keys() | after.entities.keys():
            found = after.entities.get(key)
            if before.entities.get(key) != found:
                delta.changed[key] = dict(found or {})
        return delta

    def apply(self) -> QuotasImage:
        """The image after the delta."""
        entities = {**self.image.entities, **self.changed}
        return QuotasImage(entities={entity: values for entity, values in entities.items() if values})
