"""One side of `make bench-spark`: a driver process with a Spark session of its own on local[2] that runs what it is told.

May touch:  Spark, temporary directories.      Must not touch: the cluster but through Spark, the other side.
Invariants: only what a row is about is inside the seconds; what was seen is counted by Spark itself and reported.
Read next:  spark.py, which tells it what to run, one line of JSON each (null: collect garbage), and reads one line behind ANSWER.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pyspark_barnabas import configure
from tests.spark.stock_connector import StockConnectorMissing, add_stock_connector

OURS, STOCK = "barnabas", "kafka"
STREAM_BATCHES = 4
ANSWER = "ANSWER "
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
}


class Task(NamedTuple):
    """One run: of which row, on which topic."""

    row: str
    bootstrap: str
    topic: str
    records: int
    """In the topic, or to be written."""
    record_bytes: int
    compression: str = "none"
    is_committed: bool = False
    """Whether only committed records are read."""


class Seen(NamedTuple):
    """What came of it."""

    records: int
    seconds: float
    first_s: float | None = None
    """Until the first row, or the end of a stream's first micro-batch."""


class Arm:
    """A session that reads and writes through one format."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self.name = name
        self._writes = 0
        self._rows = {
            "batch, count": self.count,
            "batch, values read": self.values,
            "batch, all columns": self.columns,
            "batch, first row": self.first_row,
            "stream, availableNow": self.stream,
            "stream, stateful": self.stateful,
            "write, at least once": self.write,
            "write, exactly once": self.write_exactly_once,
        }

    def run(self, task: Task) -> Seen:
        """The row that is named."""
        return self._rows[task.row](task)

    def clean(self) -> None:
        """Collect the JVM's garbage of runs before, which the next must not pay."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        jvm.System.gc()

    def count(self, task: Task) -> Seen:
        """Rows are counted; Spark asks for no column."""
        started = time.perf_counter()
        return Seen(self._read(task).count(), time.perf_counter() - started)

    def values(self, task: Task) -> Seen:
        """Every value is looked at."""
        started = time.perf_counter()
        total = self._read(task).agg(F.sum(F.length("value"))).first()
        seconds = time.perf_counter() - started
        assert total is not None
        return Seen((total[0] or 0) // task.record_bytes, seconds)

    def columns(self, task: Task) -> Seen:
        """Every column becomes a row for a sink that does nothing with it; Spark counts them on the way."""
        seen = Observation()
        started = time.perf_counter()
        rows = self._read(task).observe(seen, F.count(F.lit(1)).alias("rows"))
        rows.write.format("noop").mode("overwrite").save()
        return Seen(seen.get["rows"], time.perf_counter() - started)

    def first_row(self, task: Task) -> Seen:
        """Until one row is there, from a query that Spark has not seen."""
        started = time.perf_counter()
        found = len(self._read(task).select("value").head(1))
        seconds = time.perf_counter() - started
        return Seen(found * task.records, seconds, seconds)

    def stream(self, task: Task) -> Seen:
        """Four micro-batches; start and checkpoint are in the seconds."""
        return self._streamed(self._stream(task), "append")

    def stateful(self, task: Task) -> Seen:
        """The same, counted by the first byte of the value."""
        rows = self._stream(task).groupBy(F.substring("value", 1, 1).alias("first")).count()
        return self._streamed(rows, "update")

    def write(self, task: Task, mode: str = "") -> Seen:
        """Rows that Spark makes: a number, filled up with a letter to the wanted size."""
        self._writes += 1
        value = F.rpad(F.col("id").cast("string"), task.record_bytes, "x").cast("binary")
        rows = self.spark.range(task.records, numPartitions=2).select(value.alias("value"))
        writer = rows.write.format(self.name).mode("append")
        writer = writer.option("kafka.bootstrap.servers", task.bootstrap).option("topic", task.topic)
        writer = writer.option("kafka.compression.type", task.compression)
        if mode and self.name == OURS:
            writer = writer.option("mode", mode).option("transactionalIdPrefix", f"bench-{task.topic}-{self._writes}")
        started = time.perf_counter()
        writer.save()
        return Seen(task.records, time.perf_counter() - started)

    def write_exactly_once(self, task: Task) -> Seen:
        """Ours with mode=exactly_once; the stock connector has one mode only."""
        return self.write(task, "exactly_once")

    def _read(self, task: Task) -> DataFrame:
        reader = self.spark.read.format(self.name).option("kafka.bootstrap.servers", task.bootstrap)
        if task.is_committed:
            reader = reader.option("kafka.isolation.level", "read_committed")
        return reader.option("subscribe", task.topic).load()

    def _stream(self, task: Task) -> DataFrame:
        reader = self.spark.readStream.format(self.name).option("kafka.bootstrap.servers", task.bootstrap)
        limited = reader.option("subscribe", task.topic).option("startingOffsets", "earliest")
        return limited.option("maxOffsetsPerTrigger", -(-task.records // STREAM_BATCHES)).load()

    def _streamed(self, rows: DataFrame, mode: str) -> Seen:
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as checkpoint:
            writer = rows.writeStream.format("noop").outputMode(mode).option("checkpointLocation", checkpoint)
            begun, started = time.time(), time.perf_counter()
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            seconds = time.perf_counter() - started
            reports = [report for report in query.recentProgress if report["numInputRows"]]
        first = reports[0]
        first_s = datetime.fromisoformat(first["timestamp"]).timestamp() - begun
        first_s += first["durationMs"]["triggerExecution"] / 1000
        return Seen(sum(report["numInputRows"] for report in reports), seconds, first_s)


def main() -> int:
    """Make the session, say so, then run line after line of standard input."""
    (name,) = sys.argv[1:]
    builder: Any = SparkSession.builder.master("local[2]").appName(f"bench-{name}")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = (configure(builder) if name == OURS else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    version = ""
    try:
        version = add_stock_connector(spark) if name == STOCK else ""
    except StockConnectorMissing as error:
        print(f"Spark's own connector cannot be fetched: {error}", file=sys.stderr)
        return 1
    arm = Arm(spark, name)
    print(ANSWER + json.dumps({"version": version}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked is None:
            arm.clean()
            print(ANSWER + "{}", flush=True)
        else:
            print(ANSWER + json.dumps(arm.run(Task(*asked))._asdict()), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
