"""A Spark program for the tests of Spark's clusters: reads a topic in a batch, writes it at least once, streams it exactly once.

May touch:  Spark, wherever it is told that one runs.     Must not touch: processes, the tests' own modules.
Invariants: it says what Spark saw in one line of JSON behind FOUND; what it wrote others judge.
Read next:  test_spark_clusters.py.

    python -m tests.ecosystem.spark_client '{"remote": "sc://127.0.0.1:15002", "source": {…}, "written": …, "exact": …, "checkpoint": …}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    import pyarrow as pa

MICRO_BATCHES = 8
EXECUTORS_S = 120.0


def connect(asked: dict[str, Any]) -> SparkSession:
    """A session at the server of Spark Connect that is named, or at the master."""
    builder: Any = SparkSession.builder
    if "remote" in asked:
        found: SparkSession = builder.remote(asked["remote"]).getOrCreate()
        return found
    from pyspark_barnabas import configure

    builder = configure(builder.master(asked["master"]).appName("spark-client"))
    for name, value in asked.get("conf", {}).items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    wait_for_executors(spark, asked.get("executors", 0))
    return spark


def wait_for_executors(spark: SparkSession, count: int) -> None:
    """Until so many have come: the first tasks would all go to the first. Raises TimeoutError."""
    deadline = time.monotonic() + EXECUTORS_S
    while (
        count and len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1 < count
    ):  # one is the driver
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} executors did not come within {EXECUTORS_S:.0f} s")
        time.sleep(0.1)


def readers(rows: DataFrame) -> dict[int, int]:
    """Rows that each executor read, by the id of its process."""

    def where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as arrow

        # This process was forked by Spark's daemon, which the executor started.
        executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
        for batch in batches:
            yield arrow.RecordBatch.from_pydict({"executor": [executor], "rows": [batch.num_rows]})

    found = rows.mapInArrow(where, "executor long, rows long").collect()
    counts: dict[int, int] = {}
    for row in found:
        counts[row.executor] = counts.get(row.executor, 0) + row.rows
    return counts


def main() -> int:
    """Read, write, stream, report."""
    asked = json.loads(sys.argv[1])
    source = asked["source"]
    cluster = {"kafka.bootstrap.servers": source["kafka.bootstrap.servers"]}
    spark = connect(asked)
    rows = spark.read.format("barnabas").options(**source).load()
    by_executor = readers(rows)
    topics = spark.read.format("barnabas.meta").options(**cluster).load("topics")
    known = sorted(row.topic for row in topics.select("topic").collect())

    writer = rows.selectExpr("key", "value").write.format("barnabas").mode("append")
    writer.options(**cluster, topic=asked["written"]).save()

    limit = str(sum(by_executor.values()) // MICRO_BATCHES)
    stream = (
        spark.readStream.format("barnabas")
        .options(**source, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        .load()
        .repartition(4)  # so that tasks other than the source's write
        .selectExpr("key", "value")
    )
    query = (
        stream.writeStream.format("barnabas")
        .options(
            **cluster,
            topic=asked["exact"],
            mode="exactly_once",
            transactionalIdPrefix=asked["exact"],
            checkpointLocation=asked["checkpoint"],
        )
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("FOUND " + json.dumps({"by_executor": by_executor, "topics": known}), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
