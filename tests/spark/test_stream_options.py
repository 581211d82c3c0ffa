"""Limits, starts, read_committed, groups and splits of the source, against a real cluster without Spark."""

from __future__ import annotations

import time
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMinRows

from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.records.batch import Record
from pyspark_barnabas.client import SourceError
from pyspark_barnabas.offsets import OffsetsJson, from_json
from pyspark_barnabas.options import OptionError
from pyspark_barnabas.source import RangePartition
from pyspark_barnabas.stream import StreamReader
from tests.spark.conftest import Topics
from tests.spark.test_source import ALL, Options, batch, between, numbered, stream, values

pytestmark = [pytest.mark.cluster]


def offsets(reader: StreamReader, at: OffsetsJson) -> list[int]:
    """Of one micro-batch's end, partition by partition."""
    return [end for _, end in sorted(from_json(reader.latestOffset(at, reader.getDefaultReadLimit())).offsets.items())]


def test_a_pattern_takes_whole_names_and_no_internal_topics(topics: Topics, options: Options) -> None:
    one, two, other = (topics.create(name=f"pattern-{end}") for end in ("one", "two", "other.x"))
    for name in (one, two, other):
        topics.fill(name, [name.encode()])
    reader = batch(options(subscribePattern="pattern-[a-z]+"))
    assert values(reader, reader.partitions()) == [one.encode(), two.encode()]
    assert batch(options(subscribePattern="__consumer.*")).partitions() == []
    assert batch(options(subscribePattern="pattern")).partitions() == []

    running = stream(options(subscribePattern="pattern-o.*", startingOffsets="latest"))
    at = running.latestOffset(running.initialOffset(), ALL)
    late = topics.create(name="pattern-october")
    topics.fill(late, numbered(2))
    assert between(running, at, running.latestOffset(at, ALL)) == numbered(2)


def test_a_start_by_time_by_the_end_and_by_age(topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    now = int(time.time() * 1000)
    for index in (0, 1):
        old = [Record(at, now - 7_200_000 + at, None, b"old") for at in range(3)]
        topics.produce(topic, old, partition=index)
    topics.produce(topic, [Record(at, now - 1000 + at, None, b"new%d" % at) for at in range(2)], partition=0)

    def started(**given: str) -> list[bytes]:
        reader = batch(options(subscribe=topic, **given))
        return values(reader, reader.partitions())

    late = str(now - 60_000)
    assert started(startingOffsets="-1 hour") == [b"new0", b"new1"]
    assert started(startingOffsets="-1") == [b"new1", b"old"]
    assert len(started(startingOffsets="-1000")) == 8
    with pytest.raises(OptionError, match=f"startingTimestamp: no record of {topic}-1 is at or after {late} ms"):
        started(startingTimestamp=late)
    assert started(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == [b"new0", b"new1"]
    by_partition = f'{{"{topic}":{{"0":{now - 999},"1":{now - 7_200_000 + 2}}}}}'
    assert started(startingOffsetsByTimestamp=by_partition) == [b"new1", b"old"]
    assert started(endingTimestamp=str(now - 7_200_000 + 1)) == [b"old", b"old"]
    assert len(started(endingTimestamp=late)) == 6, "where no record is that late, the end is meant"


def test_read_committed_gives_exactly_what_was_committed(
    topics: Topics, cluster: LocalCluster, options: Options
) -> None:
    topic = topics.create(1)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for value in numbered(3, 10 * number):
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    committed = numbered(3, 10) + numbered(3, 30) + numbered(3, 50)
    asked = options(subscribe=topic, startingOffsets="earliest") | {"kafka.isolation.level": "read_committed"}
    reader = batch(asked)
    assert values(reader, reader.partitions()) == committed
    running = stream(asked)
    at = running.latestOffset(running.initialOffset(), ALL)
    assert between(running, running.initialOffset(), at) == committed
    everything = batch(options(subscribe=topic))
    assert len(values(everything, everything.partitions())) == 19

    few = stream(asked | {"maxOffsetsPerTrigger": "2"})
    at, found = few.initialOffset(), []
    while (end := few.latestOffset(at, few.getDefaultReadLimit())) != at:
        found += between(few, at, end)
        at = end
    assert found == committed, "the end of a micro-batch may lie in the middle of a transaction"
    producer.commit_transaction(30)
    # The commit is decided when this returns; its marker, which moves the last stable offset, comes a moment later.
    deadline = time.monotonic() + 30
    while (end := running.latestOffset(at, ALL)) == at:
        assert time.monotonic() < deadline
    assert between(running, at, end) == [b"open"]


def test_a_micro_batch_holds_at_most_its_bytes(topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    topics.fill(topic, [bytes(1000)] * 400, partition=0, batch=10)
    topics.fill(topic, [bytes(100)] * 400, partition=1, batch=10)
    reader = stream(options(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="100000"))
    assert reader.getDefaultReadLimit() == ReadMaxBytes(100_000)
    first = offsets(reader, reader.initialOffset())
    # 400,000 and 40,000 bytes and what records and batches take besides: shared by bytes.
    assert 80 <= first[0] <= 95 and 80 <= first[1] <= 95, first
    both = stream(
        options(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="100000", maxOffsetsPerTrigger="20")
    )
    assert offsets(both, both.initialOffset()) == [10, 10]
    assert sum(from_json(both.latestOffset(both.initialOffset(), ReadAllAvailable())).offsets.values()) == 800


def test_a_micro_batch_waits_for_its_least_size_but_not_for_ever(topics: Topics, options: Options) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(3))
    asked = options(
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="400ms",
        maxOffsetsPerTrigger="6",
    )
    reader = stream(asked)
    at: OffsetsJson = reader.initialOffset()
    at = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert at[topic]["0"] == 3, "the first micro-batch of a run does not wait, as in Spark's own source"
    topics.fill(topic, numbered(2))
    assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
    time.sleep(0.5)
    assert offsets(reader, at) == [5]
    topics.fill(topic, numbered(10))
    assert offsets(reader, at) == [9]
    frozen = stream(asked)
    frozen.prepareForTriggerAvailableNow()
    assert offsets(frozen, {topic: {"0": 14}}) == [15], "nothing more will come to a frozen target"
    assert stream(options(subscribe=topic, minOffsetsPerTrigger="5")).getDefaultReadLimit() == ReadMinRows(5)


def test_ranges_are_split_where_record_batches_begin(topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(1000), partition=0, batch=70)
    topics.fill(topic, numbered(30, 5000), partition=1, batch=30)
    for reader in (
        batch(options(subscribe=topic, minPartitions="8")),
        batch(options(subscribe=topic, maxRecordsPerPartition="150")),
    ):
        parts = cast(list[RangePartition], reader.partitions())
        assert values(reader, list(parts)) == numbered(1000) + numbered(30, 5000)
        assert len(parts) > 6 and parts[-1].partition == 1
        assert all(part.end - part.start <= 210 for part in parts)
    limited = cast(list[RangePartition], batch(options(subscribe=topic, maxRecordsPerPartition="150")).partitions())
    assert all(part.end - part.start <= 150 for part in limited)
    by_bytes = cast(list[RangePartition], batch(options(subscribe=topic, minPartitions="8")).partitions())
    assert all(part.start % 70 == 0 for part in by_bytes if part.partition == 0)


def test_a_group_says_where_to_begin_and_hears_how_far_the_query_is(
    topics: Topics, cluster: LocalCluster, options: Options
) -> None:
    topic, group = topics.create(2), "lag-of-spark"
    topics.fill(topic, numbered(10), partition=0)
    topics.fill(topic, numbered(4, 100), partition=1)
    reported = options(subscribe=topic, startingOffsets="group", commitOffsets="true") | {"kafka.group.id": group}
    reader = stream(reported)
    at = reader.initialOffset()
    assert from_json(at).offsets == dict.fromkeys(from_json(at).offsets, 0), "without a commit: all that is there"
    end = reader.latestOffset(at, ALL)
    assert reader.latestOffset(end, ALL) == end
    from confluent_kafka import TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    found = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=30)
    assert [part.offset for part in found] == [10, 4]
    topics.fill(topic, numbered(2, 10), partition=0)
    again = stream(reported)
    assert between(again, again.initialOffset(), again.latestOffset(again.initialOffset(), ALL)) == numbered(2, 10)

    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    with pytest.raises(SourceError, match=f"the group {group} has members .* name a group of this query's own"):
        stream(reported).commit(end)
    consumer.close()


def test_the_progress_says_how_far_behind_a_query_is(topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    since = int(time.time() * 1000) - 5000
    topics.produce(topic, [Record(at, since, None, b"x") for at in range(10)], partition=1)
    reader = stream(options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4"))
    assert set(reader.reportLatestOffset()[topic]) == {"id", "0", "1"}  # type: ignore[index]
    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reported = reader.reportLatestOffset()[topic]  # type: ignore[index]
    assert (reported["0"], reported["1"], reported["recordsBehind"]) == (0, 10, 6)
    assert 4.9 < reported["secondsBehind"] < 60
    reader.latestOffset(reader.initialOffset(), ALL)
    reported = reader.reportLatestOffset()[topic]  # type: ignore[index]
    assert (reported["recordsBehind"], reported["secondsBehind"]) == (0, 0)
