"""Image and delta: replay, apply, write out, read back."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, cast

import pytest

from barnabas_quorum.image.configs import ConfigResource
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.raft.messages import CommittedBatch
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, TopicPartition
from tests.support.decided_cluster import uuid

TOPIC = uuid(200)


def replay(image: MetadataImage, *records: Record) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta, delta.apply(Offset(image.offset + len(records)), Epoch(1), 0)


def topic_records(name: str = "t", number: int = 200, partitions: int = 2) -> list[Record]:
    made: list[Record] = [TopicRecord(name=name, topic_id=uuid(number))]
    for index in range(partitions):
        made.append(
            PartitionRecord(
                topic_id=uuid(number),
                partition_id=index,
                replicas=(BrokerId(1), BrokerId(2)),
                directories=(uuid(1), uuid(2)),
                isr=(BrokerId(1), BrokerId(2)),
                leader=BrokerId(1),
            )
        )
    return made


def broker_record(broker_id: int = 1, epoch: int = 5) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=BrokerId(broker_id), incarnation_id=uuid(9), broker_epoch=epoch, endpoints=())


def change(**what: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **what)


def test_applying_a_delta_leaves_the_old_image_as_it_was() -> None:
    _, before = replay(MetadataImage.EMPTY, *topic_records())
    frozen = before.content_hash(), list(before.to_records())
    _, after = replay(
        before,
        change(isr=(BrokerId(1),)),
        ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", key="k", value="v"),
    )
    assert (MetadataImage.content_hash(before), list(before.to_records())) == frozen
    assert after != before
    assert MetadataImage.EMPTY.topics.get("t") is None


def test_every_change_adds_one_to_the_partition_epoch() -> None:
    _, image = replay(MetadataImage.EMPTY, *topic_records(), change(isr=(BrokerId(1),)), change())
    partition = image.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    assert (partition.partition_epoch, partition.leader_epoch) == (2, 0)


@pytest.mark.parametrize("leader", [-1, 1, 2])
def test_a_change_that_names_a_leader_adds_one_to_the_leader_epoch_even_when_it_is_the_same(leader: int) -> None:
    _, image = replay(MetadataImage.EMPTY, *topic_records(), change(leader=BrokerId(leader)))
    partition = image.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (leader, 1, 1)


def test_a_delta_tells_what_changed_and_what_went() -> None:
    _, image = replay(MetadataImage.EMPTY, *topic_records(), *topic_records("u", 300))
    delta, after = replay(image, change(isr=(BrokerId(1),)), RemoveTopicRecord(topic_id=uuid(300)))
    assert delta.topics is not None and delta.cluster is None and delta.producer_ids is None
    assert {topic.name: sorted(topic.changed) for topic in delta.topics.changed.values()} == {"t": [0]}
    assert not delta.topics.changed[TOPIC].is_new
    assert [topic.name for topic in delta.topics.deleted.values()] == ["u"]
    assert after.topics.get("u") is None and after.topics.get_by_id(uuid(300)) is None


def test_a_topic_that_came_and_went_in_one_delta_leaves_no_trace() -> None:
    delta, after = replay(MetadataImage.EMPTY, *topic_records(), RemoveTopicRecord(topic_id=TOPIC))
    assert delta.topics is not None
    assert (delta.topics.changed, delta.topics.deleted) == ({}, {})
    assert after.topics == MetadataImage.EMPTY.topics


def test_a_name_may_be_taken_again_in_the_delta_that_freed_it() -> None:
    _, image = replay(MetadataImage.EMPTY, *topic_records())
    delta, after = replay(image, RemoveTopicRecord(topic_id=TOPIC), *topic_records("t", 300, 1))
    assert delta.topics is not None
    assert list(delta.topics.deleted) == [TOPIC]
    assert delta.topics.changed[uuid(300)].is_new
    topic = after.topics.get("t")
    assert topic is not None and topic.id == uuid(300) and len(topic.partitions) == 1
    assert after.topics.get_by_id(TOPIC) is None


def test_a_deleted_topics_configs_go_with_it_and_no_namesake_inherits_them() -> None:
    config = ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", key="retention.ms", value="1")
    _, image = replay(MetadataImage.EMPTY, *topic_records(), config)
    assert image.configs.topic("t") == {"retention.ms": "1"}
    delta, after = replay(image, RemoveTopicRecord(topic_id=TOPIC), *topic_records("t", 300))
    assert after.configs.topic("t") == {}
    assert delta.configs is not None
    assert delta.configs.changed == {ConfigResource(ConfigResourceType.TOPIC, "t"): {}}


def test_a_config_without_value_removes_the_key_and_an_empty_resource_has_no_entry() -> None:
    def config(value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name="", key="k", value=value)

    _, image = replay(MetadataImage.EMPTY, config("1"))
    assert image.configs.cluster_default == {"k": "1"}
    _, after = replay(image, config(None))
    assert after.configs == MetadataImage.EMPTY.configs


def test_feature_level_zero_removes_the_feature() -> None:
    _, image = replay(MetadataImage.EMPTY, FeatureLevelRecord(name="f", level=2))
    assert image.features.levels == {"f": 2}
    _, after = replay(image, FeatureLevelRecord(name="f", level=0))
    assert after.features == MetadataImage.EMPTY.features


def test_brokers_change_and_go() -> None:
    _, image = replay(
        MetadataImage.EMPTY,
        broker_record(),
        BrokerRegistrationChangeRecord(broker_id=BrokerId(1), broker_epoch=5, is_fenced=False),
    )
    broker = image.cluster.broker(BrokerId(1))
    assert broker is not None and broker.is_active
    _, after = replay(image, UnregisterBrokerRecord(broker_id=BrokerId(1), broker_epoch=5))
    assert after.cluster.broker(BrokerId(1)) is None


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([change()], id="change of a topic that does not exist"),
        pytest.param([*topic_records(partitions=0), change()], id="change of a partition that does not exist"),
        pytest.param([RemoveTopicRecord(topic_id=TOPIC)], id="removal of a topic that does not exist"),
        pytest.param(
            [*topic_records(), RemoveTopicRecord(topic_id=TOPIC), change()], id="change of a topic after its removal"
        ),
        pytest.param([*topic_records(), TopicRecord(name="t", topic_id=uuid(300))], id="a name twice"),
        pytest.param([*topic_records(), TopicRecord(name="u", topic_id=TOPIC)], id="an id twice"),
        pytest.param([*topic_records(), topic_records()[1]], id="a partition twice"),
        pytest.param([broker_record(epoch=5), broker_record(epoch=4)], id="a broker epoch that falls"),
        pytest.param(
            [broker_record(), BrokerRegistrationChangeRecord(broker_id=BrokerId(1), broker_epoch=4)],
            id="a change of an older registration",
        ),
        pytest.param(
            [UnregisterBrokerRecord(broker_id=BrokerId(1), broker_epoch=4)], id="a broker that is not registered"
        ),
        pytest.param(
            [ProducerIdsRecord(broker_id=BrokerId(1), broker_epoch=1, next_producer_id=n) for n in (1000, 1000)],
            id="producer ids given twice",
        ),
    ],
)
def test_a_record_that_does_not_fit_stops_the_node(records: list[Record]) -> None:
    with pytest.raises(InvariantViolated):
        replay(MetadataImage.EMPTY, *records)


def test_a_record_that_nobody_knows_stops_the_node() -> None:
    with pytest.raises(TypeError, match="no replay for str"):
        MetadataDelta(MetadataImage.EMPTY).replay(cast(Record, "?"))


def test_the_hash_does_not_depend_on_the_process() -> None:
    """rpds and dicts of str iterate differently in every process: the hash must not see it."""
    script = (
        "from tests.metadata_quorum.test_image import *\n"
        "image = MetadataImage.EMPTY\n"
        "for n in range(300, 360): _, image = replay(image, *topic_records(f'topic-{n}', n), ConfigRecord(\n"
        "    resource_type=ConfigResourceType.TOPIC, resource_name=f'topic-{n}', key=f'k{n}', value='v'))\n"
        "print(image.content_hash().hex())\n"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


# --- loader -------------------------------------------------------------------------------------------------------------


class Recorder:
    """A publisher that writes down what it is told."""

    def __init__(self, name: str, reported: list[tuple[str, Any]]) -> None:
        self.name = name
        self._told = reported

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._told.append((self.name, (delta.image.offset, image.offset)))


def batch(base_offset: int, *records: Record) -> CommittedBatch:
    return CommittedBatch(Offset(base_offset), Epoch(3), 77, tuple(encode(record) for record in records))


def test_publishers_are_reported_in_their_order_and_once_per_delta() -> None:
    reported: list[tuple[str, Any]] = []
    loader = MetadataLoader([Recorder("first", reported), Recorder("second", reported)])
    loader.on_commit([batch(1, *topic_records()), batch(5, change(isr=(BrokerId(1),)))])
    loader.on_commit([])
    loader.on_commit([batch(6, NoOpRecord())])
    assert reported == [("first", (-1, 5)), ("second", (-1, 5)), ("first", (5, 6)), ("second", (5, 6))]
    assert (loader.image.offset, loader.image.epoch, loader.image.timestamp_ms) == (6, 3, 77)


@pytest.mark.parametrize("base_offset", [0, 3])
def test_a_batch_that_comes_twice_or_late_stops_the_node(base_offset: int) -> None:
    loader = MetadataLoader()
    loader.on_commit([batch(1, *topic_records())])
    with pytest.raises(InvariantViolated, match="after 3"):
        loader.on_commit([batch(base_offset, NoOpRecord())])


def test_an_unknown_record_stops_the_image_right_before_it() -> None:
    reported: list[tuple[str, Any]] = []
    loader = MetadataLoader([Recorder("first", reported)])
    loader.on_commit([batch(1, NoOpRecord()), CommittedBatch(Offset(2), Epoch(3), 0, (b"\xd2\x09\x00",))])
    assert loader.image.offset == 1 and len(reported) == 1
    assert loader.blocked is not None and loader.blocked.record.offset == 2
