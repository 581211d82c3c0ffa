"""The hash of an image: equal content gives an equal hash in whatever deltas it came, and every field counts."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_quorum.image.entities import changed_entities, entities, hash_of
from barnabas_quorum.image.hashing import EMPTY_HASH, PARTS, differing_parts, digest_of
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.snapshot import difference, in_one_go, loaded_delta, record_groups
from barnabas_quorum.records import (
    ConfigRecord,
    ConfigResourceType,
    FaultyReplica,
    FeatureLevelRecord,
    FeatureRange,
    LeaderRecoveryState,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    ReplicaFault,
    ServedDirectory,
    TopicRecord,
)
from barnabas_quorum.records_security import (
    AccessControlEntryRecord,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntityPart,
    ScramMechanism,
    UserScramCredentialRecord,
)
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset
from tests.metadata_quorum.test_record_sequences import RECORD_TYPES, accepted, record
from tests.support.decided_cluster import uuid

ONE_OF_EACH: dict[str, list[Record]] = {
    "features": [FeatureLevelRecord(name="f", level=1)],
    "cluster": [
        RegisterBrokerRecord(
            broker_id=BrokerId(1),
            incarnation_id=uuid(1),
            broker_epoch=5,
            endpoints=(Endpoint("PLAINTEXT", "h", 1),),
            rack="r",
            is_fenced=False,
            directories=(uuid(2),),
            features=(FeatureRange("f", 0, 1),),
        ),
        RegisterControllerRecord(
            controller_id=BrokerId(1), incarnation_id=uuid(1), endpoints=(Endpoint("CONTROLLER", "h", 2),)
        ),
    ],
    "topics": [
        TopicRecord(name="t", topic_id=uuid(200)),
        PartitionRecord(
            topic_id=uuid(200),
            partition_id=0,
            replicas=(BrokerId(1), BrokerId(2)),
            directories=(uuid(1), uuid(2)),
            isr=(BrokerId(1), BrokerId(2)),
            leader=BrokerId(1),
            faults=(FaultyReplica(BrokerId(2), ReplicaFault.NO_ROOM),),
        ),
    ],
    "configs": [ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", key="k", value="v")],
    "producer_ids": [ProducerIdsRecord(broker_id=BrokerId(1), broker_epoch=5, next_producer_id=1000)],
    "acls": [
        AccessControlEntryRecord(
            id=uuid(7),
            resource_type=AclResourceType.TOPIC,
            resource_name="t",
            pattern_type=AclPatternType.LITERAL,
            principal="User:a",
            host="*",
            operation=AclOperation.READ,
            permission=AclPermission.ALLOW,
        )
    ],
    "quotas": [ClientQuotaRecord(entity=(QuotaEntityPart("user", "a"),), key="consumer_byte_rate", value=1.0)],
    "scram": [
        UserScramCredentialRecord(
            name="a",
            mechanism=ScramMechanism.SCRAM_SHA_256,
            salt=b"s",
            stored_key=b"k",
            server_key=b"v",
            iterations=4096,
        )
    ],
    "tokens": [
        DelegationTokenRecord(
            token_id="i",
            owner="User:a",
            requester="User:b",
            renewers=("User:c",),
            issue_timestamp_ms=1,
            max_timestamp_ms=2,
            expiration_timestamp_ms=3,
        )
    ],
}


def image_of(*records: Record, before: MetadataImage = MetadataImage.EMPTY) -> MetadataImage:
    delta = MetadataDelta(before)
    for one in records:
        delta.replay(one)
    return delta.apply(Offset(before.offset + len(records)), Epoch(1), 0)


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, enum.Enum):
        return next(each for each in type(value) if each != value)
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, bytes):
        return type(value)(bytes(value[:-1]) + bytes([value[-1] ^ 1]))
    if value is None:
        return "x"
    return value[:-1] if value else (BrokerId(9),)


SNAPSHOT_FIELDS = [
    pytest.param(part, one, field.name, id=f"{type(one).__name__}.{field.name}")
    for part, records in ONE_OF_EACH.items()
    for one in records
    for field in dataclasses.fields(one)
]


@pytest.mark.parametrize(("part", "one", "name"), SNAPSHOT_FIELDS)
def test_every_single_field_counts(part: str, one: Record, name: str) -> None:
    value = getattr(one, name)
    if type(one).__name__ == "RegisterControllerRecord" and name == "features":
        changed: Any = (FeatureRange("f", 0, 1),)
    elif name == "served":
        changed = (ServedDirectory(uuid(2), 5),)
    else:
        changed = other(value)
    altered = dataclasses.replace(one, **{name: changed})
    assert digest_of(part, altered) != digest_of(part, one)


def test_a_list_is_not_taken_for_its_neighbour() -> None:
    (_, partition) = ONE_OF_EACH["topics"]
    assert isinstance(partition, PartitionRecord)
    one = dataclasses.replace(partition, elr=(BrokerId(1),), last_known_elr=())
    two = dataclasses.replace(partition, elr=(), last_known_elr=(BrokerId(1),))
    joined = dataclasses.replace(partition, elr=(BrokerId(12),))
    apart = dataclasses.replace(partition, elr=(BrokerId(1), BrokerId(2)))
    assert len({digest_of("topics", each) for each in (one, two, joined, apart)}) == 4


def test_every_part_counts_and_only_its_own() -> None:
    everything = [one for records in ONE_OF_EACH.values() for one in records]
    assert list(ONE_OF_EACH) == list(PARTS)
    whole = image_of(*everything)
    for part in PARTS:
        without = [one for one in everything if one not in ONE_OF_EACH[part]]
        assert differing_parts(image_of(*without).hash.parts(), whole.hash.parts()) == [part]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(RECORD_TYPES).flatmap(lambda kind: record(kind, is_narrow=True)), max_size=40),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_equal_records_in_any_deltas_give_an_equal_hash(records: list[Record], cuts: list[bool]) -> None:
    taken, image = accepted(records)
    cut_image, delta = MetadataImage.EMPTY, MetadataDelta(MetadataImage.EMPTY)
    for one, is_cut in zip(taken, cuts, strict=False):
        delta.replay(one)
        if is_cut:
            cut_image = delta.apply(Offset(0), Epoch(1), 0)
            delta = MetadataDelta(cut_image)
    cut_image = delta.apply(image.offset, image.epoch, image.timestamp_ms)
    assert cut_image.hash == image.hash == hash_of(image)
    assert cut_image.content_hash() == image.content_hash()

    loaded = in_one_go(loaded_delta(record_groups(image))).apply(image.offset, image.epoch, image.timestamp_ms)
    assert loaded.hash == image.hash
    to_it = in_one_go(difference(MetadataImage.EMPTY, image)).apply(image.offset, image.epoch, image.timestamp_ms)
    assert to_it.hash == image.hash
    gone = in_one_go(difference(image, MetadataImage.EMPTY)).apply(Offset(-1), Epoch(0), -1)
    assert gone.hash == EMPTY_HASH


def test_an_entity_altered_behind_the_images_back_is_found_by_counting_anew() -> None:
    image = image_of(*(one for records in ONE_OF_EACH.values() for one in records))
    topic = image.topics.get("t")
    assert topic is not None and isinstance(topic.partitions, dict)
    topic.partitions[0] = dataclasses.replace(topic.partitions[0], leader=BrokerId(2))
    assert differing_parts(hash_of(image).parts(), image.hash.parts()) == ["topics"]


def test_what_changed_is_named_with_both_values() -> None:
    before = image_of(*(one for records in ONE_OF_EACH.values() for one in records))
    delta = MetadataDelta(before)
    delta.replay(
        PartitionChangeRecord(
            topic_id=uuid(200), partition_id=0, leader=BrokerId(2), leader_recovery_state=LeaderRecoveryState.RECOVERING
        )
    )
    delta.replay(ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", key="k", value=None))
    after = delta.apply(Offset(50), Epoch(1), 0)
    found = {
        name.name: (part, old is not None, new is not None)
        for part, old, new in changed_entities(delta, after)
        if (name := old or new) is not None
    }
    assert found == {"partition t-0": ("topics", True, True), "config topic t k": ("configs", True, False)}


def test_a_topic_made_anew_under_its_name_is_another_topic() -> None:
    before = image_of(*ONE_OF_EACH["topics"])
    delta = MetadataDelta(before)
    delta.replay(RemoveTopicRecord(topic_id=uuid(200)))
    delta.replay(TopicRecord(name="t", topic_id=uuid(201)))
    after = delta.apply(Offset(50), Epoch(1), 0)
    changes = [(old is not None, new is not None) for _, old, new in changed_entities(delta, after)]
    assert sorted(changes) == [(False, True), (True, False), (True, False)]
    assert after.hash == hash_of(after) != before.hash


@pytest.mark.parametrize("part", PARTS)
def test_the_entities_of_a_part_add_up_to_its_hash(part: str) -> None:
    image = image_of(*(one for records in ONE_OF_EACH.values() for one in records))
    total = sum(int.from_bytes(digest_of(part, entity.record), "big") for entity in entities(image, part)) % 2**128
    assert total == image.hash.sums[PARTS.index(part)]
    names = [entity.name for entity in entities(image, part)]
    assert len(set(names)) == len(names) > 0
