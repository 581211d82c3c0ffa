"""`write` and `writeStream` of format("barnabas") in a real SparkSession on a real cluster: rows, partitions, restarts, errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import iterate_batches
from barnabas_wire.records.partitioning import partition_for_key
from tests.spark.conftest import Topics

pytestmark = [pytest.mark.cluster, pytest.mark.tools]

Options = Callable[..., dict[str, str]]
QUERY_TIMEOUT_S = 100


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("barnabas").options(**options).load()


def write(rows: DataFrame, options: dict[str, str]) -> None:
    rows.write.format("barnabas").options(**options).mode("append").save()


def test_rows_come_back_as_they_were_written(spark: SparkSession, topics: Topics, options: Options) -> None:
    one, two = topics.create(3), topics.create(1)
    rows = spark.createDataFrame(
        [
            (one, "a", "1", None, [("x", b"1"), ("y", None), ("x", b"")]),
            (one, None, "2", 2, []),
            (one, "", None, None, None),
            (two, "b", "", None, [("", b"z")]),
        ],
        "topic string, key string, value string, partition int, headers array<struct<key:string,value:binary>>",
    )
    write(rows.selectExpr("*", "1 AS more"), options())
    found = read(spark, options(subscribe=f"{one},{two}", includeHeaders="true")).collect()
    seen = {
        (row.topic, row.value and bytes(row.value)): (
            row.key and bytes(row.key),
            row.partition,
            [(header.key, header.value and bytes(header.value)) for header in row.headers or []],
        )
        for row in found
    }
    assert seen == {
        (one, b"1"): (b"a", partition_for_key(b"a", 3), [("x", b"1"), ("y", None), ("x", b"")]),
        (one, b"2"): (None, 2, []),
        (one, None): (b"", partition_for_key(b"", 3), []),
        (two, b""): (b"b", 0, [("", b"z")]),
    }
    assert all(abs(row.timestamp.timestamp() - time.time()) < 600 for row in found)


@pytest.mark.parametrize("kind", ["none", "lz4"])
def test_many_rows_reach_the_partition_of_their_key_once_and_in_order(
    spark: SparkSession, topics: Topics, options: Options, kind: str
) -> None:
    topic = topics.create(5)
    rows = spark.range(0, 30_000, 1, 2).selectExpr("CAST(id % 100 AS STRING) AS key", "CAST(id AS STRING) AS value")
    more = {"kafka.compression.type": kind, "kafka.batch.size": "20000", "kafka.buffer.memory": "400000"}
    write(rows, options(topic=topic) | more)
    found = read(spark, options(subscribe=topic)).selectExpr(
        "CAST(key AS STRING) key", "CAST(CAST(value AS STRING) AS INT) value", "partition", "offset"
    )
    seen = found.orderBy("partition", "offset").collect()
    assert sorted(row.value for row in seen) == list(range(30_000))
    assert all(row.partition == partition_for_key(row.key.encode(), 5) for row in seen)
    for half in (range(15_000), range(15_000, 30_000)):
        for partition in range(5):
            of_task = [row.value for row in seen if row.partition == partition and row.value in half]
            assert of_task == sorted(of_task)
    fetched = topics.wire.fetch(TopicPartition(topic, 0), 0).records
    headers = [header for _, header in iterate_batches(fetched)]
    assert len(headers) > 1 and all(header.producer_id >= 0 for header in headers)
    assert {header.compression.name.lower() for header in headers} == {kind}


def test_a_stream_writes_every_record_and_goes_on_from_its_checkpoint(
    spark: SparkSession, topics: Topics, options: Options, memory_path: Path
) -> None:
    source, target = topics.create(2), topics.create(3)
    for round_of in (0, 1):
        for index in (0, 1):
            topics.fill(
                source, [b"%d" % at for at in range(1000 * round_of + index, 1000 * round_of + 200, 2)], partition=index
            )
        rows = spark.readStream.format("barnabas").options(
            **options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="60")
        )
        query = (
            rows.load()
            .writeStream.format("barnabas")
            .options(**options(topic=target))
            .queryName("copy")
            .option("checkpointLocation", str(memory_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    found = read(spark, options(subscribe=target)).selectExpr("CAST(CAST(value AS STRING) AS INT) value").collect()
    assert sorted(row.value for row in found) == [*range(200), *range(1000, 1200)]


def test_a_topic_with_small_messages_gets_smaller_batches(
    spark: SparkSession, topics: Topics, options: Options
) -> None:
    topic = topics.create(1, max_message_bytes="5000")
    write(spark.range(0, 5000, 1, 1).selectExpr("repeat(CAST(id AS STRING), 5) AS value"), options(topic=topic))
    found = read(spark, options(subscribe=topic)).selectExpr("CAST(value AS STRING) value").collect()
    assert sorted(row.value for row in found) == sorted(str(at) * 5 for at in range(5000))


def test_a_write_outlives_the_leader_of_its_partitions(
    spark: SparkSession, topics: Topics, cluster: LocalCluster, options: Options
) -> None:
    topic = topics.create(3, min_insync_replicas="2")
    victim = topics.wire.metadata([topic]).leader(TopicPartition(topic, 0)).id
    rows = spark.range(0, 200_000, 1, 2).selectExpr(
        "CAST(id AS STRING) AS key", "repeat(CAST(id AS STRING), 20) AS value"
    )
    small = {"kafka.batch.size": "16384", "kafka.buffer.memory": "300000"}
    ended = threading.Event()
    killed_at: list[int] = []

    def kill() -> None:
        while not ended.wait(0.01):
            written = sum(topics.wire.list_offsets({TopicPartition(topic, at): -1 for at in range(3)}).values())
            if written >= 20_000:
                cluster.kill(victim)
                killed_at.append(written)
                return

    # Spark looks for the format in a thread's active session, so the write stays in the thread that made the session.
    thread = threading.Thread(target=kill)
    thread.start()
    try:
        write(rows, options(topic=topic) | small)
    finally:
        ended.set()
        thread.join()
        if killed_at:
            cluster.start_node(victim)
            cluster.wait_until_healthy()
    assert killed_at and killed_at[0] < 200_000, "the write ended before its leader was killed"
    found = read(spark, options(subscribe=topic)).selectExpr("CAST(CAST(key AS STRING) AS INT) key").collect()
    assert sorted(row.key for row in found) == list(range(200_000))


def test_what_is_wrong_is_said_in_sparks_exception(spark: SparkSession, topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match=r"topic no topic: .*INVALID_TOPIC|INVALID_TOPIC_EXCEPTION topic no topic"):
        write(rows, options(topic="no topic"))
    with pytest.raises(
        Exception, match=r"option kafka.compresion.type is not known .*did you mean kafka.compression.type\?"
    ):
        write(rows, options(topic=topic) | {"kafka.compresion.type": "lz4"})
    with pytest.raises(Exception, match=r"null topic present in the data: use the option"):
        write(rows.selectExpr("value", "CAST(NULL AS STRING) topic"), options())
    with pytest.raises(Exception, match=rf"partition 2 of topic {topic} does not exist: it has partitions 0 to 1"):
        write(rows.selectExpr("value", "2 AS partition"), options(topic=topic))
    with pytest.raises(Exception, match=r'mode\("overwrite"\) would replace a topic'):
        rows.write.format("barnabas").options(**options(topic=topic)).mode("overwrite").save()
    began = time.monotonic()
    with pytest.raises(Exception, match=r"kafka.bootstrap.servers=127.0.0.1:1 took the records: .*[Rr]efused"):
        write(rows, {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": topic, "kafka.max.block.ms": "2000"})
    assert time.monotonic() - began < 10


def read_committed_values(topics: Topics, spark: SparkSession, options: dict[str, str]) -> list[str]:
    """Values of a topic, once nothing is open in it."""
    topic = options["subscribe"]
    partitions = [TopicPartition(topic, at) for at in sorted(topics.wire.metadata([topic]).topics[topic])]
    deadline = time.monotonic() + 20
    while topics.wire.list_offsets(dict.fromkeys(partitions, -1)) != topics.wire.list_offsets(
        dict.fromkeys(partitions, -1), is_read_committed=True
    ):
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.05)
    return sorted(row.value for row in read(spark, options).selectExpr("CAST(value AS STRING) value").collect())


def test_exactly_once_a_stream_and_a_batch_are_written_whole(
    spark: SparkSession, topics: Topics, options: Options, memory_path: Path
) -> None:
    source, target = topics.create(2), topics.create(3)
    exactly = {"mode": "exactly_once", "transactionalIdPrefix": f"to-{target}"}
    for round_of in (0, 1):
        for index in (0, 1):
            first = 1000 * round_of + index
            topics.fill(source, [b"%d" % at for at in range(first, first + 200, 2)], partition=index)
        asked = options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="90")
        query = (
            spark.readStream.format("barnabas").options(**asked).load()
            .selectExpr("value")
            .writeStream.format("barnabas")
            .options(**options(topic=target), **exactly)
            .option("checkpointLocation", str(memory_path))
            .trigger(availableNow=True)
            .start()
        )  # fmt: skip
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    wanted = sorted(str(at) for at in [*range(200), *range(1000, 1200)])
    assert read_committed_values(topics, spark, options(subscribe=target)) == wanted
    rows = spark.range(0, 3000, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    for written in (1, 2):
        write(rows, options(topic=target, mode="exactly_once", transactionalIdPrefix=f"batches-to-{target}"))
        found = read_committed_values(topics, spark, options(subscribe=target))
        assert len(found) == len(wanted) + 3000 * written
    with pytest.raises(Exception, match=r"transactionalIdPrefix=to-.* belongs to query .*a\s+prefix of its own"):
        write(rows, options(topic=target) | exactly)
    with pytest.raises(Exception, match=r'mode=exactly_once needs .option\("transactionalIdPrefix", "name"\)'):
        write(rows, options(topic=target, mode="exactly_once"))


def test_exactly_once_a_write_that_fails_leaves_nothing(spark: SparkSession, topics: Topics, options: Options) -> None:
    target = topics.create(2)
    exactly = options(topic=target, mode="exactly_once", transactionalIdPrefix=f"fails-to-{target}")
    rows = spark.range(0, 2000, 1, 2)
    with pytest.raises(Exception, match=r"partition 7 of topic .* does not exist"):
        write(rows.selectExpr("CAST(id AS STRING) AS value", "IF(id = 1999, 7, 0) AS partition"), exactly)
    write(rows.selectExpr("CAST(id AS STRING) AS value"), exactly)
    # readers of committed data get past what the first write left, and it is not among what they see
    assert read_committed_values(topics, spark, options(subscribe=target))
    assert topics.wire.list_offsets({TopicPartition(target, 0): -1})[TopicPartition(target, 0)] > 0
