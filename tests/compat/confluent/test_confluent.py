"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupState,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.compat.samples import COMPRESSIONS, DEADLINE_S, FIRST_TIMESTAMP_MS, Sample, samples, until

pytestmark = [pytest.mark.cluster]

PARTITIONS = 4
RECORDS = 1_000


def produce(bootstrap: str, topic: str, records: list[Sample], **settings: Any) -> list[Message]:
    """Send all, wait for every delivery report, and return them in the order they came."""
    reports: list[Message] = []

    def on_delivery(error: Any, message: Message) -> None:
        assert error is None, error
        reports.append(message)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 20} | settings
    )
    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=on_delivery,
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert len(reports) == len(records)
    return reports


def member(bootstrap: str, group: str, **settings: Any) -> Consumer:
    """A consumer of the group that starts at the beginning and commits when told to."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
        }
        | settings
    )


def poll_into(consumer: Consumer, into: list[Message]) -> None:
    """Take what is there."""
    for message in consumer.consume(500, timeout=0.1):
        assert message.error() is None, message.error()
        into.append(message)


def read_all(bootstrap: str, topic: str, count: int) -> list[Message]:
    """The first `count` records of partition 0, without a group's help."""
    consumer = member(bootstrap, "unused")
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read: list[Message] = []
    until(lambda: len(read) >= count, lambda: poll_into(consumer, read))
    consumer.close()
    return read


def as_sample(message: Message) -> Sample:
    """What was received, to be compared with what was sent."""
    return Sample(message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1])


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_come_back_as_they_were_sent(bootstrap: str, make_topic: Callable[..., str], compression: str) -> None:
    topic = make_topic()
    sent = samples()
    reports = produce(bootstrap, topic, sent, **{"compression.type": compression})
    assert [report.offset() for report in reports] == list(range(len(sent)))
    read = read_all(bootstrap, topic, len(sent))
    assert [as_sample(message) for message in read] == sent
    assert [message.offset() for message in read] == list(range(len(sent)))


def test_two_members_share_a_group_hand_over_and_resume_where_it_committed(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    numbered = [Sample(b"%d" % n, b"value %d" % n, (), FIRST_TIMESTAMP_MS) for n in range(RECORDS)]
    one, two = member(bootstrap, group), member(bootstrap, group)
    read: dict[Consumer, list[Message]] = {one: [], two: []}
    for consumer in read:
        consumer.subscribe([topic])

    def poll_both() -> None:
        for consumer, into in read.items():
            poll_into(consumer, into)

    until(lambda: all(len(consumer.assignment()) == PARTITIONS // 2 for consumer in read), poll_both)
    owned = Counter(partition.partition for consumer in read for partition in consumer.assignment())
    assert owned == dict.fromkeys(range(PARTITIONS), 1)
    produce(bootstrap, topic, numbered)  # only now: what a member reads before the other joins, both would read
    until(lambda: len(read[one]) + len(read[two]) >= RECORDS, poll_both)
    everything = [message.value() for messages in read.values() for message in messages]
    assert Counter(everything) == Counter(record.value for record in numbered)
    for consumer, messages in read.items():
        if messages:
            committed = consumer.commit(asynchronous=False)
            assert all(partition.error is None for partition in committed or ())

    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    assert described.state == ConsumerGroupState.STABLE
    assert len(described.members) == 2
    assert group in {g.group_id for g in admin.list_consumer_groups().result(DEADLINE_S).valid}

    one.close()
    late: list[Message] = []
    until(lambda: len(two.assignment()) == PARTITIONS, lambda: poll_into(two, late))
    assert late == []
    more = [Sample(b"%d" % n, b"more %d" % n, (), FIRST_TIMESTAMP_MS) for n in range(100)]
    produce(bootstrap, topic, more)
    until(lambda: len(late) >= len(more), lambda: poll_into(two, late))
    assert Counter(message.value() for message in late) == Counter(record.value for record in more)
    two.commit(asynchronous=False)
    two.close()

    last = [Sample(b"last", b"last", (), FIRST_TIMESTAMP_MS)]
    produce(bootstrap, topic, last)
    three = member(bootstrap, group)
    three.subscribe([topic])
    after: list[Message] = []
    until(lambda: len(after) >= 1, lambda: poll_into(three, after))
    assert [message.value() for message in after] == [b"last"]
    offsets = three.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], timeout=DEADLINE_S)
    assert sum(partition.offset for partition in offsets) == RECORDS + 100
    three.close()
    assert admin.delete_consumer_groups([group])[group].result(DEADLINE_S) is None
    fresh = member(bootstrap, group)
    gone = fresh.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
    assert gone[0].offset < 0
    fresh.close()


def test_a_static_member_restarts_without_disturbing_the_other(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    rebalances: list[str] = []
    stays = member(bootstrap, group, **{"group.instance.id": "stays", "session.timeout.ms": 30_000})
    goes = member(bootstrap, group, **{"group.instance.id": "goes", "session.timeout.ms": 30_000})
    stays.subscribe([topic], on_revoke=lambda consumer, partitions: rebalances.append("revoked"))
    goes.subscribe([topic])
    read: list[Message] = []

    def poll_both() -> None:
        poll_into(stays, read)
        poll_into(goes, read)

    until(lambda: len(stays.assignment()) == len(goes.assignment()) == PARTITIONS // 2, poll_both)
    before = sorted(partition.partition for partition in goes.assignment())
    rebalances.clear()
    goes.close()
    back = member(bootstrap, group, **{"group.instance.id": "goes", "session.timeout.ms": 30_000})
    back.subscribe([topic])

    def poll_after() -> None:
        poll_into(stays, read)
        poll_into(back, read)

    until(lambda: len(back.assignment()) == PARTITIONS // 2, poll_after)
    assert sorted(partition.partition for partition in back.assignment()) == before
    assert rebalances == []
    for consumer in (stays, back):
        consumer.close()


def test_offsets_are_found_by_time(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    sent = samples()
    produce(bootstrap, topic, sent)
    consumer = member(bootstrap, "unused")

    def offset_at(timestamp_ms: int) -> int:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=DEADLINE_S)
        assert found.error is None
        return found.offset

    assert offset_at(0) == 0
    for index in (0, 1, 17, len(sent) - 1):
        assert offset_at(sent[index].timestamp_ms) == index
        assert offset_at(sent[index].timestamp_ms - 1) == index
    assert offset_at(sent[-1].timestamp_ms + 1) == OFFSET_END
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (0, len(sent))
    consumer.close()


def test_a_compacted_topic_names_the_records_without_a_key_and_only_these(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    """KIP-467: librdkafka then reports the others of their batch as bystanders, which may be sent again."""
    topic = make_topic()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    (altered,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])]
    ).values()
    altered.result(DEADLINE_S)
    outcomes: dict[bytes, KafkaError | None] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 500})
    for key, value in ((b"k", b"0"), (None, b"1"), (b"k", b"2"), (None, b"3")):
        producer.produce(
            topic, value, key, on_delivery=lambda error, message: outcomes.update({message.value(): error})
        )
    assert producer.flush(DEADLINE_S) == 0
    codes = {value: error and error.code() for value, error in outcomes.items()}
    keyless, bystander = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert codes == {b"0": bystander, b"1": keyless, b"2": bystander, b"3": keyless}


def test_a_topic_is_created_listed_and_deleted(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = "compat-confluent-admin"
    admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=3)])[name].result(DEADLINE_S)
    until(
        lambda: name in (topics := admin.list_topics(timeout=DEADLINE_S).topics) and len(topics[name].partitions) == 3,
        lambda: None,
    )
    found = admin.list_topics(timeout=DEADLINE_S).topics
    until(lambda: name in found, lambda: found.update(admin.list_topics(timeout=DEADLINE_S).topics))
    assert all(len(partition.replicas) == 3 for partition in found[name].partitions.values())
    admin.delete_topics([name])[name].result(DEADLINE_S)
    until(lambda: name not in admin.list_topics(timeout=DEADLINE_S).topics, lambda: None)
