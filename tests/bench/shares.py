"""What a share group takes, beside Apache Kafka in one run: `make bench-shares`, ten minutes.

May touch:  processes it starts, a temporary directory.        Must not touch: broker code.
Invariants: the same client against all systems, round by round in turn; every run has a topic and a group of its own.
Read next:  transactions.py, whose systems these are; docs/queues.md.

    python -m tests.bench.shares [--rounds 3] [--json FILE] [--without-kafka]

Two of librdkafka's share consumers, each of which accepts every record by a request of its own and waits for the answer: workers
whose work is done at once. Records have 100 bytes, the topic three replicas and two partitions. "Page cache" is what Kafka
acknowledges by default; "durable" is Barnabas' own default, in which the share coordinator's topic is flushed, too.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.bench.machine import cpu_s
from tests.bench.peer.results import THEIRS, Results, percentile
from tests.bench.peer.systems import KAFKA_VERSION, NODES, TIMEOUT_S, System
from tests.bench.transactions import running, table
from tests.oracle import apache

ROW = "one record an acknowledgement, 2 consumers"
CONSUMERS = 2
VALUE = b"v" * 100
RECORDS = 100_000
WORK_S = 10.0
WARM_UP_S = 3.0
_ids = itertools.count(1)


def accept_one_by_one(system: System, *, work_s: float) -> dict[str, float]:
    """Records accepted a second, how long an acknowledgement takes, and the brokers' CPU for each."""
    topic, group = system.create(CONSUMERS, NODES, {}), f"bench-share-{next(_ids)}"
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    system.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": system.cluster.bootstrap, "linger.ms": 5, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, VALUE, partition=number % CONSUMERS)
        if number % 10_000 == 0:
            producer.flush(TIMEOUT_S)
    producer.flush(TIMEOUT_S)
    are_there = threading.Barrier(CONSUMERS + 1, timeout=TIMEOUT_S)
    is_over = threading.Event()
    times: list[list[float]] = [[] for _ in range(CONSUMERS)]
    failures: list[str] = []

    def work(mine: list[float]) -> None:
        settings = {
            "bootstrap.servers": system.cluster.bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
        with ShareConsumer(settings) as consumer:
            consumer.subscribe([topic])
            has_begun = False
            while not is_over.is_set():
                for message in consumer.poll(0.2):
                    if not has_begun:
                        are_there.wait()
                        has_begun = True
                    consumer.acknowledge(message)
                    at = time.monotonic()
                    failed = [error for error in consumer.commit_sync(timeout=TIMEOUT_S).values() if error is not None]
                    mine.append(time.monotonic() - at)
                    if failed:
                        failures.append(str(failed[0]))
                    if is_over.is_set():
                        return

    threads = [threading.Thread(target=work, args=(mine,)) for mine in times]
    for thread in threads:
        thread.start()
    try:
        are_there.wait()
        before, began = cpu_s(system.cluster.pids()), time.monotonic()
        time.sleep(work_s)
    finally:
        is_over.set()
    took_s = time.monotonic() - began
    used_s = cpu_s(system.cluster.pids()) - before
    for thread in threads:
        thread.join(TIMEOUT_S)
    system.delete(topic)
    if failures:
        raise RuntimeError(f"{len(failures)} acknowledgements failed, the first: {failures[0]}")
    sorted_times = sorted(itertools.chain(*times))
    return {
        "accepted records/s": len(sorted_times) / took_s,
        "p50 ms": percentile(sorted_times, 0.5) * 1e3,
        "p99 ms": percentile(sorted_times, 0.99) * 1e3,
        "brokers' CPU us per record": 1e6 * used_s / len(sorted_times),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shares", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all rounds here")
    parser.add_argument("--without-kafka", action="store_true")
    options = parser.parse_args()
    reason = "it was left out" if options.without_kafka else apache.fetch(KAFKA_VERSION)
    if reason is not None:
        print(f"Apache Kafka is not measured: {reason}", file=sys.stderr)
    results = Results(about={"kafka": KAFKA_VERSION if reason is None else None, "rounds": options.rounds})
    with tempfile.TemporaryDirectory() as place, running(Path(place), with_kafka=reason is None) as systems:
        for system in systems:
            for _ in range(3 if system.name == THEIRS else 1):
                accept_one_by_one(system, work_s=WARM_UP_S)
        for number in range(options.rounds):
            for system in systems[number % len(systems) :] + systems[: number % len(systems)]:
                try:
                    results.add(ROW, system.name, accept_one_by_one(system, work_s=WORK_S))
                except (KafkaException, OSError, RuntimeError) as failure:
                    results.failures.append(f"{system.name}, round {number + 1}: {failure}")
                    print(f"failed: {results.failures[-1]}", file=sys.stderr)
    print(table(results))
    if options.json is not None:
        options.json.write_text(results.to_json(), encoding="utf-8")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
