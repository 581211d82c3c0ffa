"""kafka-python."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.codec import has_lz4, has_snappy, has_zstd

from tests.compat.samples import COMPRESSIONS, DEADLINE_S, FIRST_TIMESTAMP_MS, Sample, samples, until

pytestmark = [pytest.mark.cluster]

PARTITIONS = 4
RECORDS = 1_000
HAS_CODEC = {"lz4": has_lz4, "snappy": has_snappy, "zstd": has_zstd}


def sendable() -> list[Sample]:
    """What kafka-python agrees to send: no record without key and value, no header without value."""
    return [
        sample._replace(headers=tuple((name, value or b"") for name, value in sample.headers))
        for sample in samples(with_null_key_and_value=False)
    ]


def produce(bootstrap: str, topic: str, records: list[Sample], **settings: Any) -> list[Any]:
    """Send all, wait until all are acknowledged, and return where they are."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=20, **settings)
    try:
        sent = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(timeout=DEADLINE_S)
        return [future.get(timeout=DEADLINE_S) for future in sent]
    finally:
        producer.close()


def member(bootstrap: str, group: str | None, *topics: str, **settings: Any) -> KafkaConsumer:
    """A consumer that starts at the beginning and commits when told to."""
    return KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=500,
        **settings,
    )


def take(consumer: KafkaConsumer, into: list[Any]) -> None:
    """What is there."""
    for records in consumer.poll(timeout_ms=200).values():
        into.extend(records)


class Member(threading.Thread):
    """A member of a group in a thread of its own: kafka-python joins and consumes inside poll()."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__()
        self.consumer = member(bootstrap, group, topic)
        self.read: list[Any] = []
        self.assigned: set[int] = set()
        self.failure: BaseException | None = None
        self._stop_asked = threading.Event()

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                take(self.consumer, self.read)
                self.assigned = {partition.partition for partition in self.consumer.assignment()}
            self.consumer.commit()
        except BaseException as error:  # told by stop()
            self.failure = error
        finally:
            self.consumer.close()

    def stop(self) -> None:
        """Commit what was read, leave the group, and raise what went wrong."""
        self._stop_asked.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


def as_sample(record: Any) -> Sample:
    """What was received, to be compared with what was sent."""
    return Sample(record.key, record.value, tuple(record.headers), record.timestamp)


@pytest.mark.tools
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_come_back_as_they_were_sent(bootstrap: str, make_topic: Callable[..., str], compression: str) -> None:
    if not HAS_CODEC.get(compression, lambda: True)():
        pytest.skip(f"kafka-python has no {compression} here: install lz4, python-snappy and zstandard")
    topic = make_topic()
    sent = sendable()
    places = produce(bootstrap, topic, sent, compression_type=None if compression == "none" else compression)
    assert [place.offset for place in places] == list(range(len(sent)))
    consumer = member(bootstrap, None)
    consumer.assign([TopicPartition(topic, 0)])
    read: list[Any] = []
    until(lambda: len(read) >= len(sent), lambda: take(consumer, read))
    consumer.close()
    assert [as_sample(record) for record in read] == sent
    assert [record.offset for record in read] == list(range(len(sent)))


def test_two_members_share_a_group_hand_over_and_resume_where_it_committed(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    numbered = [Sample(b"%d" % n, b"value %d" % n, (), FIRST_TIMESTAMP_MS) for n in range(RECORDS)]
    produce(bootstrap, topic, numbered)
    one, two = Member(bootstrap, group, topic), Member(bootstrap, group, topic)
    pause = threading.Event()
    one.start()
    two.start()
    try:
        until(lambda: len(one.assigned) == len(two.assigned) == PARTITIONS // 2, lambda: pause.wait(0.05))
        assert one.assigned | two.assigned == set(range(PARTITIONS))
        until(lambda: len({r.value for r in (*one.read, *two.read)}) >= RECORDS, lambda: pause.wait(0.05))
    finally:
        one.stop()
    try:
        until(lambda: len(two.assigned) == PARTITIONS, lambda: pause.wait(0.05))
        more = [Sample(b"%d" % n, b"more %d" % n, (), FIRST_TIMESTAMP_MS) for n in range(100)]
        produce(bootstrap, topic, more)
        wanted = {record.value for record in more}
        until(lambda: wanted <= {r.value for r in two.read}, lambda: pause.wait(0.05))
        assert Counter(r.value for r in two.read if r.value in wanted) == dict.fromkeys(wanted, 1)
    finally:
        two.stop()

    produce(bootstrap, topic, [Sample(b"last", b"last", (), FIRST_TIMESTAMP_MS)])
    three = member(bootstrap, group, topic)
    after: list[Any] = []
    until(lambda: bool(after), lambda: take(three, after))
    assert [record.value for record in after] == [b"last"]
    committed = [three.committed(TopicPartition(topic, index)) or 0 for index in range(PARTITIONS)]
    assert sum(committed) == RECORDS + 100
    three.close()


def test_offsets_are_found_by_time(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    sent = sendable()
    produce(bootstrap, topic, sent)
    partition = TopicPartition(topic, 0)
    consumer = member(bootstrap, None)
    for index in (0, 1, 17, len(sent) - 1):
        for timestamp_ms in (sent[index].timestamp_ms, sent[index].timestamp_ms - 1):
            found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
            assert (found.offset, found.timestamp) == (index, sent[index].timestamp_ms)
    assert consumer.offsets_for_times({partition: sent[-1].timestamp_ms + 1})[partition] is None
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: len(sent)}
    consumer.close()


def test_a_topic_is_created_listed_and_deleted(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    name = "compat-kafka-python-admin"
    admin.create_topics([NewTopic(name=name, num_partitions=3, replication_factor=3)])
    until(lambda: name in admin.list_topics(), lambda: None)
    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics(), lambda: None)
    admin.close()
