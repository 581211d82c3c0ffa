"""The entities of an image, one by one: to count the hash again, and to find the one that differs.

May touch:  metadata.py, hashing.py.   Must not touch: asyncio, clock, files, the log.
Invariants: an entity has one name, the same on all nodes; nothing here is on the way of a record.
Read next:  hashing.py; driver/image_history.py, which looks for the record that changed an entity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from barnabas_quorum.image.hashing import MODULUS, PARTS, ImageHash, part_sum, topic_sum, touched
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import PartitionRecord, Record, TopicRecord
from barnabas_wire.kafka.ids import Uuid


class Entity(NamedTuple):
    """One thing of the image, with its name for people and the record that states it."""

    name: str
    record: Record


def hash_of(image: MetadataImage) -> ImageHash:
    """The hash from every entity again: for checks of what was kept up. Takes seconds for 100 000 partitions."""
    sums = [0] * len(PARTS)
    for _ in recompute(image, sums):
        pass
    return ImageHash(tuple(sums))


def recompute(image: MetadataImage, sums: list[int]) -> Iterator[None]:
    """Add every entity of the image to `sums` (zeros, one per part), a topic or a part at a time, to rest between."""
    for index, part in enumerate(PARTS):
        if part == "topics":
            for topic in image.topics.topics.values():
                sums[index] = (sums[index] + topic_sum(topic)) % MODULUS
                yield
        else:
            sums[index] = part_sum(part, getattr(image, part).to_records()) % MODULUS
            yield


def entities(image: MetadataImage, part: str) -> Iterator[Entity]:
    """Every entity of one part. Raises KeyError for a part that is none."""
    if part not in PARTS:
        raise KeyError(part)
    names = topic_names(image)
    for record in getattr(image, part).to_records():
        yield Entity(entity_name(record, names), record)


def changed_entities(delta: MetadataDelta, after: MetadataImage) -> Iterator[tuple[str, Entity | None, Entity | None]]:
    """(part, before, after) of every entity that differs between `delta.image` and `after`; None = is not there."""
    names = {**topic_names(delta.image, delta), **topic_names(after, delta)}
    for part in PARTS:
        change = getattr(delta, part)
        if change is None:
            continue
        old = {entity_name(record, names): record for record in touched(part, change, getattr(delta.image, part))}
        new = {entity_name(record, names): record for record in touched(part, change, getattr(after, part))}
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                yield (
                    part,
                    Entity(name, old[name]) if name in old else None,
                    Entity(name, new[name]) if name in new else None,
                )


def topic_names(image: MetadataImage, delta: MetadataDelta | None = None) -> Mapping[Uuid, str]:
    """Names by topic id: of all topics, or of those that a delta touches."""
    if delta is None:
        return {topic.id: topic.name for topic in image.topics.topics.values()}
    if delta.topics is None:
        return {}
    found = [image.topics.get_by_id(topic_id) for topic_id in {*delta.topics.changed, *delta.topics.deleted}]
    return {topic.id: topic.name for topic in found if topic is not None}


def entity_name(record: Any, names: Mapping[Uuid, str]) -> str:
    """What a record of a snapshot is about, for people."""
    if isinstance(record, PartitionRecord):
        return f"partition {names.get(record.topic_id, record.topic_id)}-{record.partition_id}"
    if isinstance(record, TopicRecord):
        return f"topic {record.name} ({record.topic_id})"
    found: str = _NAMES[type(record).__name__](record)
    return found


_NAMES: dict[str, Any] = {
    "FeatureLevelRecord": lambda r: f"feature {r.name}",
    "RegisterBrokerRecord": lambda r: f"broker {r.broker_id}",
    "RegisterControllerRecord": lambda r: f"controller {r.controller_id}",
    "ConfigRecord": lambda r: f"config {r.resource_type.name.lower()} {r.resource_name or '(all brokers)'} {r.key}",
    "ProducerIdsRecord": lambda r: "producer ids",
    "AccessControlEntryRecord": lambda r: f"acl {r.id}",
    "ClientQuotaRecord": lambda r: (
        "quota " + " ".join(f"{p.type}={'(default)' if p.name is None else p.name}" for p in r.entity) + f" {r.key}"
    ),
    "UserScramCredentialRecord": lambda r: f"user {r.name} {r.mechanism.mechanism_name}",
    "DelegationTokenRecord": lambda r: f"token {r.token_id}",
}
