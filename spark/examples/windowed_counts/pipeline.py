"""Sums payments by account and minute of their own time, counts what comes late, and leaves out what comes too late.

    python pipeline.py --brokers 127.0.0.1:9092 --source payments --target by-minute --checkpoint /tmp/by-minute

Needs barnabas[spark] and Java. Stop it or kill it at any time: started again with the same checkpoint it continues, and each window is in
the target once. It reads what is there and ends; with --follow it continues for ever.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_barnabas import configure
from pyspark_barnabas.json_values import from_json_schema

LATE = "10 minutes"
"""How long a window waits for payments that are late, in their own time."""


def sums(payments: DataFrame) -> DataFrame:
    """key: the account; value: JSON of a window's begin, sum and count. A window comes out once, when its time is over."""
    events = from_json_schema(payments, schema="at bigint, amount bigint", into="event")
    timed = events.select(
        F.col("key").cast("string").alias("account"),
        F.timestamp_millis(F.col("event.at")).alias("at"),
        F.col("event.amount").alias("amount"),
    )
    windows = (
        timed.withWatermark("at", LATE)
        .groupBy("account", F.window("at", "1 minute"))
        .agg(F.sum("amount").alias("sum"), F.count("*").alias("count"))
    )
    begin = F.unix_millis("window.start").alias("begin")
    return windows.select(F.col("account").alias("key"), F.to_json(F.struct(begin, "sum", "count")).alias("value"))


def main() -> None:
    """Read the command line, run the query."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--brokers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True, help="directory that outlives this program")
    parser.add_argument("--master", default="local[2,4]", help="a failed task is tried four times")
    parser.add_argument("--per-trigger", default="10000", help="most records of a micro-batch")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()

    builder = SparkSession.builder.master(options.master).appName("windowed-counts")
    spark = configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
    payments = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.per_trigger)
        .load()
    )
    writer = (
        sums(payments)
        .writeStream.format("barnabas")
        .outputMode("append")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("topic", options.target)
        .option("mode", "exactly_once")
        .option("transactionalIdPrefix", f"{options.source}-to-{options.target}")
        .option("checkpointLocation", options.checkpoint)
    )
    query = (writer if options.follow else writer.trigger(availableNow=True)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
