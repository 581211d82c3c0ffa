"""Connect distributed and MirrorMaker 2 on Barnabas.

Files go through a topic while a worker is killed; a topic and a group go to another cluster."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.ecosystem.java import CONNECT, IS_FULL, JavaProgram
from tests.support.clusters import ForkedCluster

pytestmark = pytest.mark.skipif(not IS_FULL, reason="workers take half a minute to start: make ecosystem runs it")
LINES = 20_000
KILLS = 4
DEADLINE_S = 240.0
CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
MIRRORED, GROUP = "orders", "readers"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_properties(path: Path, properties: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


class Worker:
    """One Connect worker; started again under the same address."""

    def __init__(self, bootstrap: str, directory: Path, number: int) -> None:
        self.port = free_port()
        self._directory = directory
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "key.converter": CONVERTER,
            "value.converter": CONVERTER,
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "offset.storage.partitions": "3",
            "status.storage.topic": "connect-status",
            "status.storage.partitions": "2",
            "listeners": f"http://127.0.0.1:{self.port}",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "1000",
            "plugin.discovery": "service_load",
        }
        self._file = write_properties(directory / f"worker-{number}.properties", properties)
        self.program = self._start()

    def _start(self) -> JavaProgram:
        return JavaProgram("org.apache.kafka.connect.cli.ConnectDistributed", self._directory, self._file, pom=CONNECT)

    def kill_and_start(self) -> None:
        """SIGKILL, and again."""
        self.program.kill()
        self.program = self._start()

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """GET, or PUT of a body. Raises OSError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data,
            {"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


def configure(worker: Worker, name: str, config: dict[str, str]) -> None:
    def is_taken() -> bool:
        try:
            worker.ask(f"/connectors/{name}/config", config)
        except (urllib.error.URLError, OSError):  # it starts, or its group rebalances
            return False
        return True

    until(is_taken, lambda: worker.program.output.read_text()[-2000:])


def read_committed(bootstrap: str, topic: str) -> list[str]:
    """All that is committed, in the order of its only partition."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 1.5:
        for message in reader.consume(5_000, 0.3):
            value = message.value()
            if message.error() is None and value is not None:
                found.append(value.decode())
                quiet_since = time.monotonic()
    reader.close()
    return found


def test_connect_copies_a_file_through_a_topic_while_a_worker_is_killed(cluster: LocalCluster, tmp_path: Path) -> None:
    bootstrap = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("copied", 1, 3)])["copied"].result(30)
    lines = [f"line {number}" for number in range(LINES)]
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("")
    with ExitStack() as stack:
        workers = [Worker(bootstrap, tmp_path, number) for number in range(2)]
        stack.callback(_kill_all, workers)
        file_stream = "org.apache.kafka.connect.file.FileStream"
        settings = {"connector.class": f"{file_stream}SourceConnector", "file": str(source), "topic": "copied"}
        configure(workers[0], "source", settings | {"tasks.max": "1", "exactly.once.support": "required"})
        settings = {"connector.class": f"{file_stream}SinkConnector", "file": str(sink), "topics": "copied"}
        configure(workers[0], "sink", settings | {"tasks.max": "1"})
        for number in range(KILLS + 1):
            begin, end = (LINES * (number + place) // (KILLS + 1) for place in (0, 1))
            with source.open("a") as more:
                more.writelines(f"{line}\n" for line in lines[begin:end])
            if number == KILLS:
                _wait_for_lines(sink, end, workers)
            else:
                _wait_for_lines(sink, begin + 1, workers)  # in the middle of its work
                workers[number % 2].kill_and_start()
        # The sink reads what is not committed yet, too; of a killed worker it never would be.
        until(
            lambda: len(read_committed(bootstrap, "copied")) >= LINES, lambda: "the last transaction was not committed"
        )
    assert read_committed(bootstrap, "copied") == lines, "each line once, in order: exactly.once.source.support"
    written = sink.read_text().splitlines()
    assert list(dict.fromkeys(written)) == lines, "the file sink writes at least once, and in order"


def _kill_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.program.kill()


def _wait_for_lines(sink: Path, count: int, workers: list[Worker]) -> None:
    until(lambda: _lines(sink) >= count, lambda: f"{_lines(sink)} of {count} lines: {_said(workers)}")


def _lines(path: Path) -> int:
    return len(set(path.read_text().splitlines())) if path.exists() else 0


def _said(workers: list[Worker]) -> str:
    return "\n".join(worker.program.output.read_text()[-1500:] for worker in workers)


@pytest.fixture
def two_clusters(jars: None, tmp_path: Path) -> Iterator[tuple[LocalCluster, LocalCluster]]:
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with (
        ForkedCluster(tmp_path / "a", nodes=1, base_port=find_base_port(), overrides=overrides) as a,
        ForkedCluster(tmp_path / "b", nodes=1, base_port=find_base_port(), overrides=overrides) as b,
    ):
        yield a, b


def test_mirrormaker_copies_a_topic_and_a_group_to_another_cluster(
    two_clusters: tuple[LocalCluster, LocalCluster], tmp_path: Path
) -> None:
    a, b = (each.bootstrap_servers for each in two_clusters)
    admin = AdminClient({"bootstrap.servers": a})
    admin.create_topics([NewTopic(MIRRORED, 1, 1)])[MIRRORED].result(30)
    producer = Producer({"bootstrap.servers": a})
    orders = [f"order-{number}" for number in range(LINES)]
    for order in orders:
        producer.produce(MIRRORED, order, order, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0
    reader = Consumer({"bootstrap.servers": a, "group.id": GROUP, "enable.auto.commit": False})
    reader.commit(offsets=[TopicPartition(MIRRORED, 0, LINES // 2)], asynchronous=False)
    reader.close()
    one = {f"{name}.replication.factor": "1" for name in ("config.storage", "offset.storage", "status.storage")}
    topics = {f"{name}.topic.replication.factor": "1" for name in ("checkpoints", "heartbeats", "offset-syncs")}
    properties = {
        "clusters": "a, b",
        "a.bootstrap.servers": a,
        "b.bootstrap.servers": b,
        "a->b.enabled": "true",
        "b->a.enabled": "false",
        "a->b.topics": MIRRORED,
        "a->b.groups": GROUP,
        "replication.factor": "1",
        "offset.lag.max": "0",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "offset.flush.interval.ms": "500",
        "plugin.discovery": "service_load",
        **one,
        **topics,
    }
    mirror = JavaProgram(
        "org.apache.kafka.connect.mirror.MirrorMaker",
        tmp_path,
        write_properties(tmp_path / "mm2.properties", properties),
        pom=CONNECT,
    )
    try:
        until(lambda: _end(b, f"a.{MIRRORED}") >= LINES, lambda: mirror.output.read_text()[-3000:])
        until(lambda: _committed(b) > 0, lambda: f"no offset of the group came: {mirror.output.read_text()[-3000:]}")
        committed = _committed(b)
    finally:
        mirror.kill()
    found = read_committed(b, f"a.{MIRRORED}")
    assert list(dict.fromkeys(found)) == orders, "at least once, in order"
    assert found[:committed].count(orders[LINES // 2]) == 0, "the group would skip what it has not read"


def _end(bootstrap: str, topic: str) -> int:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    try:
        known = reader.list_topics(timeout=10).topics
        return reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1] if topic in known else 0
    finally:
        reader.close()


def _committed(bootstrap: str) -> int:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        (found,) = reader.committed([TopicPartition(f"a.{MIRRORED}", 0)], timeout=10)
        return int(found.offset)
    finally:
        reader.close()
