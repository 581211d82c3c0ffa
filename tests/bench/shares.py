"""What a share group takes, beside Apache Kafka in one run: `make bench-shares`, ten minutes.

May touch:  processes it starts, a temporary directory.        Must not touch: broker code.
Invariants: the same client against all systems, round by round in turn; every run has a topic and a group of its own.
Read next:  transactions.py, whose systems these are; docs/queues.md.

    python -m tests.bench.shares [--rows PREFIX ...] [--rounds 3] [--json FILE] [--without-kafka]

- `one record an acknowledgement`: two of librdkafka's share consumers, each of which accepts every record by a request of its own and
  waits for the answer: workers whose work is done at once.
- `lock`: a member acquires records one by one and is heard of no more, though its connection stands, as when its host is lost; how long
  after each lock's end another is given the record.
- `delay` (ours alone): ten thousand records that are due within ten seconds, by share.deliver.at.header; how far from its time each
  comes. In CPU the producer's part is left out.

Records have 100 bytes, topics three replicas. "Page cache" is what Kafka acknowledges by default; "durable" is Barnabas' own default, in
which the share coordinator's topic is flushed, too.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from confluent_kafka import KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.share_fetch import RECORD_LIMIT, FetchPartition, FetchTopic, ShareFetchRequest
from barnabas_wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.bench.machine import cpu_s
from tests.bench.peer.results import THEIRS, Results, percentile
from tests.bench.peer.systems import KAFKA_VERSION, NODES, TIMEOUT_S, System
from tests.bench.transactions import running, table
from tests.oracle import apache

ROW = "one record an acknowledgement, 2 consumers"
LOCK_ROW = "lock that ends by itself, 300 records"
DELAY_ROW = "delay of 10,000 waiting records"
LOCK_S = 15
"""The shortest that both allow by default."""
LOCKED = 300
DELAYED = 10_000
DELAY_FROM_S, DELAY_OVER_S = 15.0, 10.0
"""When the first of the delayed records is due after the first is written, and within how long the others are."""
CONSUMERS = 2
VALUE = b"v" * 100
RECORDS = 100_000
WORK_S = 10.0
WARM_UP_S = 3.0
_ids = itertools.count(1)


def accept_one_by_one(system: System, *, work_s: float) -> dict[str, float]:
    """Records accepted a second, how long an acknowledgement takes, and the brokers' CPU for each."""
    topic, group = system.create(CONSUMERS, NODES, {}), _group(system)
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


def _group(system: System, **configs: str) -> str:
    """A new group that begins with the first record."""
    group = f"bench-share-{next(_ids)}"
    wanted = {"share.auto.offset.reset": "earliest"} | {
        name.replace("_", "."): value for name, value in configs.items()
    }
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in wanted.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    system.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    return group


class ByHand:
    """A member of a group that fetches by raw requests, from one partition."""

    def __init__(self, system: System, group: str, topic: str, name: str) -> None:
        self._group, self._topic, self._name = group, topic, name
        self._cluster = BlockingCluster(system.cluster.bootstrap, client_id=name)
        self._topic_id = self._cluster.metadata([topic]).topic_ids[topic]
        self._connection = self._cluster.dial(self._cluster.leader(TopicPartition(topic, 0)))
        self._epoch = 0

    def join(self) -> None:
        """Returns once the group's state of the partition has begun."""
        member_epoch, deadline = 0, time.monotonic() + TIMEOUT_S
        while True:
            asked = ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._name,
                member_epoch=member_epoch,
                subscribed_topic_names=[self._topic] if member_epoch == 0 else None,
            )
            told = self._cluster.call_coordinator(self._group, asked)
            if told.assignment is not None and told.assignment.topic_partitions:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._group} has no partition after {TIMEOUT_S} s")
            member_epoch = told.member_epoch
            time.sleep(0.1)

    def fetch(self, *, records_max: int, wait_ms: int) -> list[int]:
        """The offsets that it acquires, at most so many."""
        named = [FetchTopic(self._topic_id, [FetchPartition(0)])] if self._epoch == 0 else []
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._name,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=RECORD_LIMIT,
            topics=named,
        )
        told = self._connection.call(request)
        if told.error_code:
            raise RuntimeError(f"share fetch of {self._name}: error {told.error_code}")
        self._epoch += 1
        return [
            offset
            for topic in told.responses
            for partition in topic.partitions
            for each in partition.acquired_records
            for offset in range(each.first_offset, each.last_offset + 1)
        ]

    def close(self) -> None:
        """Close its connections."""
        self._connection.close()
        self._cluster.close()


def outlive_locks(system: System) -> dict[str, float]:
    """How long after its lock's end a record reaches another member."""
    topic = system.create(1, NODES, {})
    group = _group(system, share_record_lock_duration_ms=str(1000 * LOCK_S))
    producer = Producer({"bootstrap.servers": system.cluster.bootstrap, "log_level": 0})
    for _ in range(LOCKED):
        producer.produce(topic, VALUE)
    producer.flush(TIMEOUT_S)
    lost, other = (ByHand(system, group, topic, name) for name in ("lost", "other"))
    ends: dict[int, float] = {}
    try:
        lost.join()
        deadline = time.monotonic() + TIMEOUT_S
        while len(ends) < LOCKED:
            for offset in lost.fetch(records_max=1, wait_ms=500):
                ends[offset] = time.monotonic() + LOCK_S
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(ends)} of {LOCKED} records were acquired")
        late: list[float] = []
        deadline += 2 * LOCK_S
        while len(late) < LOCKED and time.monotonic() < deadline:
            offsets = other.fetch(records_max=500, wait_ms=500)
            late += [time.monotonic() - ends[offset] for offset in offsets]
    finally:
        lost.close()
        other.close()
    system.delete(topic)
    if len(late) < LOCKED:
        raise RuntimeError(f"{len(late)} of {LOCKED} records came again")
    return {"late p50 ms": percentile(sorted(late), 0.5) * 1e3, "late p99 ms": percentile(sorted(late), 0.99) * 1e3}


def deliver_later(system: System) -> dict[str, float]:
    """How far from its time each of many delayed records comes."""
    topic = system.create(1, NODES, {})
    group = _group(system, share_deliver_at_header="due")
    producer = Producer({"bootstrap.servers": system.cluster.bootstrap, "linger.ms": 5, "log_level": 0})
    random = Random(1)
    first_due = time.time() + DELAY_FROM_S
    for _ in range(DELAYED):
        due = int(1000 * (first_due + DELAY_OVER_S * random.random()))
        producer.produce(topic, VALUE, headers={"due": str(due)})
    producer.flush(TIMEOUT_S)
    off: list[float] = []
    idle_s = used_s = 0.0
    with ShareConsumer({"bootstrap.servers": system.cluster.bootstrap, "group.id": group, "log_level": 0}) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + TIMEOUT_S
        while len(off) < DELAYED and time.monotonic() < deadline:
            for message in consumer.poll(0.2):
                if not off:
                    idle_s = time.monotonic()
                    used_s = cpu_s(system.cluster.pids())
                off.append(time.time() - int(dict(message.headers())["due"]) / 1000)
        used_s = cpu_s(system.cluster.pids()) - used_s
        took_s = time.monotonic() - idle_s
    system.delete(topic)
    if len(off) < DELAYED:
        raise RuntimeError(f"{len(off)} of {DELAYED} delayed records came")
    if min(off) < -0.001:
        raise RuntimeError(f"a record came {-min(off) * 1e3:.0f} ms before its time")
    return {
        "late p50 ms": percentile(sorted(off), 0.5) * 1e3,
        "late p99 ms": percentile(sorted(off), 0.99) * 1e3,
        "brokers' CPU s per s": used_s / took_s,
    }


ROWS: dict[str, Callable[[System], dict[str, float]]] = {
    ROW: partial(accept_one_by_one, work_s=WORK_S),
    LOCK_ROW: outlive_locks,
    DELAY_ROW: deliver_later,
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shares", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all rounds here")
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument(
        "--rows", nargs="*", metavar="PREFIX", default=[""], help="rows whose names begin so; default all"
    )
    options = parser.parse_args()
    reason = "it was left out" if options.without_kafka else apache.fetch(KAFKA_VERSION)
    if reason is not None:
        print(f"Apache Kafka is not measured: {reason}", file=sys.stderr)
    results = Results(about={"kafka": KAFKA_VERSION if reason is None else None, "rounds": options.rounds})
    with tempfile.TemporaryDirectory() as place, running(Path(place), with_kafka=reason is None) as systems:
        rows = {name: row for name, row in ROWS.items() if any(name.startswith(each) for each in options.rows)}
        for system in systems if ROW in rows else ():
            for _ in range(3 if system.name == THEIRS else 1):
                accept_one_by_one(system, work_s=WARM_UP_S)
        for number, (name, measure) in itertools.product(range(options.rounds), rows.items()):
            for system in systems[number % len(systems) :] + systems[: number % len(systems)]:
                if name == DELAY_ROW and system.name == THEIRS:
                    continue
                try:
                    results.add(name, system.name, measure(system))
                except (KafkaException, OSError, RuntimeError) as failure:
                    results.failures.append(f"{name}, {system.name}, round {number + 1}: {failure}")
                    print(f"failed: {results.failures[-1]}", file=sys.stderr)
    print(table(results))
    if options.json is not None:
        options.json.write_text(results.to_json(), encoding="utf-8")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
