"""What an image hashes to, kept up from change to change: the proof that two nodes have the same metadata (C1).

May touch:  record_codec, the parts of image/.   Must not touch: asyncio, clock, files, the log.
Invariants: equal content gives an equal hash, in whatever deltas it came; a change costs what changed, however big the
            image is; every field of every entity counts.
Read next:  metadata.py, whose apply() keeps it up; entities.py, which counts it again; loader.py, which compares it.

An entity is what one record of a snapshot states: a topic, a partition, a broker, one config key. Each part of the image
hashes to the sum, modulo 2^128, of the BLAKE2b digests of its entities. A sum needs neither order nor a tree: one changed
entity is one subtraction and one addition. Digests of different parts never meet (each part has its own personalisation).

Not obvious
- A sum of digests finds accidents: bugs, rot, a record that one node replayed otherwise. It is no seal against somebody who
  may choose entities at will (sums of many chosen digests can be made to collide).
- Before and after are taken from the two images, not from the delta: an apply() that loses something shows.
- What is kept up is right only for entities that changes named. `hash_of` (entities.py) counts all again and finds the others, such as
  an entity that was altered in place.
- Nodes compare only when FORMAT is the same; whoever changes what is hashed raises it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from rpds import HashTrieMap

from barnabas_quorum.image.acls import AclsImage
from barnabas_quorum.image.cluster import ClusterImage
from barnabas_quorum.image.configs import ConfigsImage
from barnabas_quorum.image.features import FeaturesImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.image.quotas import QuotasImage
from barnabas_quorum.image.scram import ScramImage
from barnabas_quorum.image.tokens import TokensImage
from barnabas_quorum.image.topics import TopicImage, TopicsDelta, TopicsImage
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import PartitionRecord, Record, TopicRecord
from barnabas_quorum.records_integrity import ImageHashRecord, PartHash
from barnabas_wire.kafka.ids import Uuid

FORMAT = 1
"""The version of what is hashed and how."""
PARTS = ("features", "cluster", "topics", "configs", "producer_ids", "acls", "quotas", "scram", "tokens")
HASH_BYTES = 16
LISTS_MAX = 50_000
"""Different lists of brokers, or of directories, whose bytes are remembered."""
MODULUS = 1 << (8 * HASH_BYTES)
"""Sums are reduced by it."""
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


class PartChange(NamedTuple):
    """One part of the image, changed: its delta (as metadata.py names it), and the part before and after."""

    delta: Any
    before: Any
    after: Any


def hash_after(before: ImageHash, changes: Mapping[str, PartChange]) -> ImageHash:
    """The hash of an image, from that of the one before it and the parts that changed, by name."""
    sums = list(before.sums)
    for index, part in enumerate(PARTS):
        change = changes.get(part)
        if change is None:
            continue
        if part == "topics":
            sums[index] = (sums[index] + _topics_moved(change.delta, change.after)) % MODULUS
            continue
        old, new = touched(part, change.delta, change.before), touched(part, change.delta, change.after)
        sums[index] = (sums[index] - part_sum(part, old) + part_sum(part, new)) % MODULUS
    return ImageHash(tuple(sums))


def differing_parts(one: Iterable[PartHash], other: Iterable[PartHash]) -> list[str]:
    """Names of the parts whose hashes differ, or that only one of the two has."""
    left, right = dict(one), dict(other)
    return [part for part in sorted({*left, *right}) if left.get(part) != right.get(part)]


def digest_of(part: str, record: Record) -> bytes:
    """What one entity adds to the hash of its part; 16 bytes."""
    if isinstance(record, PartitionRecord):
        data = _partition_bytes(record.topic_id, record.partition_id, record)
    else:
        data = encode(record)
    return hashlib.blake2b(data, digest_size=HASH_BYTES, person=_PERSONS[part]).digest()


# --- sums ---------------------------------------------------------------------------------------------------------------


def part_sum(part: str, records: Iterable[Record]) -> int:
    """What these entities add to the sum of their part, not yet reduced."""
    return sum(int.from_bytes(digest_of(part, record), "big") for record in records)


def touched(part: str, change: Any, found: Any) -> Iterator[Record]:
    """The entities of a part, in one image, that the part's delta names as changed, as records."""
    narrowed: Any
    if part == "features":
        narrowed = FeaturesImage(levels=_those(found.levels, change.changed))
    elif part == "cluster":
        narrowed = ClusterImage(
            brokers=_those(found.brokers, change.changed_brokers),
            controllers=_those(found.controllers, change.changed_controllers),
        )
    elif part == "topics":
        return _touched_topics(change, found)
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


def _touched_topics(delta: TopicsDelta, topics: TopicsImage) -> Iterator[Record]:
    for topic_id in delta.deleted:
        topic = topics.get_by_id(topic_id)
        if topic is not None:
            yield from topic.to_records()
    for topic_id, change in delta.changed.items():
        topic = topics.get_by_id(topic_id)
        if topic is None:
            continue
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index in change.changed:
            partition = topic.partitions.get(index)
            if partition is not None:
                yield partition.to_record(topic_id=topic.id, partition_id=index)


def _topics_moved(delta: TopicsDelta, after: TopicsImage) -> int:
    """How far the sum of the topics moves. The hot path: no record is made, only what changed is looked at."""
    moved = 0
    for gone in delta.deleted.values():
        moved -= topic_sum(gone)
    for topic_id, change in delta.changed.items():
        before = {} if change.before is None else change.before.partitions
        topic = after.get_by_id(topic_id)
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


def topic_sum(topic: TopicImage) -> int:
    """What a topic and its partitions add to the sum of the topics, not yet reduced."""
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
