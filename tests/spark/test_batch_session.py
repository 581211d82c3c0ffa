"""Batch reads in a real SparkSession: filters that narrow what is read, a compacted topic as a table, what configure() sets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from barnabas_wire.records.batch import Record
from barnabas_wire.records.partitioning import partition_for_key
from pyspark_barnabas.session import ROWS, configure, register
from tests.spark.conftest import Topics

pytestmark = [pytest.mark.cluster, pytest.mark.tools]

Options = Callable[..., dict[str, str]]
IS_FULL = bool(os.environ.get("BARNABAS_ECOSYSTEM_FULL"))
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PARTITIONS, RECORDS = 3, 40
NOON_MS = 1_700_000_000_000


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with pushdown on."""
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


@pytest.fixture(scope="module")
def keyed(topics: Topics) -> str:
    """Records 0 … 39 of each partition, a second apart, ten in a batch, with the keys that belong there."""
    topic = topics.create(PARTITIONS)
    names = [b"key-%d" % at for at in range(60)]
    for index in range(PARTITIONS):
        own = [name for name in names if partition_for_key(name, PARTITIONS) == index]
        for first in range(0, RECORDS, 10):
            topics.produce(
                topic,
                [
                    Record(
                        at, NOON_MS + 1000 * (first + at), own[(first + at) % len(own)], b"%d-%d" % (index, first + at)
                    )
                    for at in range(10)
                ],
                partition=index,
            )
    return topic


def read(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format("barnabas").options(**options).load()


def scanned(frame: DataFrame) -> int:
    """Rows that the source gave to Spark when the frame was collected last."""
    plan = frame._jdf.queryExecution().executedPlan()
    while plan.children().size():
        plan = plan.children().apply(0)
    return int(plan.metrics().apply("numOutputRows").value())


@pytest.mark.parametrize(
    ("condition", "rows", "read_rows"),
    [
        ("partition = 1", 40, 40),
        ("offset >= 30 AND offset < 35", 15, 15),
        ("partition IN (0, 2) AND offset > 37", 4, 4),
        ("timestamp >= timestamp_millis(1700000030000)", 30, 30),
        ("timestamp = timestamp_millis(1700000039000)", 3, 3),
        ("topic = 'other'", 0, 0),
        ("partition = 1 OR offset = 3", 42, 120),
        ("value = X'302d37'", 1, 120),
        ("key IS NOT NULL AND partition = 2 AND NOT offset = 7", 39, 40),
    ],
)
def test_filters_narrow_what_is_read_and_change_no_result(
    pushing: SparkSession, keyed: str, options: Options, condition: str, rows: int, read_rows: int
) -> None:
    narrowed = read(pushing, options(subscribe=keyed)).filter(condition)
    found = narrowed.collect()
    assert len(found) == rows
    assert scanned(narrowed) == read_rows
    pushing.conf.set(PUSHDOWN, "false")
    whole = read(pushing, options(subscribe=keyed)).filter(condition)
    assert sorted(whole.collect()) == sorted(found)
    assert scanned(whole) == PARTITIONS * RECORDS


def test_a_key_is_looked_for_in_its_partition_where_the_user_says_so(
    pushing: SparkSession, keyed: str, options: Options
) -> None:
    wanted = "key IN (CAST('key-7' AS BINARY))"
    everywhere = read(pushing, options(subscribe=keyed)).filter(wanted)
    there = read(pushing, options(subscribe=keyed, partitionedByKey="true")).filter(wanted)
    assert sorted(there.collect()) == sorted(everywhere.collect()) != []
    assert (scanned(everywhere), scanned(there)) == (PARTITIONS * RECORDS, RECORDS)
    nullsafe = read(pushing, options(subscribe=keyed, partitionedByKey="true")).filter("key <=> NULL")
    assert nullsafe.collect() == []


def test_a_topic_as_a_table_has_the_latest_value_of_each_key_before_its_end(
    pushing: SparkSession, topics: Topics, options: Options
) -> None:
    topic = topics.create(2)
    first = [
        Record(0, 1, b"a", b"1"),
        Record(1, 2, b"b", b"1"),
        Record(2, 3, None, b"no key"),
        Record(3, 4, b"c", b"1"),
    ]
    topics.produce(topic, first, partition=0)
    topics.produce(topic, [Record(0, 5, b"a", b"2"), Record(1, 6, b"b", None), Record(2, 7, b"", b"")], partition=0)
    topics.produce(topic, [Record(0, 8, b"a", b"elsewhere")], partition=1)
    topics.produce(topic, [Record(0, 9, b"a", b"3"), Record(1, 9, b"b", b"3"), Record(2, 9, b"c", None)], partition=0)

    def table(**given: str) -> list[tuple[bytes, bytes, int, int]]:
        rows = read(pushing, options(subscribe=topic, mode="table", **given)).collect()
        return sorted((bytes(row.key), bytes(row.value), row.partition, row.offset) for row in rows)

    assert table() == [(b"", b"", 0, 6), (b"a", b"3", 0, 7), (b"a", b"elsewhere", 1, 0), (b"b", b"3", 0, 8)]
    before = f'{{"{topic}":{{"0":7,"1":0}}}}'
    assert table(endingOffsets=before) == [(b"", b"", 0, 6), (b"a", b"2", 0, 4), (b"c", b"1", 0, 3)]
    # Pruned at its end, the range would make a record that is superseded the latest one.
    early = read(pushing, options(subscribe=topic, mode="table")).filter("offset < 5")
    assert [(bytes(row.value), row.offset) for row in early.collect()] == [(b"elsewhere", 0)]
    only = pushing.read.format("barnabas").options(**options(subscribe=topic, mode="table")).schema("key binary")
    assert sorted(bytes(row.key) for row in only.load().collect()) == [b"", b"a", b"a", b"b"]


CONFIGURED = """
import sys
from pyspark.sql import SparkSession
from pyspark_barnabas import configure, session
session._COMPILE = sys.argv[2] or session._COMPILE
builder = SparkSession.builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "5000")
assert configure(builder, cache_directory=sys.argv[1], verbose=True) is builder
print(sorted(builder._options.items()))
"""


def test_configure_says_what_it_sets_and_keeps_what_was_set(tmp_path: Path) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "NUMBA", "SPARK_HOME"))
    }
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    environment["PYSPARK_DRIVER_PYTHON"] = "/somewhere/python"
    # What really compiles takes seconds: make ecosystem.
    instead = "" if IS_FULL else "import os, pathlib; pathlib.Path(os.environ['NUMBA_CACHE_DIR'], 'x.nbi').touch()"
    done = subprocess.run(
        [sys.executable, "-c", CONFIGURED, str(tmp_path / "compiled"), instead],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"PYSPARK_PYTHON={sys.executable}  (interpreter")
    assert lines[1].startswith("PYSPARK_DRIVER_PYTHON=/somewhere/python  (kept: ")
    assert lines[2].startswith("spark.sql.execution.arrow.maxRecordsPerBatch=5000  (kept: ")
    assert lines[3].startswith(f"{PUSHDOWN}=true")
    assert lines[4].startswith("spark.python.unix.domain.socket.enabled=true  (tasks")
    assert lines[5].startswith("spark.python.daemon.module=pyspark_barnabas.daemon  (workers")
    assert lines[6].startswith(f"SPARK_HOME={tmp_path}/barnabas/spark-")
    assert f"NUMBA_CACHE_DIR={tmp_path}/compiled" in lines[7] and "spark.executorEnv.NUMBA_CACHE_DIR" in lines[8]
    assert f"('{PUSHDOWN}', 'true')" in lines[9]
    assert list((tmp_path / "compiled").rglob("*.nbi")), "nothing was compiled there"


def test_configure_and_register_are_silent_unless_asked(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    before = spark.conf.get(ROWS) or ""
    assert register(spark, pushdown=False) is spark
    assert capfd.readouterr().out == ""
    told: list[str] = []
    register(spark, pushdown=False, verbose=True, say=told.append)
    assert any(line.startswith("format=barnabas  (") for line in told)
    assert spark.conf.get(ROWS) == "65536"
    spark.conf.set(ROWS, before)
    spark.conf.unset(PUSHDOWN)


def test_an_error_in_words_reaches_the_driver_without_frames_of_python(spark: SparkSession, options: Options) -> None:
    for given in (options(subscribe="nosuch"), options(subscribe="nosuch") | {"subscrib": "x"}):
        with pytest.raises(AnalysisException) as raised:
            read(spark, given).collect()
        said = str(raised.value)
        assert "Traceback" not in said and "File " not in said, said
        assert "nosuch" in said or "did you mean subscribe" in said
        assert len(said) < 500


def test_configure_refuses_what_cannot_work(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="rows_per_batch=0: at least 1"):
        configure(SparkSession.builder, rows_per_batch=0)
    with pytest.raises(RuntimeError, match=r"a session runs already .* call configure\(\) first"):
        configure(SparkSession.builder)
