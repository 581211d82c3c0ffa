"""Barnabas beside Apache Kafka itself, in turn on the same machine: what a produced and a fetched megabyte costs each broker.

May touch:  processes it starts, a temporary directory.    Must not touch: broker code.
Invariants: both are single nodes with one copy of every record and take the same load from the same client; every load runs
            unmeasured first, since Java compiles what it runs; systems take turns within a round, the figures are medians
            of the rounds; each run has the memory that it will write made ready.
Read next:  blaster.py, librdkafka.py; tests/oracle/apache.py.

    python -m tests.bench.rival [--rounds 3] [--warm-up 2] [--scale 1.0] [--only TEXT] [--json FILE]
                                 [--directory DIR]

Needs Apache Kafka's jars: `make compat-oracle` fetches them. MB are 10^6 bytes of record values; CPU is of the broker's
process, all threads that ever lived (psutil cpu_times). "page cache" acknowledges what the kernel has, Kafka's default;
"durable" what fdatasync has brought to the disk: log.flush.on.acks=fsync here, flush.messages=1 there.

Not obvious
- Kafka runs with the heap and the collector of its own start script (1 GiB, G1). It compiles for the hot loops of this very
  load; the first seconds of its life cost several times more and are left out.
- A broker that idles beside the measured one costs both the same, next to nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster, find_base_port
from tests.bench.blaster import Target, blast, drain, settle
from tests.bench.cluster import OVERRIDES, TOPIC_TIMEOUT_S
from tests.bench.frames import KIB, MIB, Load, make_produce
from tests.bench.machine import MemoryAtHand
from tests.oracle.apache import HOST, ApacheBroker, java_command, java_environment, missing

PARTITIONS = 3
APACHE_PORT_OFFSET = 5
APACHE_FLAGS = (
    *("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
"""Of Kafka's own kafka-run-class.sh and kafka-server-start.sh."""
SMALL, LARGE = 16 * KIB, MIB
WINDOW = {SMALL: 64, LARGE: 4}
RUN_BYTES = {SMALL: 200_000_000, LARGE: 400_000_000}


class System(NamedTuple):
    """One broker with one way of acknowledging."""

    name: str
    bootstrap: str
    process: psutil.Process
    configs: dict[str, str]
    """Of every topic."""


class Seen(NamedTuple):
    """What one run cost."""

    cpu_ms_per_mb: float
    mb_per_s: float
    p50_ms: float
    p99_ms: float


class Work(NamedTuple):
    """(MB of values, seconds, p50 ms, p99 ms) of one run on the client's side."""

    mb: float
    seconds: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


class Topic(NamedTuple):
    """A fresh topic and where its partitions are led."""

    name: str
    host: str
    port: int


@contextmanager
def fresh_topic(system: System) -> Iterator[Topic]:
    """A topic that takes records, deleted at the end."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    name = f"rival-{time.time_ns()}"
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=system.configs)])[name].result(TOPIC_TIMEOUT_S)
    host, port = system.bootstrap.split(":")
    topic = Topic(name, host, int(port))
    try:
        settle(targets(topic, Load(KIB, SMALL)))
        yield topic
    finally:
        admin.delete_topics([name])[name].result(TOPIC_TIMEOUT_S)


def targets(topic: Topic, load: Load) -> list[Target]:
    """One connection per partition, acks=all."""
    return [
        Target(topic.host, topic.port, make_produce(load, topic.name, index, acks=-1)) for index in range(PARTITIONS)
    ]


def blasted(topic: Topic, load: Load, scale: float) -> Work:
    """Prebuilt produce requests, pipelined."""
    aims = targets(topic, load)
    requests = max(60, int(RUN_BYTES[load.batch_bytes] * scale / aims[0].frame.value_bytes) // 3 * 3)
    result = blast(aims, requests=requests, window=WINDOW[load.batch_bytes])
    return Work(result.bytes / 1e6, result.seconds, result.percentile_ms(0.5), result.percentile_ms(0.99))


def one_at_a_time(topic: Topic, scale: float) -> Work:
    """A lone producer that waits for each acknowledgement: what an acknowledgement takes."""
    aims = targets(topic, Load(KIB, SMALL))[:1]
    result = blast(aims, requests=max(100, int(1000 * scale)), window=1)
    return Work(result.bytes / 1e6, result.seconds, result.percentile_ms(0.5), result.percentile_ms(0.99))


def java_producer(topic: Topic, scale: float) -> Work:
    """Kafka's own kafka-producer-perf-test with its defaults: idempotent, acks=all, 16 KiB batches, linger 5 ms."""
    records = int(200_000 * scale)
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic.name, "--num-records", str(records), "--record-size", str(KIB), "--throughput", "-1"),
        *("--command-property", f"bootstrap.servers={topic.host}:{topic.port}", "acks=all"),
        flags=("-Xmx512m",),
    )
    said = subprocess.run(command, env=java_environment(), capture_output=True, text=True, timeout=300, check=True)
    rate, p50, p99 = (
        float(re.findall(pattern, said.stdout)[-1])
        for pattern in (r"([\d.]+) records/sec", r"([\d.]+) ms 50th", r"([\d.]+) ms 99th")
    )
    return Work(records * KIB / 1e6, records / rate, p50, p99)


def librdkafka(topic: Topic, scale: float, *, batch_bytes: int) -> Work:
    """confluent-kafka, acks=all; see librdkafka.py."""
    records = int(RUN_BYTES[batch_bytes] * scale / KIB)
    arguments = ("produce", f"{topic.host}:{topic.port}", topic.name, str(KIB), str(batch_bytes), str(records))
    command = [sys.executable, "-m", "tests.bench.librdkafka", *arguments]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout)
    latencies = sorted(said["latencies_s"])
    at = [latencies[int(fraction * (len(latencies) - 1))] * 1e3 for fraction in (0.5, 0.99)]
    return Work(said["bytes"] / 1e6, said["seconds"], *at)


def fill(topic: Topic, scale: float) -> None:
    """What `fetched` reads."""
    (aim, *_) = targets(topic, Load(KIB, LARGE))
    blast([aim], requests=_fetch_requests(aim, scale), window=WINDOW[LARGE])


def fetched(topic: Topic, scale: float) -> Work:
    """Partition 0 from its start, 1 MiB a fetch, one fetch at a time."""
    (aim, *_) = targets(topic, Load(KIB, LARGE))
    (settled, *_) = targets(topic, Load(KIB, SMALL))
    end = settled.frame.record_count + _fetch_requests(aim, scale) * aim.frame.record_count
    share = aim.frame.value_bytes / aim.frame.batch_bytes
    result = drain(topic.host, topic.port, topic.name, 0, end_offset=end, max_bytes=MIB, values_share=share)
    return Work(result.bytes / 1e6, result.seconds, result.percentile_ms(0.5), result.percentile_ms(0.99))


def _fetch_requests(aim: Target, scale: float) -> int:
    return max(60, int(RUN_BYTES[LARGE] * scale / aim.frame.value_bytes))


class Case(NamedTuple):
    """One load."""

    name: str
    run: Callable[[Topic, float], Work]
    prepare: Callable[[Topic, float], None] | None = None
    """Not measured."""


CASES = (
    Case("produce, prebuilt frames, 1 KiB in 16 KiB", lambda topic, scale: blasted(topic, Load(KIB, SMALL), scale)),
    Case("produce, prebuilt frames, 1 KiB in 1 MiB", lambda topic, scale: blasted(topic, Load(KIB, LARGE), scale)),
    Case("produce, one 16 KiB request at a time", one_at_a_time),
    Case("produce, kafka-producer-perf-test", java_producer),
    Case("produce, librdkafka, 16 KiB", lambda topic, scale: librdkafka(topic, scale, batch_bytes=SMALL)),
    Case("produce, librdkafka, 1 MiB", lambda topic, scale: librdkafka(topic, scale, batch_bytes=LARGE)),
    Case("fetch, 1 MiB", fetched, prepare=fill),
)


def measure(system: System, case: Case, scale: float, directory: Path) -> Seen:
    """One run on a topic of its own."""
    with fresh_topic(system) as topic:
        if case.prepare is not None:
            case.prepare(topic, scale)
        with MemoryAtHand(directory, int(1.5 * RUN_BYTES[LARGE] * scale)):
            before = system.process.cpu_times()
            work = case.run(topic, scale)
            after = system.process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Seen(cpu_s * 1e3 / work.mb, work.mb / work.seconds, work.p50_ms, work.p99_ms)


def median(seen: list[Seen]) -> Seen:
    """Of each figure."""
    return Seen(*(statistics.median(column) for column in zip(*seen, strict=True)))


@contextmanager
def systems(directory: Path) -> Iterator[list[System]]:
    """Both brokers, each with both ways of acknowledging."""
    base_port = find_base_port()
    rival = ApacheBroker(
        directory / "apache",
        port=base_port + APACHE_PORT_OFFSET,
        overrides={"log.segment.delete.delay.ms": "500"},
        flags=APACHE_FLAGS,
    )
    with LocalCluster(directory / "barnabas", nodes=1, base_port=base_port, overrides=OVERRIDES) as cluster, rival:
        node = cluster.nodes[1].process
        assert node is not None and rival.process is not None
        ours, theirs = psutil.Process(node.pid), psutil.Process(rival.process.pid)
        our_server, their_server = cluster.bootstrap_servers, f"{HOST}:{rival.port}"
        yield [
            System("Apache Kafka, page cache", their_server, theirs, {}),
            System("Barnabas, page cache", our_server, ours, {"log.flush.on.acks": "page-cache"}),
            System("Apache Kafka, durable", their_server, theirs, {"flush.messages": "1"}),
            System("Barnabas, durable", our_server, ours, {"log.flush.on.acks": "fsync"}),
        ]


def main() -> int:
    """Run and print; 2 when Apache Kafka is out of reach."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rival", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=2, help="rounds that are not measured")
    parser.add_argument("--scale", type=float, default=1.0, help="of the bytes of every run")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--json", type=Path, help="write the medians here")
    parser.add_argument("--directory", type=Path, help="where the brokers keep their files; default a temporary one")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    print(f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f} before the run, {options.rounds} rounds")
    table: dict[str, dict[str, Seen]] = {}
    with tempfile.TemporaryDirectory(dir=options.directory) as place, systems(directory := Path(place)) as running:
        for case in CASES:
            if options.only not in case.name:
                continue
            seen: dict[str, list[Seen]] = {system.name: [] for system in running}
            for number in range(options.warm_up + options.rounds):
                for system in running:
                    found = measure(system, case, options.scale, directory)
                    if number >= options.warm_up:
                        seen[system.name].append(found)
            table[case.name] = {name: median(rounds) for name, rounds in seen.items()}
            print(f"\n{case.name:42s} CPU ms/MB     MB/s   p50 ms   p99 ms")
            for name, row in table[case.name].items():
                print(
                    f"  {name:40s} {row.cpu_ms_per_mb:9.2f} {row.mb_per_s:8.0f} {row.p50_ms:8.2f} {row.p99_ms:8.2f}",
                    flush=True,
                )
    if options.json is not None:
        rows = {case: {name: row._asdict() for name, row in found.items()} for case, found in table.items()}
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
