"""Kafka Streams on Barnabas: counts, windows and a join with exactly_once_v2, while an instance and brokers are killed."""

from __future__ import annotations

import struct
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster
from tests.ecosystem.java import IS_FULL, JavaProgram, build

PARTITIONS = 3
INSTANCES = 2
RECORDS = 20_000 if IS_FULL else 1_500
KILLS = 6 if IS_FULL else 1
DEADLINE_S = 900.0 if IS_FULL else 150.0
WORDS = ["wind", "rain", "sun", "snow", "fog", "hail", "storm", "calm"]
CUSTOMERS = {f"c{number}": f"name-{number}" for number in range(40)}
WINDOW_MS = 10_000
OUTPUTS = ("words", "sums", "joined")


class Expected:
    """What the input says the output must be."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        now_ms = int(time.time() * 1000) - 600_000
        self.lines = [" ".join(random.choices(WORDS, k=4)) for _ in range(RECORDS)]
        self.events = [
            (f"e{random.randrange(20)}", random.randrange(100), now_ms + 37 * number) for number in range(RECORDS)
        ]
        self.orders = [(random.choice(list(CUSTOMERS)), f"order-{number}") for number in range(RECORDS)]
        self.words = Counter(word for line in self.lines for word in line.split())
        self.sums: Counter[str] = Counter()
        self.updates: Counter[str] = Counter()
        for key, value, timestamp_ms in self.events:
            window = f"{key}@{timestamp_ms // WINDOW_MS * WINDOW_MS}"
            self.sums[window] += value
            self.updates[window] += 1
        self.joined = Counter(f"{order}:{CUSTOMERS[customer]}" for customer, order in self.orders)

    @property
    def outputs(self) -> int:
        """Records of all outputs: every update is written."""
        return self.words.total() + len(self.events) + self.joined.total()

    def write(self, bootstrap: str) -> None:
        """All inputs; the customers first."""
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for customer, name in CUSTOMERS.items():
            producer.produce("customers", name, customer)
        assert producer.flush(30) == 0
        for number in range(RECORDS):
            producer.produce("lines", self.lines[number], str(number))
            key, value, timestamp_ms = self.events[number]
            producer.produce("events", struct.pack(">q", value), key, timestamp=timestamp_ms)
            customer, order = self.orders[number]
            producer.produce("orders", order, customer)
            producer.poll(0)
        assert producer.flush(60) == 0


@pytest.fixture
def compiled(jars: None, tmp_path: Path) -> Path:
    build("Pipelines.java", tmp_path)
    return tmp_path


def test_streams_computes_exactly_once_what_its_input_says(cluster: LocalCluster, compiled: Path) -> None:
    run_pipelines(cluster, compiled, "classic")


def run_pipelines(cluster: LocalCluster, compiled: Path, protocol: str) -> None:
    """Run the programs over their input, with kills, and hold what comes out against what the input says.

    Args:
        protocol: group.protocol of the application.
    """
    expected = Expected(seed=11)
    make_topics(cluster.bootstrap_servers)
    expected.write(cluster.bootstrap_servers)
    random = Random(12)

    def start(number: int) -> JavaProgram:
        return JavaProgram(
            "Pipelines",
            compiled,
            cluster.bootstrap_servers,
            "pipelines",
            str(compiled / f"state-{number}"),
            protocol,
            f"127.0.0.1:{7_000 + number}",
        )

    instances = [start(number) for number in range(INSTANCES)]
    killed = 0
    seen: dict[str, dict[str, list[str]]] = {topic: defaultdict(list) for topic in OUTPUTS}
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe(list(OUTPUTS))
    count, last = 0, time.monotonic()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while count < expected.outputs or time.monotonic() - last < 3:
            assert time.monotonic() < deadline, (
                f"{count} of {expected.outputs} results: {instances[0].output.read_text()[-2000:]}"
            )
            for message in reader.consume(1_000, 0.5):
                topic, key, value = message.topic(), message.key(), message.value()
                if message.error() is None and topic is not None and key is not None and value is not None:
                    seen[topic][key.decode()].append(value.decode())
                    count, last = count + 1, time.monotonic()
            if killed < KILLS and count > expected.outputs * (killed + 1) / (KILLS + 2):
                victim = random.randrange(INSTANCES)
                instances[victim].kill()
                instances[victim] = start(victim)
                node = cluster.brokers[killed % len(cluster.brokers)]
                cluster.kill(node.id)
                cluster.start_node(node.id)
                killed += 1
    finally:
        reader.close()
        for instance in instances:
            instance.kill()
    assert killed == KILLS
    for word, total in expected.words.items():
        assert [int(each) for each in seen["words"][word]] == list(range(1, total + 1)), word
    assert {window: int(values[-1]) for window, values in seen["sums"].items()} == dict(expected.sums)
    assert {window: len(values) for window, values in seen["sums"].items()} == dict(expected.updates)
    assert Counter(value for values in seen["joined"].values() for value in values) == expected.joined


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, 3) for name in ("lines", "events", "orders", *OUTPUTS)]
    topics.append(NewTopic("customers", PARTITIONS, 3, config={"cleanup.policy": "compact"}))
    for made in admin.create_topics(topics).values():
        made.result(30)
