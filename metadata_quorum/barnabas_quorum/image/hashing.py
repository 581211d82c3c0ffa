"""What an image hashes to, kept up from change to change: the proof that two nodes have the same metadata (C1).

May touch:  record_codec, the parts of image/.   Must not touch: asyncio, clock, files, the log.
Invariants: equal content gives an equal hash, in whatever deltas it came; a change costs what changed, however big the
            image is; every field of every entity counts.
Read next:  metadata.py, whose apply() keeps it up; loader.py, which compares it.

An entity is what one record of a snapshot states: a topic, a partition, a broker, one config key. Each part of the image
hashes to the sum, modulo 2^128, of the BLAKE2b digests of its entities. A sum needs neither order nor a tree: one changed
entity is one subtraction and one addition. Digests of different parts never meet (each part has its own personalisation).

Not obvious
- A sum of digests finds accidents: bugs, rot, a record that one node replayed otherwise. It is no seal against somebody who
  may choose entities at will (sums of many chosen digests can be made to collide).
- Before and after are taken from the two images, not from the delta: an apply() that loses something shows.
- What is kept up is right only for entities that changes named. `hash_of` counts all anew and finds the others, such as
  an entity that was altered in place.
- Nodes compare only when FORMAT is the same; whoever changes what is hashed raises it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rpds import HashTrieMap

from barnabas_quorum.image.acls import AclsImage
from barnabas_quorum.image.cluster import ClusterImage
from barnabas_quorum.image.configs import ConfigsImage
from barnabas_quorum.image.features import FeaturesImage
from barnabas_quorum.image.quotas import QuotasImage
from barnabas_quorum.image.scram import ScramImage
from barnabas_quorum.image.tokens import TokensImage
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import PartitionRecord, Record, TopicRecord
from barnabas_quorum.records_integrity import ImageHashRecord, PartHash
from barnabas_wire.kafka.ids import Uuid

if TYPE_CHECKING:
    from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
    from barnabas_quorum.image.topics import PartitionRegistration, TopicImage

FORMAT = 1
"""Of what is hashed and how."""
PARTS = ("features", "cluster", "topics", "configs", "producer_ids", "acls", "quotas", "scram", "tokens")
HASH_BYTES = 16
LISTS_MAX = 50_000
"""Different lists of brokers, or of directories, whose bytes are remembered."""
_MODULUS = 1 << (8 * HASH_BYTES)
_PERSONS = {part: part.encode() for part in PARTS}


class ImageHash(NamedTuple):
    """The sums of the parts, in the order of PARTS."""

    sums: tuple[int, ...] = (0,) * len(PARTS)

    @property
    def digest(self) -> bytes:
        """All of it in 16 bytes."""
        found = hashlib.blake2b(b"%d" % FORMAT, digest_size=HASH_BYTES)
        for value in self.sums:
            found.update(value.to_bytes(HASH_BYTES, "big"))
        return found.digest()

    def parts(self) -> tuple[PartHash, ...]:
        """By part, as they travel."""
        return tuple(
            PartHash(part, value.to_bytes(HASH_BYTES, "big")) for part, value in zip(PARTS, self.sums, strict=True)
        )

    def to_record(self) -> ImageHashRecord:
        """What the active controller writes for all to compare with."""
        return ImageHashRecord(format=FORMAT, parts=self.parts())


EMPTY_HASH = ImageHash()


class Entity(NamedTuple):
    """One thing of the image, with its name for people and the record that states it."""

    name: str
    record: Record


def hash_after(before: ImageHash, delta: MetadataDelta, after: MetadataImage) -> ImageHash:
    """The hash of `after`, from that of `delta.image` and what the delta names as changed."""
    sums = list(before.sums)
    for index, part in enumerate(PARTS):
        if getattr(delta, part) is None:
            continue
        if part == "topics":
            sums[index] = (sums[index] + _topics_moved(delta, after)) % _MODULUS
            continue
        old, new = _touched(part, delta, delta.image), _touched(part, delta, after)
        sums[index] = (sums[index] - _sum(part, old) + _sum(part, new)) % _MODULUS
    return ImageHash(tuple(sums))


def hash_of(image: MetadataImage) -> ImageHash:
    """The hash from every entity anew: for checks of what was kept up. Takes seconds for 100 000 partitions."""
    sums = [0] * len(PARTS)
    for _ in recompute(image, sums):
        pass
    return ImageHash(tuple(sums))


def recompute(image: MetadataImage, sums: list[int]) -> Iterator[None]:
    """Add every entity of the image to `sums` (zeros, one per part), a topic or a part at a time, to rest between."""
    for index, part in enumerate(PARTS):
        if part == "topics":
            for topic in image.topics.topics.values():
                sums[index] = (sums[index] + _topic_sum(topic)) % _MODULUS
                yield
        else:
            sums[index] = _sum(part, getattr(image, part).to_records()) % _MODULUS
            yield


def differing_parts(one: Iterable[PartHash], other: Iterable[PartHash]) -> list[str]:
    """Names of the parts whose hashes differ, or that only one of the two has."""
    left, right = dict(one), dict(other)
    return [part for part in sorted({*left, *right}) if left.get(part) != right.get(part)]


# --- entities, for whoever looks for the one that differs ---------------------------------------------------------------


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
        if getattr(delta, part) is None:
            continue
        old = {entity_name(record, names): record for record in _touched(part, delta, delta.image)}
        new = {entity_name(record, names): record for record in _touched(part, delta, after)}
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


def digest_of(part: str, record: Record) -> bytes:
    """What one entity adds to the hash of its part; 16 bytes."""
    if isinstance(record, PartitionRecord):
        data = _partition_bytes(record.topic_id, record.partition_id, record)
    else:
        data = encode(record)
    return hashlib.blake2b(data, digest_size=HASH_BYTES, person=_PERSONS[part]).digest()


# --- sums ---------------------------------------------------------------------------------------------------------------


def _sum(part: str, records: Iterable[Record]) -> int:
    return sum(int.from_bytes(digest_of(part, record), "big") for record in records)


def _touched(part: str, delta: MetadataDelta, image: MetadataImage) -> Iterator[Record]:
    """The entities of one image that a delta names as changed, as records."""
    change: Any = getattr(delta, part)
    found: Any = getattr(image, part)
    narrowed: Any
    if part == "features":
        narrowed = FeaturesImage(levels=_those(found.levels, change.changed))
    elif part == "cluster":
        narrowed = ClusterImage(
            brokers=_those(found.brokers, change.changed_brokers),
            controllers=_those(found.controllers, change.changed_controllers),
        )
    elif part == "topics":
        return _touched_topics(delta, image)
    elif part == "configs":
        narrowed = ConfigsImage(resources=HashTrieMap(_those(found.resources, change.changed)))
    elif part == "acls":
        narrowed = AclsImage(entries=_those(found.entries, change.changed))
    elif part == "quotas":
        narrowed = QuotasImage(entities=_those(found.entities, change.changed))
    elif part == "scram":
        narrowed = ScramImage(credentials=_those(found.credentials, change.changed))
    elif part == "tokens":
        narrowed = TokensImage(tokens=_those(found.tokens, change.changed))
    else:
        narrowed = found
    records: Iterator[Record] = narrowed.to_records()
    return records


def _those(mapping: Any, keys: Iterable[Any]) -> dict[Any, Any]:
    return {key: mapping[key] for key in keys if key in mapping}


def _touched_topics(delta: MetadataDelta, image: MetadataImage) -> Iterator[Record]:
    assert delta.topics is not None
    for topic_id in delta.topics.deleted:
        topic = image.topics.get_by_id(topic_id)
        if topic is not None:
            yield from topic.to_records()
    for topic_id, change in delta.topics.changed.items():
        topic = image.topics.get_by_id(topic_id)
        if topic is None:
            continue
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index in change.changed:
            partition = topic.partitions.get(index)
            if partition is not None:
                yield partition.to_record(topic_id=topic.id, partition_id=index)


def _topics_moved(delta: MetadataDelta, after: MetadataImage) -> int:
    """How far the sum of the topics moves. The hot path: no record is made, only what changed is looked at."""
    assert delta.topics is not None
    moved = 0
    for gone in delta.topics.deleted.values():
        moved -= _topic_sum(gone)
    for topic_id, change in delta.topics.changed.items():
        before = {} if change.before is None else change.before.partitions
        topic = after.topics.get_by_id(topic_id)
        if topic is None:
            continue
        if change.is_new:
            moved += _topic_digest(topic)
        now = topic.partitions
        for index in change.changed:
            old, new = before.get(index), now.get(index)
            if old is not None:
                moved -= _partition_digest(topic_id, index, old)
            if new is not None:
                moved += _partition_digest(topic_id, index, new)
    return moved


def _topic_sum(topic: TopicImage) -> int:
    found = _topic_digest(topic)
    for index, partition in topic.partitions.items():
        found += _partition_digest(topic.id, index, partition)
    return found


def _topic_digest(topic: Any) -> int:
    return int.from_bytes(digest_of("topics", TopicRecord(name=topic.name, topic_id=topic.id)), "big")


def _partition_digest(topic_id: Uuid, index: int, partition: PartitionRegistration) -> int:
    data = _partition_bytes(topic_id, index, partition)
    return int.from_bytes(hashlib.blake2b(data, digest_size=HASH_BYTES, person=b"topics").digest(), "big")


def _partition_bytes(topic_id: Uuid, index: int, state: PartitionRegistration | PartitionRecord) -> bytes:
    """Every field of a partition, each set apart. Ten times as fast as the protobuf form, which takes 25 µs. Faults add to it
    only where there are any: without them nodes of before metadata.version 4 must come to the same hash."""
    faults = b"" if not state.faults else b" (%b)" % b",".join(b"%d:%d" % pair for pair in state.faults)
    return b"%b%d %b%b%b%b%b%b%b %d %d %d %d%b" % (
        topic_id,
        index,
        _list_bytes(state.replicas),
        _list_bytes(state.isr),
        _list_bytes(state.removing_replicas),
        _list_bytes(state.adding_replicas),
        _list_bytes(state.elr),
        _list_bytes(state.last_known_elr),
        _list_bytes(state.directories),
        state.leader,
        state.leader_recovery_state,
        state.leader_epoch,
        state.partition_epoch,
        faults,
    )


@lru_cache(maxsize=LISTS_MAX)
def _list_bytes(values: tuple[Any, ...]) -> bytes:
    """A list of brokers or of directories: many partitions have the same."""
    return b"(%b)" % b",".join(value.hex().encode() if isinstance(value, bytes) else b"%d" % value for value in values)
