"""Payments of a topic, with the fee that each costs, into another topic exactly once: what is wanted, not when and how it runs."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BROKERS = str(spark.conf.get("spark.pipeline.brokers"))
SOURCE = str(spark.conf.get("spark.pipeline.source"))
TARGET = str(spark.conf.get("spark.pipeline.target"))
PER_TRIGGER = str(spark.conf.get("spark.pipeline.perTrigger"))


@dp.temporary_view
def paid() -> DataFrame:
    """Account, amount, and the place of each payment in the source."""
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_TRIGGER)
        .load()
    )
    place = F.concat_ws("-", "topic", "partition", "offset")
    return records.select("key", F.col("value").cast("string").cast("long").alias("amount"), place.alias("source"))


dp.create_sink(
    name="charges",
    format="barnabas",
    options={
        "kafka.bootstrap.servers": BROKERS,
        "topic": TARGET,
        "mode": "exactly_once",
        "transactionalIdPrefix": f"{SOURCE}-to-{TARGET}",
    },
)


@dp.append_flow(target="charges")
def charge() -> DataFrame:
    """key: the account; value: JSON of amount, fee (1 %, at least 1) and source."""
    payments = spark.readStream.table("paid")
    fee = F.greatest(F.lit(1), F.floor(F.col("amount") / 100)).alias("fee")
    return payments.select("key", F.to_json(F.struct("amount", fee, "source")).alias("value"))
