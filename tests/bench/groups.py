"""`make bench-groups`: what groups of the consumer protocol cost, and what members feel of each other, beside Apache Kafka.

May touch:  processes it starts, a temporary directory, loopback.    Must not touch: broker code.
Invariants: both have one node with the same keys, and take turns round by round; members answer to what their heartbeats say, at
            the interval that they are told.
Read next:  docs/performance.md; peer/systems.py.

    python -m tests.bench.groups [--rounds 3] [--without-kafka] [--only keep|join|beat] [--members 1000] [--groups 100] [--json FILE]

keep    A librdkafka consumer reads PARTITIONS partitions, to each of which a record is written every WRITE_EVERY_S, while OTHERS members
        join and leave again. Of the partitions that it keeps all the time: the gaps between a record and the next, p50, p99, greatest.
join    Of a member that joins one that has everything: how long until it has its half, heartbeats at the interval of the answers. The
        promise: two heartbeats, the interval between assignments and 0.3 s.
beat    Members of many groups, settled, beat at the interval that they are told: CPU of the broker for each second, and for a heartbeat.
        Then all leave.

Exit status 1: a joiner took longer than promised.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.bench.machine import cpu_s
from tests.bench.peer.results import OURS, THEIRS
from tests.bench.peer.systems import APACHE_FLAGS, KAFKA_VERSION
from tests.oracle import apache

PARTITIONS = 42
OTHERS = 20
WRITE_EVERY_S = 0.05
JOIN_EVERY_S = 0.5
HOLD_S = 12.0
SETTLE_S = 12.0
BEAT_S = 20.0
JOINS = 3
CLIENTS = 10
"""Connections of the members that only beat."""
ASSIGNMENT_INTERVAL_S = 1.0
SLACK_S = 0.3
START_TIMEOUT_S = 120.0
SHARED = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "1",
}
Held = dict[Uuid, frozenset[int]]


class System(NamedTuple):
    """One node that runs."""

    name: str
    bootstrap: str
    pid: Callable[[], int]

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, as soon as the node does."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


@contextmanager
def barnabas(directory: Path) -> Iterator[System]:
    """Ours; its page cache counts, as Kafka's."""
    overrides = SHARED | {"log.flush.on.acks": "page-cache"}
    with LocalCluster(directory / "barnabas", nodes=1, base_port=find_base_port(), overrides=overrides) as cluster:

        def pid() -> int:
            process = cluster.nodes[1].process
            assert process is not None, "it runs"
            return process.pid

        yield System(OURS, cluster.bootstrap_servers, pid)


@contextmanager
def kafka(directory: Path) -> Iterator[System]:
    """Theirs."""
    port = find_base_port()
    node = apache.ApacheBroker(
        directory / "apache", port=port, overrides=SHARED, flags=APACHE_FLAGS, version=KAFKA_VERSION
    )
    with node:

        def pid() -> int:
            assert node.process is not None, "it runs"
            return node.process.pid

        yield System(THEIRS, f"{apache.HOST}:{port}", pid)


# ---- members ---------------------------------------------------------------------------------------------------------


class Member:
    """Beats at the interval that it is told, and gives up at once what it is not told any more."""

    def __init__(self, client: ClusterClient, group: str, name: str, topic: str) -> None:
        self.group, self.name = group, name
        self.held: Held = {}
        self.beats = 0
        self._client, self._topic = client, topic
        self._epoch = 0
        self._is_behind = False

    @property
    def size(self) -> int:
        """Partitions that it has."""
        return sum(map(len, self.held.values()))

    async def join(self) -> float:
        """Returns the interval between heartbeats, in seconds."""
        return await self._beat(rebalance_timeout_ms=60_000, subscribed_topic_names=[self._topic], topic_partitions=[])

    async def beat(self) -> float:
        """The same, as a member."""
        named: dict[str, Any] = {}
        if self._is_behind:
            self._is_behind = False
            named["topic_partitions"] = [TopicPartitions(topic, sorted(held)) for topic, held in self.held.items()]
        return await self._beat(**named)

    async def leave(self) -> None:
        """For good."""
        self._epoch = -1
        await self._beat()

    async def run(self, delay_s: float = 0.0) -> None:
        """Join, and be a member until cancelled; who got or lost something says so at once."""
        await asyncio.sleep(delay_s)
        interval_s = await self.join()
        while True:
            if not self._is_behind:
                await asyncio.sleep(interval_s)
            interval_s = await self.beat()

    async def _beat(self, **named: Any) -> float:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.name, member_epoch=self._epoch, **named
        )
        answer = await self._client.call_coordinator(self.group, request)
        assert answer.error_code == 0, answer
        self.beats += 1
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            told = {topic.topic_id: frozenset(topic.partitions) for topic in answer.assignment.topic_partitions}
            self._is_behind = told != self.held
            self.held = told
        return float(answer.heartbeat_interval_ms) / 1000


@asynccontextmanager
async def clients(system: System, count: int) -> AsyncIterator[list[ClusterClient]]:
    """Clients with connections of their own."""
    made = [ClusterClient(system.bootstrap, client_id=f"bench-{number}", timeout_s=60.0) for number in range(count)]
    try:
        yield made
    finally:
        for client in made:
            await client.close()


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel, and raise what one of them had failed by."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


# ---- keep ------------------------------------------------------------------------------------------------------------


def keep(system: System, name: str) -> dict[str, float]:
    """Gaps of the partitions that a consumer keeps, in ms."""
    topic = f"keep-{name}"
    system.create(topic, PARTITIONS)
    seen: dict[int, list[tuple[int, float]]] = defaultdict(list)
    is_over = threading.Event()
    has_all = threading.Event()
    consumer = Consumer(
        {
            "bootstrap.servers": system.bootstrap,
            "group.id": topic,
            "group.protocol": "consumer",
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )

    def read() -> None:
        while not is_over.is_set():
            for message in consumer.consume(500, 0.05):
                if message.error() is None:
                    seen[message.partition() or 0].append((message.offset() or 0, time.monotonic()))
            if len(seen) == PARTITIONS:
                has_all.set()

    def write() -> None:
        producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 0, "log_level": 0})
        due = time.monotonic()
        while not is_over.is_set():
            for partition in range(PARTITIONS):
                producer.produce(topic, b"x" * 100, partition=partition)
            producer.poll(0)
            due += WRITE_EVERY_S
            time.sleep(max(0.0, due - time.monotonic()))
        producer.flush(10)

    async def crowd() -> None:
        async with clients(system, 4) as made:
            others = [Member(made[number % 4], topic, f"other-{number}", topic) for number in range(OTHERS)]
            tasks = [asyncio.create_task(other.run(JOIN_EVERY_S * number)) for number, other in enumerate(others)]
            await asyncio.sleep(JOIN_EVERY_S * OTHERS + HOLD_S)
            for task, other in zip(tasks, others, strict=True):
                await end([task])
                await other.leave()
                await asyncio.sleep(JOIN_EVERY_S)
            await asyncio.sleep(2.0)

    consumer.subscribe([topic])
    threads = [threading.Thread(target=work) for work in (read, write)]
    for thread in threads:
        thread.start()
    try:
        assert has_all.wait(START_TIMEOUT_S), "the consumer never got every partition"
        time.sleep(2.0)
        began = time.monotonic()
        asyncio.run(crowd())
        ended = time.monotonic()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        consumer.close()
    kept = {partition: each for partition, each in seen.items() if _is_kept(each, ended)}
    gaps = [
        1000 * (after - before)
        for each in kept.values()
        for (_, before), (_, after) in itertools.pairwise(each)
        if began <= before <= ended
    ]
    assert gaps, "it kept no partition"
    p99 = statistics.quantiles(gaps, n=100)[98]
    return {"kept": len(kept), "p50_ms": statistics.median(gaps), "p99_ms": p99, "max_ms": max(gaps)}


def _is_kept(records: Sequence[tuple[int, float]], ended: float) -> bool:
    """Whether every record came, once and in order, until the end."""
    offsets = [offset for offset, _ in records]
    return (
        offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        and records[-1][1] > ended - 1.0
        and _is_early(records, ended)
    )


def _is_early(records: Sequence[tuple[int, float]], ended: float) -> bool:
    """Whether it was read before the others came."""
    return records[0][1] < ended - JOIN_EVERY_S * 2 * OTHERS - HOLD_S


# ---- join ------------------------------------------------------------------------------------------------------------


def join(system: System, name: str) -> dict[str, float]:
    """Seconds until a joiner has its half."""

    async def once(number: int) -> tuple[float, float]:
        group = f"join-{name}-{number}"
        async with clients(system, 2) as (one, other):
            first, second = Member(one, group, "first", topic), Member(other, group, "second", topic)
            tasks = [asyncio.create_task(first.run())]
            while first.size < 4:
                await asyncio.sleep(0.01)
            interval_s = 5.0
            await asyncio.sleep(ASSIGNMENT_INTERVAL_S + random.random() * interval_s)
            began = time.monotonic()
            tasks.append(asyncio.create_task(second.run()))
            while second.size < 2:
                for task in tasks:
                    if task.done():
                        await task
                await asyncio.sleep(0.005)
            took_s = time.monotonic() - began
            await end(tasks)
            await first.leave()
            await second.leave()
            return took_s, 2 * interval_s + ASSIGNMENT_INTERVAL_S + SLACK_S

    topic = f"join-{name}"
    system.create(topic, 4)
    took = [asyncio.run(once(number)) for number in range(JOINS)]
    return {
        "median_s": statistics.median(each for each, _ in took),
        "max_s": max(each for each, _ in took),
        "promised_s": took[0][1],
    }


# ---- beat ------------------------------------------------------------------------------------------------------------


def beat(system: System, name: str, *, members: int, groups: int) -> dict[str, float]:
    """CPU of the broker while members only beat."""
    topic = f"beat-{name}"
    system.create(topic, 12)

    async def run() -> dict[str, float]:
        async with clients(system, CLIENTS) as made:
            everyone = [
                Member(made[number % CLIENTS], f"beat-{name}-{number % groups}", f"m{number}", topic)
                for number in range(members)
            ]
            joined_s = max(5.0, members / 100)
            tasks = [asyncio.create_task(each.run(joined_s * number / members)) for number, each in enumerate(everyone)]
            await asyncio.sleep(joined_s + SETTLE_S)
            beats = sum(each.beats for each in everyone)
            used_s, began = cpu_s([system.pid()]), time.monotonic()
            await asyncio.sleep(BEAT_S)
            used_s, took_s = cpu_s([system.pid()]) - used_s, time.monotonic() - began
            beats = sum(each.beats for each in everyone) - beats
            await end(tasks)
            for start in range(0, members, 100):
                await asyncio.gather(*(each.leave() for each in everyone[start : start + 100]))
            return {
                "cpu_ms_per_s": 1000 * used_s / took_s,
                "beats_per_s": beats / took_s,
                "cpu_us_per_beat": 1e6 * used_s / max(1, beats),
            }

    return asyncio.run(run())


# ---- the run ---------------------------------------------------------------------------------------------------------


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.groups", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--only", choices=("keep", "join", "beat"))
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    reason = "it was left out" if options.without_kafka else apache.fetch(KAFKA_VERSION)
    if reason is not None:
        print(f"without Apache Kafka: {reason}", file=sys.stderr)
    rows: dict[str, Callable[[System, str], dict[str, float]]] = {
        "keep": keep,
        "join": join,
        "beat": lambda system, name: beat(system, name, members=options.members, groups=options.groups),
    }
    found: dict[str, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for number in range(options.rounds):
        for start in (barnabas, *([] if reason is not None else [kafka])):
            with tempfile.TemporaryDirectory(prefix="bench-groups-") as directory, start(Path(directory)) as system:
                for row, measure in rows.items():
                    if options.only in (None, row):
                        said = measure(system, str(number))
                        found[row][system.name].append(said)
                        figures = "  ".join(f"{key} {value:.2f}" for key, value in said.items())
                        print(f"round {number + 1}  {row:5} {system.name:10} {figures}", flush=True)
    _print_ratios(found)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))
    joins = found["join"][OURS]
    return int(any(each["max_s"] > each["promised_s"] for each in joins))


def _print_ratios(found: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    for row, key in (("keep", "p99_ms"), ("join", "median_s"), ("beat", "cpu_ms_per_s")):
        ours, theirs = found[row][OURS], found[row][THEIRS]
        if ours and theirs:
            ratios = [mine[key] / other[key] for mine, other in zip(ours, theirs, strict=True)]
            print(f"{row} {key}: {statistics.median(ratios):.2f} of Kafka's ({min(ratios):.2f}-{max(ratios):.2f})")


if __name__ == "__main__":
    raise SystemExit(main())
