"""Joins orders with the payment of each, which may come up to an hour later; an order that nobody paid comes out without one.

    python pipeline.py --brokers 127.0.0.1:9092 --orders orders --payments paid --target settled --checkpoint /tmp/settled

Needs barnabas[spark] and Java. Stop it or kill it at any time: started again with the same checkpoint it continues, and each order is in
the target once. It reads what is there and ends; with --follow it continues for ever.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_barnabas import configure
from pyspark_barnabas.json_values import from_json_schema

LATE = "10 minutes"
"""How much later than others a record may come, in the records' own time."""


def settled(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """key: the order; value: JSON of its amount and what was paid; without `paid` when nothing was within an hour."""
    ordered = from_json_schema(orders, schema="at bigint, amount bigint", into="order").select(
        F.col("key").cast("string").alias("id"),
        F.timestamp_millis(F.col("order.at")).alias("ordered_at"),
        F.col("order.amount").alias("amount"),
    )
    paid = from_json_schema(payments, schema="at bigint, paid bigint", into="payment").select(
        F.col("key").cast("string").alias("of"),
        F.timestamp_millis(F.col("payment.at")).alias("paid_at"),
        F.col("payment.paid").alias("paid"),
    )
    joined = ordered.withWatermark("ordered_at", LATE).join(
        paid.withWatermark("paid_at", LATE),
        F.expr("id = of AND paid_at >= ordered_at AND paid_at <= ordered_at + INTERVAL 1 HOUR"),
        "leftOuter",
    )
    return joined.select(F.col("id").alias("key"), F.to_json(F.struct("amount", "paid")).alias("value"))


def main() -> None:
    """Read the command line, run the query."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--brokers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--orders", required=True)
    parser.add_argument("--payments", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True, help="directory that outlives this program")
    parser.add_argument("--master", default="local[2,4]", help="a failed task is tried four times")
    parser.add_argument("--per-trigger", default="10000", help="most records of a micro-batch, of each topic")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()

    builder = SparkSession.builder.master(options.master).appName("stream-join")
    spark = configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()

    def stream(topic: str) -> DataFrame:
        return (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", options.brokers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", options.per_trigger)
            .load()
        )

    writer = (
        settled(stream(options.orders), stream(options.payments))
        .writeStream.format("barnabas")
        .outputMode("append")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("topic", options.target)
        .option("mode", "exactly_once")
        .option("transactionalIdPrefix", f"{options.orders}-to-{options.target}")
        .option("checkpointLocation", options.checkpoint)
    )
    query = (writer if options.follow else writer.trigger(availableNow=True)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
