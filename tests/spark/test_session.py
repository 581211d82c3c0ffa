"""`format("barnabas")` in a real SparkSession on a real cluster: columns, offsets, restarts, losses, a killed broker."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import Record
from barnabas_wire.records.compression import CompressionType
from pyspark_barnabas import Lag, LagListener
from tests.spark.conftest import Topics

pytestmark = [pytest.mark.cluster, pytest.mark.tools]

Options = Callable[..., dict[str, str]]
QUERY_TIMEOUT_S = 100
IS_FULL = bool(os.environ.get("BARNABAS_ECOSYSTEM_FULL"))


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values that tell which record they are."""
    return [b"%d" % at for at in range(first, first + count)]


def values(rows: DataFrame) -> list[bytes]:
    """The column value, sorted."""
    return sorted(bytes(row.value) for row in rows.select("value").collect())


def batch(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("barnabas").options(**options).load()


class Collected:
    """A sink that keeps what each micro-batch brought, and fails where it is told to."""

    def __init__(self, *, fails_in: int | None = None) -> None:
        self.batches: dict[int, list[list[bytes]]] = {}
        """Micro-batch id -> the rows of each of its runs."""
        self.fails_in = fails_in

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        found = values(rows)  # before the entry is made: another thread looks at it
        self.batches[batch_id] = [*self.batches.get(batch_id, []), found]
        if batch_id == self.fails_in:
            raise RuntimeError("the sink fails here")

    @property
    def all(self) -> list[bytes]:
        """The last run of every micro-batch, together."""
        return sorted(value for runs in list(self.batches.values()) for value in runs[-1])


def start(
    spark: SparkSession, options: dict[str, str], sink: Collected, checkpoint: Path, *, is_endless: bool = False
) -> StreamingQuery:
    """A stream into the sink: what is there now, or without an end."""
    rows = spark.readStream.format("barnabas").options(**options).load()
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (writer if is_endless else writer.trigger(availableNow=True)).start()


def run(spark: SparkSession, options: dict[str, str], sink: Collected, checkpoint: Path) -> list[dict[str, Any]]:
    """Run a stream to what is there now; its progress reports. Raises what it died of."""
    query = start(spark, options, sink, checkpoint)
    if not query.awaitTermination(QUERY_TIMEOUT_S):
        query.stop()
        raise TimeoutError("the query did not end")
    return [dict(progress) for progress in query.recentProgress]


def test_a_batch_has_the_columns_of_sparks_kafka_source_and_what_was_produced(
    spark: SparkSession, topics: Topics, options: Options
) -> None:
    topic = topics.create(2)
    written = [
        Record(0, 1_700_000_000_123, b"key", b"value", (("one", b"1"), ("none", None), ("one", b""))),
        Record(1, 1_700_000_000_124, None, None),
        Record(2, 5, b"", b"\x00\xff", (("", b"x"),)),
    ]
    for kind in CompressionType:
        topics.produce(topic, written, partition=1, compression=kind)
    rows = batch(spark, options(subscribe=topic, includeHeaders="true"))
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    assert rows.schema == StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
            StructField("headers", ArrayType(header)),
        ]
    )
    found = rows.selectExpr("*", "unix_millis(timestamp) AS millis").orderBy("offset").collect()
    assert len(found) == 3 * len(CompressionType)
    for at, row in enumerate(found):
        record = written[at % 3]
        assert (row.topic, row.partition, row.offset, row.timestampType) == (topic, 1, at, 0)
        assert (row.key, row.value, row.millis) == (record.key, record.value, record.timestamp_ms)
        assert [(header.key, header.value) for header in row.headers or []] == list(record.headers)
        assert (row.headers is None) == (not record.headers)


def test_topics_partitions_and_offsets_are_chosen_by_options(
    spark: SparkSession, topics: Topics, options: Options
) -> None:
    one, two = topics.create(2), topics.create(1)
    topics.fill(one, numbered(10), partition=0)
    topics.fill(one, numbered(10, 100), partition=1)
    topics.fill(two, numbered(10, 200))
    everything = batch(spark, options(subscribe=f"{one},{two}"))
    assert values(everything) == sorted(numbered(10) + numbered(10, 100) + numbered(10, 200))
    assert values(batch(spark, options(assign=f'{{"{one}":[1]}}'))) == sorted(numbered(10, 100))
    some = options(
        subscribe=one,
        startingOffsets=f'{{"{one}":{{"0":7,"1":-2}}}}',
        endingOffsets=f'{{"{one}":{{"0":-1,"1":2}}}}',
    )
    assert values(batch(spark, some)) == sorted(numbered(3, 7) + numbered(2, 100))


def test_a_schema_of_some_columns_is_honoured(spark: SparkSession, topics: Topics, options: Options) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(3))
    reader = spark.read.format("barnabas").schema("value binary, offset bigint")
    rows = reader.options(**options(subscribe=topic)).load().orderBy("offset").collect()
    assert [(bytes(row.value), row.offset) for row in rows] == [(b"0", 0), (b"1", 1), (b"2", 2)]


def test_workers_load_compiled_code_and_compile_nothing(spark: SparkSession, topics: Topics, options: Options) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(1))
    batch(spark, options(subscribe=topic)).collect()

    def compilations(_: int) -> tuple[int, int, bool]:
        import sys

        from pyspark_barnabas import scan

        hits = sum(scan.scan_records.stats.cache_hits.values())
        return hits, sum(scan.scan_records.stats.cache_misses.values()), "grpc" in sys.modules

    assert set(spark.sparkContext.parallelize([0, 1], 2).map(compilations).collect()) == {(1, 0, False)}


def test_what_is_wrong_is_said_in_sparks_exception(
    spark: SparkSession, topics: Topics, options: Options, tmp_path: Path
) -> None:
    topic = topics.create()
    with pytest.raises(Exception, match=r"topic nowhere: there is none at kafka.bootstrap.servers=127\.0\.0\.1:"):
        batch(spark, options(subscribe="nowhere")).collect()
    with pytest.raises(Exception, match=r"option startingoffset is not known .*did you mean startingOffsets\?"):
        batch(spark, options(subscribe=topic, startingOffset="earliest")).collect()
    with pytest.raises(Exception, match=r"endingOffsets is for batch reads: .*availableNow=True"):
        run(spark, options(subscribe=topic, endingOffsets="latest"), Collected(), tmp_path)


def test_a_stream_takes_at_most_its_limit_and_reports_its_lag(
    spark: SparkSession, topics: Topics, options: Options, memory_path: Path
) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(60), partition=0)
    topics.fill(topic, numbered(30, 100), partition=1)
    sink = Collected()
    heard: list[Lag] = []
    listener = LagListener(heard.append)
    spark.streams.addListener(listener)
    reports = run(
        spark, options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="30"), sink, memory_path
    )
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while len(heard) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)  # Spark calls listeners on a thread of its own
    spark.streams.removeListener(listener)
    assert [(lag.topic, lag.batch, lag.records_behind) for lag in heard[:3]] == [
        (topic, 0, 60),
        (topic, 1, 30),
        (topic, 2, 0),
    ]
    assert heard[0].seconds_behind > 1e6 and heard[2].seconds_behind == 0.0, "the records are of 1970"
    assert (heard[0].end, heard[0].latest) == ({0: 20, 1: 10}, {0: 60, 1: 30})
    assert [len(runs[-1]) for runs in sink.batches.values()] == [30, 30, 30]
    assert sink.all == sorted(numbered(60) + numbered(30, 100))
    first = next(report["sources"][0] for report in reports if report["numInputRows"])
    assert '"0":20,"1":10' in first["endOffset"].replace(" ", "")
    assert '"0":60,"1":30' in first["latestOffset"].replace(" ", "")


def test_a_query_that_failed_reads_the_same_micro_batch_again_and_every_record_once(
    spark: SparkSession, topics: Topics, options: Options, memory_path: Path
) -> None:
    topic = topics.create(2)
    for index in (0, 1):
        topics.fill(topic, numbered(50, 100 * index), partition=index)
    asked = options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    sink = Collected(fails_in=1)
    with pytest.raises(StreamingQueryException, match="the sink fails here"):
        run(spark, asked, sink, memory_path)
    for index in (0, 1):
        topics.fill(topic, numbered(20, 1000 + 100 * index), partition=index)
    sink.fails_in = None
    run(spark, asked, sink, memory_path)
    first_try, second_try = sink.batches[1]
    assert first_try == second_try
    written = [value for first in (0, 100) for value in numbered(50, first)]
    written += [value for first in (1000, 1100) for value in numbered(20, first)]
    assert sink.all == sorted(written)


KILLED_JOB = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.spark.jvm import Jvm
jvm = Jvm(Path(sys.argv[2]))
print(jvm.process.pid, flush=True)
spark = jvm.connect()
rows = (spark.readStream.format("barnabas").option("kafka.bootstrap.servers", sys.argv[3])
    .option("subscribe", sys.argv[4]).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 500).load())
query = (rows.selectExpr("CAST(value AS STRING)").writeStream.format("text").option("path", sys.argv[5])
    .option("checkpointLocation", sys.argv[6]).trigger(availableNow=True).start())
query.awaitTermination()
"""


@pytest.fixture
def killed_job(
    topics: Topics, cluster: LocalCluster, memory_path: Path, tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """A Spark application of its own that streams 20,000 records into files; (process, topic, directory)."""
    topic = topics.create(2)
    for index in (0, 1):
        topics.fill(topic, numbered(10_000, 10_000 * index), partition=index, batch=1000)
    places = [str(memory_path / "files"), str(memory_path / "checkpoint")]
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_JOB, root, str(tmp_path), cluster.bootstrap_servers, topic, *places],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process, topic, memory_path
    process.kill()
    process.wait()


@pytest.mark.full
@pytest.mark.skipif(not IS_FULL, reason="a Spark of its own: make ecosystem; make test kills that of topic_to_topic")
def test_a_spark_that_is_killed_in_the_middle_goes_on_exactly(
    spark: SparkSession, options: Options, killed_job: tuple[subprocess.Popen[str], str, Path]
) -> None:
    process, topic, directory = killed_job
    assert process.stdout is not None
    jvm = int(process.stdout.readline())
    commits = directory / "checkpoint" / "commits"
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while not (commits / "3").exists():
        assert process.poll() is None and time.monotonic() < deadline, "the job to be killed does not get on"
        time.sleep(0.01)
    subprocess.run(["kill", "-KILL", str(jvm)], check=True)
    process.kill()
    process.wait()
    done = len([name for name in commits.iterdir() if name.name.isdecimal()])
    assert done < 40, "the job ended before it could be killed"

    rows = spark.readStream.format("barnabas").options(
        **options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="8000")
    )
    query = (
        rows.load()
        .selectExpr("CAST(value AS STRING)")
        .writeStream.format("text")
        .option("path", str(directory / "files"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    found = spark.read.text(str(directory / "files")).collect()
    assert sorted(row.value.encode() for row in found) == sorted(numbered(20_000))


def test_removed_records_end_a_stream_unless_loss_is_allowed(
    spark: SparkSession, topics: Topics, options: Options, memory_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(5))
    asked = options(subscribe=topic, startingOffsets="earliest")
    run(spark, asked, Collected(), memory_path)
    topics.fill(topic, numbered(10, 5))
    topics.delete_records(topic, before=9)
    with pytest.raises(StreamingQueryException, match=rf"{topic}-0 begins at 9, offsets from 5 on were removed"):
        run(spark, asked, Collected(), memory_path)
    sink = Collected()
    run(spark, asked | {"failOnDataLoss": "false"}, sink, memory_path)
    assert sink.all == sorted(numbered(6, 9))


def test_a_topic_made_again_ends_a_stream_unless_loss_is_allowed(
    spark: SparkSession, topics: Topics, options: Options, memory_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(5))
    asked = options(subscribe=topic, startingOffsets="earliest")
    run(spark, asked, Collected(), memory_path)
    topics.delete(topic)
    topics.create(name=topic)
    topics.fill(topic, numbered(8, 50))
    with pytest.raises(StreamingQueryException, match=f"topic {topic} was deleted and made again"):
        run(spark, asked, Collected(), memory_path)
    sink = Collected()
    run(spark, asked | {"failOnDataLoss": "false"}, sink, memory_path)
    assert sink.all == sorted(numbered(8, 50))


def test_a_stream_outlives_the_leader_of_its_partitions(
    spark: SparkSession, topics: Topics, cluster: LocalCluster, options: Options, memory_path: Path
) -> None:
    topic = topics.create(3, min_insync_replicas="2")
    settings = {"acks": "all", "enable.idempotence": True, "log_level": 0}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    sink = Collected()
    query = start(spark, options(subscribe=topic, startingOffsets="earliest"), sink, memory_path, is_endless=True)
    refused: list[str] = []

    def send(wanted: list[bytes]) -> None:
        for place, value in enumerate(wanted):
            producer.produce(
                topic,
                value,
                partition=place % 3,
                on_delivery=lambda error, _: refused.append(str(error)) if error else None,
            )
            producer.poll(0.001)

    def until_read(count: int) -> None:
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        while len(sink.all) < count:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, f"{len(sink.all)} of {count} records came"
            time.sleep(0.05)

    victim = topics.wire.metadata([topic]).leader(TopicPartition(topic, 0)).id
    try:
        send(numbered(300))
        until_read(1)
        sending = threading.Thread(target=send, args=(numbered(3000, 300),))
        sending.start()
        cluster.kill(victim)
        sending.join()
        assert producer.flush(QUERY_TIMEOUT_S) == 0 and not refused
        until_read(3300)
    finally:
        query.stop()
        cluster.start_node(victim)
        cluster.wait_until_healthy()
    assert set(Counter(sink.all).values()) == {1}
    assert sink.all == sorted(numbered(3300))
