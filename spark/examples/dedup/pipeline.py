"""Copies a topic whose producers send records again, each id once.

    python pipeline.py --brokers 127.0.0.1:9092 --source sent --target once --checkpoint /tmp/once

Needs barnabas[spark] and Java. Stop it or kill it at any time: started again with the same checkpoint it continues, and each id is in the
target once. It reads what is there and ends; with --follow it continues for ever.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_barnabas import configure
from pyspark_barnabas.json_values import from_json_schema

AGAIN = "1 hour"
"""How much later the same id may come again, in the records' own time."""


def once(sent: DataFrame) -> DataFrame:
    """key and value of the first record of each id."""
    events = from_json_schema(sent, schema="id string, at bigint", into="event")
    timed = events.select(
        "key", "value", F.col("event.id").alias("id"), F.timestamp_millis(F.col("event.at")).alias("at")
    )
    return timed.withWatermark("at", AGAIN).dropDuplicatesWithinWatermark(["id"]).select("key", "value")


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

    builder = SparkSession.builder.master(options.master).appName("dedup")
    spark = configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
    sent = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.per_trigger)
        .load()
    )
    writer = (
        once(sent)
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
