"""The Spark pipelines that are shipped: each killed in the middle, started again from its checkpoint, and right in the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster, find_base_port
from tests.ecosystem.java import IS_FULL
from tests.support.clusters import ForkedCluster

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(1_000)
EXAMPLES = Path(__file__).resolve().parents[2] / "spark" / "examples"
PARTITIONS = 3
PAYMENTS = 60_000 if IS_FULL else 6_000
KILLS = 4 if IS_FULL else 1
DEADLINE_S = 900.0 if IS_FULL else 600.0
"""Of one pipeline. A quiet machine needs 30 s for a start of Spark, a busy one minutes."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer")
    with ForkedCluster(tmp_path_factory.mktemp("brokers"), nodes=3, base_port=find_base_port()) as running:
        yield running


def pay(brokers: LocalCluster, topic: str, count: int) -> dict[str, list[int]]:
    """Payments of fifty accounts; what they sum up to, and how many they are, by account."""
    expected: dict[str, list[int]] = {}
    settings = {"enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, **settings})
    for at in range(count):
        account, amount = f"account-{at % 50}", at % 997 + 1
        total = expected.setdefault(account, [0, 0])
        total[0] += amount
        total[1] += 1
        producer.produce(topic, str(amount), account, partition=at % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    return expected


def create(brokers: LocalCluster, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 3) for topic in topics]).values():
        future.result(30)


def run_with_kills(program: Path, words: list[str], checkpoint: Path, log: Path) -> None:
    """Start the program until it ends by itself; each time it has committed another micro-batch it is killed, KILLS times."""
    killed = 0
    deadline = time.monotonic() + DEADLINE_S
    while True:
        before = commits(checkpoint)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, str(program), *words, "--checkpoint", str(checkpoint)],
                stdout=output,
                stderr=output,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
                start_new_session=True,  # its JVM and its Python workers are killed with it
            )
        try:
            while process.poll() is None:
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                if killed < KILLS and commits(checkpoint) > before:
                    killed += 1
                    break
                time.sleep(0.05)
            if process.poll() is not None:
                assert process.returncode == 0, log.read_text()[-3000:]
                assert killed == KILLS, f"it ended after {killed} kills"
                return
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def commits(checkpoint: Path) -> int:
    place = checkpoint / "commits"
    return len([name for name in place.iterdir() if name.name.isdecimal()]) if place.is_dir() else 0


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


def test_topic_to_topic(brokers: LocalCluster, tmp_path: Path) -> None:
    create(brokers, "payments", "charged")
    expected = pay(brokers, "payments", PAYMENTS)
    words = ["--brokers", brokers.bootstrap_servers, "--source", "payments", "--target", "charged"]
    words += ["--per-trigger", str(PAYMENTS // (2 + 2 * KILLS))]
    run_with_kills(EXAMPLES / "topic_to_topic" / "pipeline.py", words, tmp_path / "checkpoint", tmp_path / "log")
    found = committed(brokers, "charged")
    assert set(Counter(row["source"] for _, row in found).values()) == {1}
    totals: dict[str, list[int]] = {}
    for account, row in found:
        assert row["fee"] == max(1, row["amount"] // 100)
        total = totals.setdefault(account, [0, 0])
        total[0] += row["amount"]
        total[1] += 1
    assert totals == expected
