"""Spark's own Kafka connector reads the same topics from the same cluster: schema and rows are equal.

Its jars come from Spark's own package repositories, as `ADD JAR ivy://…` finds them; where they are out of reach, this is
skipped. The product never needs them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from barnabas_wire.records.batch import Record
from barnabas_wire.records.compression import CompressionType
from tests.spark.conftest import Topics
from tests.spark.stock_connector import FORMAT, StockConnectorMissing, add_stock_connector

pytestmark = [pytest.mark.cluster, pytest.mark.oracle]

Options = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def kafka_format(spark: SparkSession) -> str:
    """`kafka`, once its jars are in the session."""
    try:
        add_stock_connector(spark)
    except StockConnectorMissing as error:
        pytest.skip(f"Spark's Kafka connector cannot be fetched: {error}")
    return FORMAT


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    """Records of every kind in three partitions, by every compression."""
    name = topics.create(3, message_timestamp_after_max_ms=str(2**62))
    for place, kind in enumerate(CompressionType):
        records = [
            Record(0, 1_700_000_000_123 + place, b"key", b"value", (("one", b"1"), ("none", None), ("one", b""))),
            Record(1, -1, None, None),
            Record(2, 0, b"", b"", (("", b""),)),
            Record(3, 253_402_300_799_999, b"\x00\xff", bytes(range(256)) * 40),
        ]
        topics.produce(name, records, partition=place % 2, compression=kind)
    return name


def rows(frame: DataFrame) -> list[tuple]:
    """Rows as values, in one order; the timestamp as microseconds, which Python's datetime cannot always hold."""
    wanted = frame.selectExpr("* EXCEPT (timestamp)", "unix_micros(timestamp) AS micros")
    found = wanted.orderBy("topic", "partition", "offset").collect()
    return [tuple(row) for row in found]


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": "T,S", "includeHeaders": "true"},
        {"assign": '{"T":[0,1]}', "startingOffsets": '{"T":{"0":-2,"1":5}}', "endingOffsets": '{"T":{"0":9,"1":-1}}'},
    ],
)
def test_a_batch_has_the_schema_and_rows_of_sparks_own_connector(
    spark: SparkSession, topics: Topics, kafka_format: str, topic: str, options: Options, given: dict[str, str]
) -> None:
    stamped = topics.create(message_timestamp_type="LogAppendTime")
    topics.fill(stamped, [b"a", b"b"])
    asked = options(**{name: text.replace("T", topic).replace("S", stamped) for name, text in given.items()})
    ours = spark.read.format("barnabas").options(**asked).load()
    theirs = spark.read.format(kafka_format).options(**asked).load()
    assert ours.schema == theirs.schema
    found = rows(ours)
    assert found == rows(theirs)
    assert found


def test_a_stream_has_the_rows_of_sparks_own_connector(
    spark: SparkSession, kafka_format: str, topic: str, options: Options, memory_path: Path
) -> None:
    asked = options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="7", includeHeaders="true")
    found: dict[str, list[tuple]] = {}
    for name in ("barnabas", kafka_format):
        collected: list[tuple] = []
        stream = spark.readStream.format(name).options(**asked).load()
        query = (
            stream.writeStream.foreachBatch(lambda frame, _, collected=collected: collected.extend(rows(frame)))  # type: ignore[misc]
            .option("checkpointLocation", str(memory_path / name))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)
        found[name] = sorted(collected, key=repr)
    assert found["barnabas"] == found[kafka_format] and found["barnabas"]


def test_checkpoints_go_from_either_source_to_the_other(
    spark: SparkSession, topics: Topics, kafka_format: str, options: Options, memory_path: Path
) -> None:
    """Theirs is read as it is; ours after `python -m pyspark_barnabas.checkpoint export`."""
    name = topics.create(2)
    seen: list[bytes] = []
    steps = (kafka_format, [b"1", b"2"]), ("barnabas", [b"3"]), (kafka_format, [b"4", b"5"]), ("barnabas", [b"6"])
    for step, (source, values) in enumerate(steps):
        for index in (0, 1):
            topics.fill(name, values, partition=index)
        if step == 2:
            command = [sys.executable, "-m", "pyspark_barnabas.checkpoint", "export", str(memory_path)]
            reported = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert "1 of 2 files written without topic ids" in reported
        stream = spark.readStream.format(source).options(**options(subscribe=name, startingOffsets="earliest")).load()
        try:
            query = (
                stream.writeStream.foreachBatch(
                    lambda frame, _: seen.extend(bytes(row.value) for row in frame.collect())
                )
                .option("checkpointLocation", str(memory_path))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(100)
        except PySparkException as error:
            pytest.fail(f"{source} in step {step}: {error}")
    assert sorted(seen) == sorted([b"1", b"2", b"3", b"4", b"5", b"6"] * 2)


def test_what_is_written_is_what_sparks_own_connector_writes(
    spark: SparkSession, topics: Topics, kafka_format: str, options: Options
) -> None:
    made = spark.range(0, 5000, 1, 1).selectExpr(
        "IF(id % 7 = 0, NULL, repeat(CAST(id AS STRING), CAST(id % 5 AS INT))) AS key",
        "IF(id % 11 = 0, NULL, CAST(CAST(id AS STRING) AS BINARY)) AS value",
        "IF(id % 7 = 0, CAST(id % 3 AS INT), NULL) AS partition",
        "IF(id % 13 = 0, array(named_struct('key', 'a', 'value', CAST(CAST(id AS STRING) AS BINARY))), NULL) AS headers",
    )
    found = {}
    for name in ("barnabas", kafka_format):
        target = topics.create(5)
        made.write.format(name).options(**options(topic=target)).mode("append").save()
        read = spark.read.format(kafka_format).options(**options(subscribe=target, includeHeaders="true")).load()
        found[name] = rows(
            read.drop("topic")
            .selectExpr("*", "'t' AS topic")
            .drop("timestamp")
            .selectExpr("*", "timestamp_micros(0) AS timestamp")
        )
    assert len(found["barnabas"]) == 5000 and found["barnabas"] == found[kafka_format]


REFUSED = [
    (["CAST(id AS STRING) AS value"], "topic"),
    (["CAST(id AS STRING) AS key", "'T' AS topic"], "value"),
    (["id AS value", "'T' AS topic"], "value"),
    (["CAST(id AS STRING) AS value", "id AS key", "'T' AS topic"], "key"),
    (["CAST(id AS STRING) AS value", "id AS partition", "'T' AS topic"], "partition"),
    (["CAST(id AS STRING) AS value", "array('a') AS headers", "'T' AS topic"], "headers"),
    (["CAST(id AS STRING) AS value", "CAST(NULL AS STRING) AS topic"], "null topic present in the data|Job aborted"),
    (["CAST(id AS STRING) AS value", "9 AS partition", "'T' AS topic"], "partition|Job aborted"),
]
"""Columns, and the word that both complaints have; of some errors in a task Spark keeps no word."""


def test_what_sparks_own_connector_refuses_to_write_is_refused(
    spark: SparkSession, topics: Topics, kafka_format: str, options: Options
) -> None:
    target = topics.create(2)
    for columns, word in REFUSED:
        made = spark.range(1).selectExpr(*[column.replace("'T'", f"'{target}'") for column in columns])
        for name in ("barnabas", kafka_format):
            writer = made.write.format(name).options(**options() | {"kafka.max.block.ms": "2000"}).mode("append")
            with pytest.raises(Exception, match=word) as refused:
                writer.save()
            assert "DATA_SOURCE_NOT_FOUND" not in str(refused.value)
    assert not spark.read.format("barnabas").options(**options(subscribe=target)).load().count()
