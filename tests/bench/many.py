"""What many partitions cost where nobody uses them: `make bench-many`, at most 10 minutes.

May touch:  processes it starts, a temporary directory.    Must not touch: broker code.
Invariants: every partition has a record before anything is measured; CPU is read of the processes, over an idle time that begins
            after a pause; a step that does not end in time is an error, not a figure.
Read next:  docs/performance.md, Many.

One broker has `--replicas` partitions: memory, descriptors, CPU at rest, restart in order and by SIGKILL, deletion of all. Then
three brokers: CPU at rest with `--idle` partitions of three replicas each; and broker 1, which leads `--leaders` partitions, is
killed: until every one of them takes a record again. And a writer of acks=all at a steady pace, beside whom one request makes a
topic of `--beside` partitions (each number in turn, in a cluster of its own), and another deletes it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.client import AdminClient as ControlAdmin
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port

REPLICAS = 10_000
IDLE_PARTITIONS = 1_000
LEADERS = 5_000
PARTITIONS_PER_TOPIC = 1_000
SETTLE_S = 12.0
"""After writing: longer than a checkpoint and a pass of the fetchers take to find nothing to do."""
IDLE_S = 20.0
STEP_TIMEOUT_S = 240.0
POLL_S = 0.02
OVERRIDES = {
    "controller.quorum.election.timeout.ms": "500",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.flush.on.acks": "page-cache",
    "log.segment.delete.delay.ms": "500",
}
PARTS = ("one", "idle", "failover", "beside")
BESIDE = (300, 5_000)
PACE_S = 0.005
"""Between two records of the steady writer."""
STEADY_S = 4.0
"""For which it writes before, between and after."""


class Many:
    """A cluster and what is known of it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self.topics: dict[str, int] = {}

    def create(self, partitions: int, replicas: int, *, led_by: int | None = None) -> None:
        """Topics with so many partitions together; led_by: the first of each partition's replicas."""
        ids = [node.id for node in self.cluster.brokers]
        order = sorted(ids, key=lambda broker: broker != led_by)
        for first in range(0, partitions, PARTITIONS_PER_TOPIC):
            count = min(PARTITIONS_PER_TOPIC, partitions - first)
            name = f"many-{len(self.topics)}"
            if led_by is None:
                topic = NewTopic(name, count, replicas)
            else:
                topic = NewTopic(name, replica_assignment=[order[:replicas]] * count, num_partitions=count)
            self.admin.create_topics([topic], operation_timeout=STEP_TIMEOUT_S)[name].result(STEP_TIMEOUT_S)
            self.topics[name] = count

    def write_all(self, *, replicas: int = 1) -> float:
        """A record into every partition; the seconds until the last is acknowledged."""
        waiting = sum(self.topics.values())
        refused: list[str] = []

        def on_delivery(error: object, message: object) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                refused.append(str(error))

        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": int(STEP_TIMEOUT_S * 1000),
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 100,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        began = time.monotonic()
        for name, count in self.topics.items():
            for partition in range(count):
                producer.produce(
                    name, b"a record of a partition that has few", partition=partition, on_delivery=on_delivery
                )
            producer.poll(0)
        while waiting:
            producer.poll(POLL_S)
            if time.monotonic() - began > STEP_TIMEOUT_S:
                raise TimeoutError(f"{waiting} partitions took no record within {STEP_TIMEOUT_S:.0f} s")
        if refused:
            raise RuntimeError(f"{len(refused)} records were refused, the first: {refused[0]}")
        return time.monotonic() - began

    def pids(self) -> list[int]:
        """Of the nodes that run."""
        return [node.process.pid for node in self.cluster.nodes.values() if node.process is not None]

    def idle_cores(self) -> float:
        """CPU of all nodes at rest, in cores."""
        time.sleep(SETTLE_S)
        before, began = sum(map(_cpu_s, self.pids())), time.monotonic()
        time.sleep(IDLE_S)
        return (sum(map(_cpu_s, self.pids())) - before) / (time.monotonic() - began)

    def leader_epoch(self, topic: str) -> int:
        """Of its first partition."""
        with ControlAdmin(self.cluster.admin_addresses, timeout_s=30.0) as control:
            (described,) = control.describe_topics([topic])
        return described.partitions[0].leader_epoch

    def until_ready(self) -> float:
        """Seconds until every node is ready and every partition is led and in sync."""
        began = time.monotonic()
        self.cluster.wait_until_healthy(timeout_s=STEP_TIMEOUT_S)
        return time.monotonic() - began

    def delete_all(self) -> float:
        """Seconds until the last topic's directories are gone."""
        began = time.monotonic()
        for outcome in self.admin.delete_topics(list(self.topics), operation_timeout=STEP_TIMEOUT_S).values():
            outcome.result(STEP_TIMEOUT_S)
        directories = [node.data_directory for node in self.cluster.brokers]
        _until(lambda: not any("many-" in name for path in directories for name in os.listdir(path)), "removal")
        self.topics.clear()
        return time.monotonic() - began


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + STEP_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {STEP_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def cluster_of(nodes: int, directory: Path) -> Iterator[Many]:
    """Combined nodes, healthy."""
    with LocalCluster(directory, nodes=nodes, base_port=find_base_port(), overrides=OVERRIDES) as cluster:
        yield Many(cluster)


def say(row: str, value: float, unit: str) -> None:
    """One line of the table."""
    print(f"{row:<58} {value:10.3f} {unit}", flush=True)


def one_broker(replicas: int, directory: Path) -> None:
    """Everything that one broker with many replicas shows."""
    with cluster_of(1, directory) as many:
        (node,) = many.cluster.nodes.values()
        empty_mb = _rss_mb(many.pids()[0])
        began = time.monotonic()
        many.create(replicas, 1)
        say(f"{replicas} partitions are created within", time.monotonic() - began, "s")
        say("and each takes a first record within", many.write_all(), "s")
        say("CPU at rest", many.idle_cores(), "cores")
        (pid,) = many.pids()
        say("memory, without any partition", empty_mb, "MB")
        say("memory", _rss_mb(pid), "MB")
        say("open descriptors", len(os.listdir(f"/proc/{pid}/fd")), "")
        began = time.monotonic()
        many.cluster.stop_node(node.id, timeout_s=STEP_TIMEOUT_S)
        say("stop in order", time.monotonic() - began, "s")
        for how in ("a stop in order", "SIGKILL"):
            if how == "SIGKILL":
                many.cluster.kill(node.id)
            many.cluster.start_node(node.id)
            say(f"restart after {how} until healthy", many.until_ready(), "s")
            say("  until each partition has taken a record", many.write_all(), "s")
            say("  CPU for it", _cpu_s(many.pids()[0]), "s")
            say("  memory", _rss_mb(many.pids()[0]), "MB")
        say("all are deleted within", many.delete_all(), "s")


def idle_brokers(partitions: int, directory: Path) -> None:
    """Three brokers at rest."""
    with cluster_of(3, directory) as many:
        say("CPU at rest, three brokers, no partition", many.idle_cores(), "cores")
        many.create(partitions, 3)
        many.write_all()
        say(f"CPU at rest, three brokers, {partitions} partitions, RF 3", many.idle_cores(), "cores")


def failover(leaders: int, directory: Path) -> None:
    """The leader of many partitions is killed."""
    with cluster_of(3, directory) as many:
        with ControlAdmin(many.cluster.admin_addresses, timeout_s=30.0) as control:
            active = control.describe_health().controller_id
        victim = next(node.id for node in many.cluster.brokers if node.id != active)
        began = time.monotonic()
        many.create(leaders, 3, led_by=victim)
        many.write_all()
        say(f"{leaders} partitions, RF 3, one leader: created and written within", time.monotonic() - began, "s")
        time.sleep(SETTLE_S / 4)
        many.cluster.kill(victim)
        say("that leader is killed: all are written again within", many.write_all(), "s")
        many.cluster.start_node(victim)
        say("it is back, healthy, within", many.until_ready(), "s")


class SteadyWriter:
    """Writes a record each PACE_S with acks=all, whatever becomes of the earlier ones, and notes how long each took."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        self._topic = topic
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.taken_s: list[tuple[float, float]] = []
        """(when it was sent, by time.monotonic; seconds until it was acknowledged)"""
        self.refused: list[str] = []
        self._thread.start()

    def end(self) -> None:
        """After the last record is acknowledged."""
        self._is_ended.set()
        self._thread.join()
        self._producer.flush(STEP_TIMEOUT_S)

    def worst(self, began: float, ended: float) -> tuple[float, float]:
        """(p99, longest) of those that were sent within, in s."""
        taken = sorted(taken_s for sent, taken_s in self.taken_s if began <= sent < ended)
        return taken[len(taken) * 99 // 100], taken[-1]

    def _write(self) -> None:
        due = time.monotonic()
        while not self._is_ended.is_set():
            sent = time.monotonic()
            self._producer.produce(self._topic, b"steady", on_delivery=partial(self._on_delivery, sent))
            due = max(due + PACE_S, sent)
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)

    def _on_delivery(self, sent: float, error: object, message: object) -> None:
        self.taken_s.append((sent, time.monotonic() - sent))
        if error is not None:
            self.refused.append(str(error))


def beside_a_writer(partitions: int, directory: Path) -> None:
    """What a steady writer feels of a topic that is made, and deleted, in one request."""
    with cluster_of(3, directory) as many:
        many.admin.create_topics([NewTopic("steady", 1, 3)])["steady"].result(STEP_TIMEOUT_S)
        epoch = many.leader_epoch("steady")
        writer = SteadyWriter(many.cluster.bootstrap_servers, "steady")
        time.sleep(STEADY_S)
        marks = [time.monotonic()]
        many.admin.create_topics([NewTopic("big", partitions, 3)], operation_timeout=STEP_TIMEOUT_S)["big"].result(
            STEP_TIMEOUT_S
        )
        say(f"{partitions} partitions, RF 3, in one request: created within", time.monotonic() - marks[0], "s")
        many.topics["big"] = partitions
        many.until_ready()
        say("  all are led and in sync within", time.monotonic() - marks[0], "s")
        time.sleep(STEADY_S)
        marks.append(time.monotonic())
        say("  deleted within", many.delete_all(), "s")
        time.sleep(STEADY_S)
        marks.append(time.monotonic())
        writer.end()
        spans = (
            ("before it", marks[0] - STEADY_S, marks[0]),
            ("while it is made", marks[0], marks[1]),
            ("while it is deleted", marks[1], marks[2]),
        )
        for what, first, last in spans:
            p99_s, longest_s = writer.worst(first, last)
            say(f"  a steady writer's p99 {what}", p99_s * 1000, "ms")
            say("    longest", longest_s * 1000, "ms")
        say("  records refused", len(writer.refused), "")
        say("  times its partition got another leader", many.leader_epoch("steady") - epoch, "")


def main(words: Sequence[str]) -> int:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="tests.bench.many", description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--idle", type=int, default=IDLE_PARTITIONS)
    parser.add_argument("--leaders", type=int, default=LEADERS)
    parser.add_argument("--beside", type=int, nargs="+", default=BESIDE)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="barnabas-many-") as name:
        directory = Path(name)
        if "one" in options.parts:
            one_broker(options.replicas, directory / "one")
        if "idle" in options.parts:
            idle_brokers(options.idle, directory / "idle")
        if "failover" in options.parts:
            failover(options.leaders, directory / "failover")
        if "beside" in options.parts:
            for partitions in options.beside:
                beside_a_writer(partitions, directory / f"beside-{partitions}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
