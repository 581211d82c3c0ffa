"""Stores payments in MariaDB exactly once: results and offsets in one transaction of the database.

    python store.py --brokers 127.0.0.1:9092 --group payments --topic payments --socket /run/mysqld/mysqld.sock --database shop

Needs confluent-kafka and PyMySQL; the tables are those of schema.sql. Stop it at any time, start as many as the topic has partitions.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict

import pymysql
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

BATCH = 500
WAIT_S = 0.5


class Fenced(Exception):
    """Another consumer has been assigned the partition meanwhile: what was read here is stored there."""


class Store:
    """The database's side of one consumer."""

    def __init__(self, database: pymysql.connections.Connection, group: str) -> None:
        """database: without autocommit."""
        self._database = database
        self._group = group
        self._generations: dict[tuple[str, int], int] = {}
        """Of the partitions that this consumer owns."""

    def own(self, partition: TopicPartition) -> int:
        """Take a partition over from whoever had it; returns the offset to go on at."""
        key = (self._group, partition.topic, partition.partition)
        with self._database.cursor() as cursor:
            cursor.execute(
                "INSERT INTO stored_offsets VALUES (%s, %s, %s, 0, 1) ON DUPLICATE KEY UPDATE generation = generation + 1",
                key,
            )
            cursor.execute(
                "SELECT next_offset, generation FROM stored_offsets WHERE consumer_group = %s AND topic = %s AND `partition` = %s",
                key,
            )
            row = cursor.fetchone()
        assert row is not None, "the row was written a moment ago, in this transaction"
        self._database.commit()
        next_offset, generation = row
        self._generations[partition.topic, partition.partition] = generation
        return int(next_offset)

    def store(self, messages: list[Message]) -> None:
        """Results and offsets, in one transaction. Raises Fenced, and then nothing is stored."""
        totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            account, amount = (message.key() or b"").decode(), int(message.value() or 0)
            totals[account][0] += amount
            totals[account][1] += 1
            ends[str(message.topic()), message.partition() or 0] = (message.offset() or 0) + 1
        try:
            with self._database.cursor() as cursor:
                for (topic, partition), end in sorted(ends.items()):  # the same order everywhere: no deadlock
                    changed = cursor.execute(
                        "UPDATE stored_offsets SET next_offset = %s WHERE consumer_group = %s AND topic = %s AND `partition` = %s"
                        " AND generation = %s",
                        (end, self._group, topic, partition, self._generations.get((topic, partition))),
                    )
                    if changed != 1:
                        raise Fenced(f"{topic}-{partition} belongs to another consumer now")
                cursor.executemany(
                    "INSERT INTO totals VALUES (%s, %s, %s)"
                    " ON DUPLICATE KEY UPDATE amount = amount + VALUES(amount), payments = payments + VALUES(payments)",
                    [(account, amount, count) for account, (amount, count) in sorted(totals.items())],
                )
            self._database.commit()
        except BaseException:
            self._database.rollback()
            raise


def run(options: argparse.Namespace) -> None:
    """Consume until the process ends."""
    database = pymysql.connect(
        unix_socket=options.socket, user=options.user, password=options.password, database=options.database
    )
    store = Store(database, options.group)
    consumer = Consumer(
        {
            "bootstrap.servers": options.brokers,
            "group.id": options.group,
            "enable.auto.commit": False,  # the offsets are in the database, and nowhere else
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
        }
    )

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = store.own(partition)
        consumer.assign(partitions)

    consumer.subscribe([options.topic], on_assign=on_assign)
    try:
        while True:
            messages = consumer.consume(BATCH, WAIT_S)
            for message in messages:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
            if messages:
                try:
                    store.store(messages)
                except Fenced as fenced:
                    # Whoever owns the partition now reads these records too. Begin anew with what is stored.
                    print(fenced, file=sys.stderr)
                    on_assign(consumer, consumer.assignment())
    finally:
        consumer.close()


def main() -> None:
    """Read the command line, run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--brokers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--socket", required=True, help="of the database")
    parser.add_argument("--database", required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
