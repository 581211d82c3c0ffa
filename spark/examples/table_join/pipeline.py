"""Adds to each payment what a compacted topic says of its account now.

    python pipeline.py --brokers 127.0.0.1:9092 --source payments --table accounts --target enriched --checkpoint /tmp/enriched

Needs barnabas[spark] and Java. Stop it or kill it at any time: started again with the same checkpoint it continues, and each payment is in
the target once. It reads what is there and ends; with --follow it continues for ever.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_barnabas import configure


def enriched(payments: DataFrame, accounts: DataFrame) -> DataFrame:
    """key: the account; value: JSON of the payment, and the account's owner where the table has one."""
    owners = accounts.select(F.col("key").alias("account"), F.col("value").cast("string").alias("owner"))
    joined = payments.join(owners, F.col("key") == F.col("account"), "left")
    place = F.concat_ws("-", "topic", "partition", "offset").alias("source")
    value = F.to_json(F.struct(F.col("value").cast("string").cast("long").alias("amount"), "owner", place))
    return joined.select("key", value.alias("value"))


def main() -> None:
    """Read the command line, run the query."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--brokers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--source", required=True)
    parser.add_argument("--table", required=True, help="compacted topic")
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True, help="directory that outlives this program")
    parser.add_argument("--master", default="local[2,4]", help="a failed task is tried four times")
    parser.add_argument("--per-trigger", default="10000", help="most records of a micro-batch")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()

    spark = configure(SparkSession.builder.master(options.master).appName("table-join")).getOrCreate()
    payments = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.per_trigger)
        .load()
    )
    accounts = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.table)
        .option("mode", "table")
        .option("columns", "key,value")
        .load()
    )
    writer = (
        enriched(payments, accounts)
        .writeStream.format("barnabas")
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
