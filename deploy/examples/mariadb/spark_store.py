"""The same with Spark: each micro-batch and its offsets go to MariaDB in one transaction, by `foreachBatch`.

    python spark_store.py --brokers 127.0.0.1:9092 --group payments --topic payments --socket /run/mysqld/mysqld.sock --database shop \\
        --checkpoint /var/lib/payments

Needs `barnabas[spark]` and PyMySQL; the tables are those of schema.sql. Kill it at any time, and start it again with its checkpoint.

Spark gives a batch again that it does not know to be done: after a crash between the database's commit and Spark's own note of it. So the
rows of `stored_offsets` decide what is new, not the number of the batch; a second program that runs meanwhile loses its transaction.
"""

from __future__ import annotations

import argparse

import pymysql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


class Fenced(Exception):
    """Another program has stored records of the partition meanwhile: nothing of this batch is stored."""


class Store:
    """The database's side of one query."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    def store(self, batch: DataFrame, _batch_id: int) -> None:
        """Totals and offsets of one micro-batch, in one transaction. Raises Fenced, and then nothing is stored."""
        database = pymysql.connect(
            unix_socket=self._options.socket,
            user=self._options.user,
            password=self._options.password,
            database=self._options.database,
        )
        try:
            before = self._next_offsets(database)
            batch.persist()  # it is asked twice; a second reading of the topic would be a second batch
            ends = {
                row["partition"]: row["end"] + 1
                for row in batch.groupBy("partition").agg(F.max("offset").alias("end")).collect()
            }
            is_new = F.lit(False)
            for partition in ends:
                is_new = is_new | ((F.col("partition") == partition) & (F.col("offset") >= before.get(partition, 0)))
            totals = (
                batch.where(is_new)
                .groupBy(F.col("key").cast("string").alias("account"))
                .agg(F.sum(F.col("value").cast("string").cast("long")).alias("amount"), F.count("*").alias("payments"))
                .collect()
            )  # a row for each account of one batch: the driver has room for those
            self._write(
                database, before, ends, sorted((row["account"], row["amount"], row["payments"]) for row in totals)
            )
        finally:
            batch.unpersist()
            database.close()

    def _next_offsets(self, database: pymysql.connections.Connection) -> dict[int, int]:
        with database.cursor() as cursor:
            cursor.execute(
                "SELECT `partition`, next_offset FROM stored_offsets WHERE consumer_group = %s AND topic = %s",
                (self._options.group, self._options.topic),
            )
            found = dict(cursor.fetchall())
        database.commit()
        return found

    def _write(
        self,
        database: pymysql.connections.Connection,
        before: dict[int, int],
        ends: dict[int, int],
        totals: list[tuple[str, int, int]],
    ) -> None:
        where = (self._options.group, self._options.topic)
        try:
            with database.cursor() as cursor:
                for partition, end in sorted(ends.items()):  # the same order everywhere: no deadlock
                    stored = before.get(partition, 0)
                    if end <= stored:
                        continue
                    cursor.execute("INSERT IGNORE INTO stored_offsets VALUES (%s, %s, %s, 0, 0)", (*where, partition))
                    changed = cursor.execute(
                        "UPDATE stored_offsets SET next_offset = %s WHERE consumer_group = %s AND topic = %s AND `partition` = %s"
                        " AND next_offset = %s",
                        (end, *where, partition, stored),
                    )
                    if changed != 1:
                        raise Fenced(f"{self._options.topic}-{partition} is stored by another program")
                cursor.executemany(
                    "INSERT INTO totals VALUES (%s, %s, %s)"
                    " ON DUPLICATE KEY UPDATE amount = amount + VALUES(amount), payments = payments + VALUES(payments)",
                    totals,
                )
            database.commit()
        except BaseException:
            database.rollback()
            raise


def run(options: argparse.Namespace) -> None:
    """Store what the topic has and end; with --follow go on with what comes."""
    spark = (
        SparkSession.builder.master(options.master)
        .appName("spark-store")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    payments = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", options.per_trigger)
        .load()
    )
    writer = payments.writeStream.foreachBatch(Store(options).store).option("checkpointLocation", options.checkpoint)
    (writer if options.follow else writer.trigger(availableNow=True)).start().awaitTermination()


def main() -> None:
    """Read the command line, run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--brokers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--group", required=True, help="under which the offsets are kept in the database")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--socket", required=True, help="of the database")
    parser.add_argument("--database", required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--checkpoint", required=True, help="directory that outlives this program")
    parser.add_argument("--master", default="local[2,4]", help="a failed task is tried four times")
    parser.add_argument("--per-trigger", default="10000", help="most records of a micro-batch")
    parser.add_argument("--follow", action="store_true")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
