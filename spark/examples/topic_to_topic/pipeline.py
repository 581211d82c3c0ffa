"""Copies payments from a topic to another exactly once, adding what the receiver needs: the fee, and where the record came from.

    python pipeline.py --brokers 127.0.0.1:9092 --source payments --target charged --checkpoint /tmp/charged

Needs barnabas[spark] and Java. Stop it or kill it at any time: started again with the same checkpoint it continues, and each payment is in
the target once. It reads what is there and ends; with --follow it continues for ever.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def charged(payments: DataFrame) -> DataFrame:
    """key: the account; value: JSON of amount, fee (1 %, at least 1) and the place of the payment in the source."""
    amount = F.col("value").cast("string").cast("long")
    place = F.concat_ws("-", "topic", "partition", "offset")
    return payments.select(
        "key",
        F.to_json(
            F.struct(
                amount.alias("amount"), F.greatest(F.lit(1), F.floor(amount / 100)).alias("fee"), place.alias("source")
            )
        ).alias("value"),
    )


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

    spark = SparkSession.builder.master(options.master).appName("topic-to-topic").getOrCreate()
    payments = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.per_trigger)
        .load()
    )
    writer = (
        charged(payments)
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
