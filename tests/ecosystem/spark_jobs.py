"""Spark programs as processes that are killed: what the tests of the shipped pipelines have in common.

May touch:  processes it starts, a cluster of the test's own.     Must not touch: the product's modules.
Invariants: a program is killed with its JVM and its Python workers, by SIGKILL, after it has committed another micro-batch; what it
    wrote is judged by librdkafka, not by ours.
Read next:  test_spark_pipelines.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster
from tests.ecosystem.java import IS_FULL

EXAMPLES = Path(__file__).resolve().parents[2] / "spark" / "examples"
PARTITIONS = 3
DEADLINE_S = 900.0 if IS_FULL else 600.0
"""Of one pipeline. A quiet machine needs 30 s for a start of Spark, a busy one minutes."""

TOO_BUSY = "SparkException: Python worker failed to connect back."
"""What Spark says when a worker takes more than its 10 s to start, as on a machine with much else to do."""
BUSY_MAX = 12


def create(brokers: LocalCluster, *topics: str, **configs: str) -> None:
    """Topics of three partitions; config keys with _ for the dot."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 3, config=settings) for topic in topics])
    for future in made.values():
        future.result(30)


def send(brokers: LocalCluster, topic: str, records: Iterable[tuple[str | None, Any]]) -> None:
    """Key and value of each record, a value that is no text as JSON; partitions in turn, or by the key with `by_key`."""
    settings = {"enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, **settings})
    for at, (key, value) in enumerate(records):
        text = value if value is None or isinstance(value, str) else json.dumps(value)
        producer.produce(topic, text, key, partition=at % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def send_by_key(brokers: LocalCluster, topic: str, records: Iterable[tuple[str, str | None]]) -> None:
    """As `send`, each record where its key belongs."""
    settings = {"enable.idempotence": True, "partitioner": "murmur2_random"}
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, **settings})
    for key, value in records:
        producer.produce(topic, value, key)
        producer.poll(0)
    assert producer.flush(60) == 0


def run(pipeline: str, words: list[str], place: Path, *, kills: int) -> None:
    """Start a shipped program until it ends by itself; after another committed micro-batch it is killed, so many times."""
    program = [sys.executable, str(EXAMPLES / pipeline / "pipeline.py")]
    checkpoint = place / "checkpoint"
    run_command([*program, *words, "--checkpoint", str(checkpoint)], checkpoint, place / "log", kills=kills)


def run_command(command: list[str], checkpoints: Path, log: Path, *, kills: int, directory: Path | None = None) -> None:
    """The same for any command. checkpoints: of its query, or a directory of theirs. directory: where it runs."""
    killed = busy = 0
    deadline = time.monotonic() + DEADLINE_S
    while True:
        before = commits(checkpoints)
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                cwd=directory,
                start_new_session=True,  # its JVM and its Python workers are killed with it
            )
        try:
            while process.poll() is None:
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                if killed < kills and commits(checkpoints) > before:
                    killed += 1
                    break
                time.sleep(0.05)
            if process.poll() is not None:
                said = log.read_text()
                if process.returncode != 0 and said.count(TOO_BUSY) in range(busy + 1, BUSY_MAX + 1):
                    busy = said.count(TOO_BUSY)  # as good as a kill: it is started again
                    continue
                assert process.returncode == 0, said[-3000:]
                assert killed == kills, f"it ended after {killed} kills"
                return
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def commits(checkpoints: Path) -> int:
    """Micro-batches that the query, or the queries, have finished."""
    place = checkpoints / "commits"
    places = [place] if place.is_dir() else list(checkpoints.rglob("commits"))
    return len([name for place in places for name in place.iterdir() if name.name.isdecimal()])


def committed(brokers: LocalCluster, topic: str) -> list[tuple[str, dict[str, Any]]]:
    """Key and value of every record that a reader of committed data gets."""
    settings = {"group.id": "judge", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap_servers, **settings})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    left, found = set(range(PARTITIONS)), []
    deadline = time.monotonic() + 60
    while left:
        assert time.monotonic() < deadline, "a transaction stays open"
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                found.append(((message.key() or b"").decode(), json.loads(message.value() or b"")))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
    consumer.close()
    return found
