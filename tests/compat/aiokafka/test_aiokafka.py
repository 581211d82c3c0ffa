"""aiokafka."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.compat.samples import COMPRESSIONS, DEADLINE_S, FIRST_TIMESTAMP_MS, Sample, samples

pytestmark = [pytest.mark.cluster]

PARTITIONS = 4
RECORDS = 1_000


async def produce(bootstrap: str, topic: str, records: list[Sample], **settings: Any) -> list[Any]:
    """Send all, wait until all are acknowledged, and return where they are."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=20, **settings)
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        return list(await asyncio.wait_for(asyncio.gather(*sent), DEADLINE_S))
    finally:
        await producer.stop()


@asynccontextmanager
async def member(bootstrap: str, group: str | None, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that starts at the beginning and commits when told to."""
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=500,
        **settings,
    )
    await asyncio.wait_for(consumer.start(), DEADLINE_S)
    try:
        yield consumer
    finally:
        await consumer.stop()


async def take(consumer: AIOKafkaConsumer, into: list[ConsumerRecord]) -> None:
    """What is there."""
    for records in (await consumer.getmany(timeout_ms=200)).values():
        into.extend(records)


async def until(done: Callable[[], bool], *consumers: tuple[AIOKafkaConsumer, list[ConsumerRecord]]) -> None:
    """Let the consumers take until done; fails at the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not done():
            await asyncio.gather(*(take(consumer, into) for consumer, into in consumers))


def as_sample(record: ConsumerRecord) -> Sample:
    """What was received, to be compared with what was sent."""
    return Sample(record.key, record.value, tuple(record.headers), record.timestamp)


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_records_come_back_as_they_were_sent(
    bootstrap: str, make_topic: Callable[..., str], compression: str
) -> None:
    topic = make_topic()
    sent = samples(with_null_key_and_value=False)
    places = await produce(bootstrap, topic, sent, compression_type=None if compression == "none" else compression)
    assert [place.offset for place in places] == list(range(len(sent)))
    async with member(bootstrap, None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read: list[ConsumerRecord] = []
        await until(lambda: len(read) >= len(sent), (consumer, read))
    assert [as_sample(record) for record in read] == sent
    assert [record.offset for record in read] == list(range(len(sent)))


async def test_two_members_share_a_group_hand_over_and_resume_where_it_committed(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    numbered = [Sample(b"%d" % n, b"value %d" % n, (), FIRST_TIMESTAMP_MS) for n in range(RECORDS)]
    await produce(bootstrap, topic, numbered)
    more = [Sample(b"%d" % n, b"more %d" % n, (), FIRST_TIMESTAMP_MS) for n in range(100)]
    async with member(bootstrap, group, topic) as two:
        async with member(bootstrap, group, topic) as one:
            read: dict[AIOKafkaConsumer, list[ConsumerRecord]] = {one: [], two: []}
            await until(lambda: all(len(c.assignment()) == PARTITIONS // 2 for c in read), *read.items())
            owned = Counter(partition.partition for consumer in read for partition in consumer.assignment())
            assert owned == dict.fromkeys(range(PARTITIONS), 1)
            await until(lambda: len({r.value for records in read.values() for r in records}) >= RECORDS, *read.items())
            for consumer in read:
                await consumer.commit()
        late: list[ConsumerRecord] = []
        await until(lambda: len(two.assignment()) == PARTITIONS, (two, late))
        assert late == []
        await produce(bootstrap, topic, more)
        await until(lambda: len(late) >= len(more), (two, late))
        assert Counter(record.value for record in late) == Counter(record.value for record in more)
        await two.commit()

    await produce(bootstrap, topic, [Sample(b"last", b"last", (), FIRST_TIMESTAMP_MS)])
    async with member(bootstrap, group, topic) as three:
        after: list[ConsumerRecord] = []
        await until(lambda: bool(after), (three, after))
        assert [record.value for record in after] == [b"last"]
        committed = [await three.committed(TopicPartition(topic, index)) or 0 for index in range(PARTITIONS)]
        assert sum(committed) == RECORDS + 100


async def test_offsets_are_found_by_time(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    sent = samples(with_null_key_and_value=False)
    await produce(bootstrap, topic, sent)
    partition = TopicPartition(topic, 0)
    async with member(bootstrap, None) as consumer:
        for index in (0, 1, 17, len(sent) - 1):
            for timestamp_ms in (sent[index].timestamp_ms, sent[index].timestamp_ms - 1):
                found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
                assert (found.offset, found.timestamp) == (index, sent[index].timestamp_ms)
        nothing = await consumer.offsets_for_times({partition: sent[-1].timestamp_ms + 1})
        assert nothing[partition] is None
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: len(sent)}


async def test_a_topic_is_created_described_and_deleted(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        name = "compat-aiokafka-admin"
        await admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=3)])
        async with asyncio.timeout(DEADLINE_S):
            while True:  # each time another broker may be asked, which has heard of it or not
                (described,) = await admin.describe_topics([name])
                if described["partitions"] and name in await admin.list_topics():
                    break
        assert [len(partition["replicas"]) for partition in described["partitions"]] == [3, 3, 3]
        await admin.delete_topics([name])
        async with asyncio.timeout(DEADLINE_S):
            while name in await admin.list_topics():
                pass
    finally:
        await admin.close()
