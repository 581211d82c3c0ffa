"""The same with Spark: sums of each micro-batch go into MariaDB exactly once, by foreachBatch.

    python spark_store.py --brokers 127.0.0.1:9092 --topic payments --checkpoint DIR --socket /run/mysqld/mysqld.sock --database shop

Needs barnabas[spark] and PyMySQL; the tables are those of schema.sql and spark_schema.sql.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pymysql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
RECORDS_PER_BATCH = 10_000


class Fenced(Exception):
    """Another driver runs this query now."""


def own(database: pymysql.connections.Connection, query: str) -> int:
    """Take the query over from whoever ran it; returns the generation that its batches need."""
    with database.cursor() as cursor:
        cursor.execute(
            "INSERT INTO stored_batches VALUES (%s, -1, 1) ON DUPLICATE KEY UPDATE generation = generation + 1",
            (query,),
        )
        cursor.execute("SELECT generation FROM stored_batches WHERE query = %s", (query,))
        row = cursor.fetchone()
    assert row is not None, "the row was written a moment ago, in this transaction"
    database.commit()
    return int(row[0])


def storing(database: pymysql.connections.Connection, query: str, generation: int) -> Callable[[DataFrame, int], None]:
    """What foreachBatch calls. Spark gives a batch again, with the same id and the same records, when it does not know that it was
    stored; the number of the last one is a row of the database, changed with the results."""

    def store(batch: DataFrame, batch_id: int) -> None:
        sums = batch.groupBy("key").agg(F.sum(F.col("value").cast("long")), F.count("*")).collect()
        try:
            with database.cursor() as cursor:
                cursor.execute("SELECT batch_id, generation FROM stored_batches WHERE query = %s FOR UPDATE", (query,))
                row = cursor.fetchone()
                assert row is not None, "`own` made the row"
                last, owner = row
                if owner != generation:
                    raise Fenced(f"{query} is run by another driver now")
                if batch_id > last:
                    cursor.execute("UPDATE stored_batches SET batch_id = %s WHERE query = %s", (batch_id, query))
                    cursor.executemany(
                        "INSERT INTO totals VALUES (%s, %s, %s)"
                        " ON DUPLICATE KEY UPDATE amount = amount + VALUES(amount), payments = payments + VALUES(payments)",
                        [tuple(found) for found in sums],
                    )
            database.commit()
        except BaseException:
            database.rollback()
            raise

    return store


def main() -> None:
    """Read the command line, run the query until it is stopped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name in ("brokers", "topic", "checkpoint", "socket", "database"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    options = parser.parse_args()
    database = pymysql.connect(
        unix_socket=options.socket, user=options.user, password=options.password, database=options.database
    )
    builder = SparkSession.builder.master("local[2]").appName("payments")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    payments = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .load()
        .select(F.col("key").cast("string"), F.col("value").cast("string"))
    )
    store = storing(database, options.checkpoint, own(database, options.checkpoint))
    payments.writeStream.foreachBatch(store).option("checkpointLocation", options.checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
