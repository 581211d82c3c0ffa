"""What transactions cost, beside Apache Kafka in one run: `make bench-transactions`, at most 20 minutes.

May touch:  processes it starts, a temporary directory.        Must not touch: broker code.
Invariants: the same client against all systems, round by round in turn; every run has topics and transactional ids of its own; a
            latency counts from when its record was to be sent.
Read next:  peer/systems.py; docs/performance.md, Transactions.

    python -m tests.bench.transactions [--rows PREFIX ...] [--rounds 3] [--json FILE] [--without-kafka]

"Page cache" is what Kafka acknowledges by default, so that is what stands beside it; "durable" is Barnabas' own default, in which the
coordinators' topics are flushed too. The client is librdkafka (transaction.version 1 on the wire).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas_wire.kafka.messages.end_txn import EndTxnRequest
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from tests.bench.machine import cpu_s
from tests.bench.peer.results import OURS, THEIRS, Results, percentile
from tests.bench.peer.systems import KAFKA_VERSION, NODES, SHARED, TIMEOUT_S, Barnabas, System, make_system
from tests.oracle import apache

DURABLE = f"{OURS}, durable"
PARTITIONS = 3
VALUE = b"v" * 100
WRITE_S = 5.0
SINGLE_TRANSACTIONS = 300
READ_RECORDS = 200_000
COPY_S = 8.0
COPY_RATE = 500
COPY_COMMIT_S = 0.1
OPEN_IDS = 1_000
PACED_RATE = 200
PACED_S = 5.0
TRANSACTION_KEY_TYPE = 1
CLIENTS_VERSION = 3
"""Of the requests that open and end the idle transactions, as librdkafka sends them."""
_ids = itertools.count(1)

AT_ONCE = 50

T = TypeVar("T")
Measure = Callable[[System], dict[str, float]]


def producer(system: System, **settings: Any) -> Producer:
    """With a transactional id of its own, ready."""
    made = Producer(
        {
            "bootstrap.servers": system.cluster.bootstrap,
            "transactional.id": f"bench-{next(_ids)}",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
            **settings,
        }
    )
    made.init_transactions(TIMEOUT_S)
    return made


def consumer(system: System, topic: str, isolation: str) -> Consumer:
    """From the beginning of all partitions."""
    made = Consumer(
        {
            "bootstrap.servers": system.cluster.bootstrap,
            "group.id": f"bench-{next(_ids)}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    made.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    return made


def produce(client: Producer, topic: str, value: bytes) -> None:
    """Wait where the client's queue is full."""
    while True:
        try:
            client.produce(topic, value)
            return
        except BufferError:
            client.poll(0.01)


@contextmanager
def topic_of(system: System) -> Iterator[str]:
    """A topic for one run."""
    topic = system.create(PARTITIONS, NODES, {})
    try:
        yield topic
    finally:
        system.delete(topic)


def write(system: System, *, commit_every_s: float) -> dict[str, float]:
    """As fast as the client goes, with a commit at each interval."""
    with topic_of(system) as topic:
        client = producer(system)
        commits: list[float] = []
        records = 0
        before, began = cpu_s(system.cluster.pids()), time.monotonic()
        while time.monotonic() < began + WRITE_S:
            client.begin_transaction()
            until = time.monotonic() + commit_every_s
            while time.monotonic() < until:
                for _ in range(100):
                    produce(client, topic, VALUE)
                records += 100
                client.poll(0)
            at = time.monotonic()
            client.commit_transaction(TIMEOUT_S)
            commits.append(time.monotonic() - at)
        took = time.monotonic() - began
        cpu = cpu_s(system.cluster.pids()) - before
        commits.sort()
        return {
            "records/s": records / took,
            "commit p50 ms": percentile(commits, 0.5) * 1e3,
            "commit p99 ms": percentile(commits, 0.99) * 1e3,
            "CPU ms/1,000 records": cpu * 1e6 / records,
        }


def single(system: System) -> dict[str, float]:
    """One record a transaction, one after another: all of it is commit."""
    with topic_of(system) as topic:
        client = producer(system, **{"linger.ms": 0})
        times: list[float] = []
        before = 0.0
        for number in range(SINGLE_TRANSACTIONS + 30):
            if number == 30:  # the first ones warm up
                before = cpu_s(system.cluster.pids())
            at = time.monotonic()
            client.begin_transaction()
            client.produce(topic, VALUE)
            client.commit_transaction(TIMEOUT_S)
            if number >= 30:
                times.append(time.monotonic() - at)
        cpu = cpu_s(system.cluster.pids()) - before
        times.sort()
        return {
            "p50 ms": percentile(times, 0.5) * 1e3,
            "p99 ms": percentile(times, 0.99) * 1e3,
            "CPU ms/transaction": cpu * 1e3 / SINGLE_TRANSACTIONS,
        }


def read(system: System) -> dict[str, float]:
    """A topic of which every third transaction was aborted, read both ways."""
    with topic_of(system) as topic:
        client = producer(system)
        for number in range(READ_RECORDS // 2_000):
            client.begin_transaction()
            for _ in range(2_000):
                produce(client, topic, VALUE)
            client.poll(0)
            if number % 3 == 2:
                client.flush(TIMEOUT_S)
                client.abort_transaction(TIMEOUT_S)
            else:
                client.commit_transaction(TIMEOUT_S)
        transactions = READ_RECORDS // 2_000
        committed = (transactions - transactions // 3) * 2_000
        found = {}
        for isolation, wanted in (("read_uncommitted", READ_RECORDS), ("read_committed", committed)):
            client_reads = consumer(system, topic, isolation)
            seen = 0
            before, began = cpu_s(system.cluster.pids()), time.monotonic()
            while seen < wanted:
                seen += len(client_reads.consume(10_000, timeout=1.0))
                if time.monotonic() > began + TIMEOUT_S:
                    raise TimeoutError(f"{seen} of {wanted} records were read, {isolation}")
            took = time.monotonic() - began
            cpu = cpu_s(system.cluster.pids()) - before
            client_reads.close()
            found[f"{isolation.removeprefix('read_')}: records/s"] = wanted / took
            found[f"{isolation.removeprefix('read_')}: CPU ms/1,000 records"] = cpu * 1e6 / wanted
        return found


def copy(system: System) -> dict[str, float]:
    """Records at a rate, copied in transactions of 100 ms with their offsets, read by a reader of committed data."""
    with topic_of(system) as source, topic_of(system) as target:
        is_over = threading.Event()
        reader = consumer(system, target, "read_committed")
        copying = threading.Thread(target=_copy_until, args=(system, source, target, is_over))
        copying.start()
        writer = Producer(
            {"bootstrap.servers": system.cluster.bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0}
        )
        wanted = int(COPY_S * COPY_RATE)
        times: list[float] = []

        def send() -> None:
            began = time.monotonic()
            for number in range(wanted):
                due = began + number / COPY_RATE
                time.sleep(max(0.0, due - time.monotonic()))
                writer.produce(source, repr(due).encode())
                writer.poll(0)
            writer.flush(TIMEOUT_S)

        sending = threading.Thread(target=send)
        sending.start()
        deadline = time.monotonic() + COPY_S + TIMEOUT_S
        while len(times) < wanted and time.monotonic() < deadline:
            for message in reader.consume(500, timeout=0.2):
                value = message.value()
                if message.error() is None and value is not None:
                    times.append(time.monotonic() - float(value))
        sending.join()
        is_over.set()
        copying.join()
        reader.close()
        if len(times) != wanted:
            raise TimeoutError(f"{len(times)} of {wanted} records were copied")
        ordered = sorted(times[COPY_RATE:])  # the first second warms up
        return {
            "end to end p50 ms": percentile(ordered, 0.5) * 1e3,
            "end to end p99 ms": percentile(ordered, 0.99) * 1e3,
        }


def _copy_until(system: System, source: str, target: str, is_over: threading.Event) -> None:
    reader = Consumer(
        {
            "bootstrap.servers": system.cluster.bootstrap,
            "group.id": f"copy-{next(_ids)}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    reader.subscribe([source])
    client = producer(system, **{"linger.ms": 0})
    try:
        while not is_over.is_set():
            client.begin_transaction()
            until = time.monotonic() + COPY_COMMIT_S
            copied = 0
            while (left := until - time.monotonic()) > 0:
                for message in reader.consume(100, timeout=min(left, 0.02)):
                    if message.error() is None:
                        client.produce(target, message.value())
                        copied += 1
                client.poll(0)
            if copied:
                client.send_offsets_to_transaction(
                    reader.position(reader.assignment()), reader.consumer_group_metadata(), TIMEOUT_S
                )
            client.commit_transaction(TIMEOUT_S)
    finally:
        reader.close()


def beside_open(system: System) -> dict[str, float]:
    """Plain records at a rate, alone and beside many open transactions of others in the same partitions."""
    with topic_of(system) as topic:
        alone = _paced(system, topic)
        with _open_transactions(system, topic):
            beside = _paced(system, topic)
        return {
            "p99 ms, none open": alone,
            f"p99 ms, {OPEN_IDS:,} open": beside,
            "p99, times": beside / alone,
        }


def _paced(system: System, topic: str) -> float:
    times: list[float] = []
    client = Producer({"bootstrap.servers": system.cluster.bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})

    def sent(due: float) -> Callable[[Any, Any], None]:
        def on_delivery(error: Any, _: Any) -> None:
            if error is not None:
                raise KafkaException(error)
            times.append(time.monotonic() - due)

        return on_delivery

    began = time.monotonic()
    for number in range(int(PACED_RATE * PACED_S)):
        due = began + number / PACED_RATE
        while (left := due - time.monotonic()) > 0:
            client.poll(left)
        client.produce(topic, VALUE, partition=number % PARTITIONS, on_delivery=sent(due))
    client.flush(TIMEOUT_S)
    return percentile(sorted(times[PACED_RATE:]), 0.99) * 1e3


@contextmanager
def _open_transactions(system: System, topic: str) -> Iterator[None]:
    """Begun by a client that says it to the coordinators and then does nothing."""
    names = [f"open-{next(_ids)}" for _ in range(OPEN_IDS)]
    producers = asyncio.run(_begin(system, topic, names))
    try:
        yield
    finally:
        asyncio.run(_end(system, names, producers))


async def _begin(system: System, topic: str, names: Sequence[str]) -> list[tuple[int, int]]:
    async def begin(client: ClusterClient, name: str) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)
        answer = await client.call_coordinator(name, request, key_type=TRANSACTION_KEY_TYPE)
        if answer.error_code:
            raise RuntimeError(f"{system.name} gave {name} no producer id: {answer.error_code}")
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=answer.producer_id,
            v3_and_below_producer_epoch=answer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, list(range(PARTITIONS)))],
        )
        added = await client.call_coordinator(name, add, key_type=TRANSACTION_KEY_TYPE, version_max=CLIENTS_VERSION)
        codes = {each.partition_error_code for each in added.results_by_topic_v3_and_below[0].results_by_partition}
        if codes != {0}:
            raise RuntimeError(f"{system.name} added no partitions for {name}: {codes}")
        return answer.producer_id, answer.producer_epoch

    return await _for_each(system, names, begin)


async def _end(system: System, names: Sequence[str], producers: Sequence[tuple[int, int]]) -> None:
    known = dict(zip(names, producers, strict=True))

    async def end(client: ClusterClient, name: str) -> None:
        producer_id, epoch = known[name]
        request = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=False)
        await client.call_coordinator(name, request, key_type=TRANSACTION_KEY_TYPE, version_max=CLIENTS_VERSION)

    await _for_each(system, names, end)


async def _for_each(
    system: System, names: Sequence[str], work: Callable[[ClusterClient, str], Coroutine[Any, Any, T]]
) -> list[T]:
    """A few at once."""
    client = ClusterClient(system.cluster.bootstrap, client_id="bench", timeout_s=TIMEOUT_S)
    done: list[T] = []
    try:
        for first in range(0, len(names), AT_ONCE):
            done += await asyncio.gather(*(work(client, name) for name in names[first : first + AT_ONCE]))
    finally:
        await client.close()
    return done


class Row(NamedTuple):
    """One row of the table."""

    name: str
    measure: Measure


ROWS = (
    Row("commit every 10 ms", lambda system: write(system, commit_every_s=0.01)),
    Row("commit every 100 ms", lambda system: write(system, commit_every_s=0.1)),
    Row("commit every 1 s", lambda system: write(system, commit_every_s=1.0)),
    Row("one record a transaction", single),
    Row("read, a third aborted", read),
    Row(f"copy, {COPY_RATE}/s, commit every 100 ms", copy),
    Row(f"plain records beside {OPEN_IDS:,} open transactions", beside_open),
)


@contextmanager
def running(directory: Path, *, with_kafka: bool) -> Iterator[list[System]]:
    """All systems, started."""
    overrides = SHARED | {"log.flush.on.acks": "page-cache"}
    with contextlib.ExitStack() as stack:
        page_cache = LocalCluster(directory / "cached", nodes=NODES, base_port=find_base_port(), overrides=overrides)
        systems = [System(OURS, Barnabas(page_cache))]
        stack.callback(page_cache.stop)
        systems[0].start()
        if with_kafka:
            systems.append(make_system(THEIRS, directory))
            stack.callback(systems[1].cluster.stop)
            systems[1].start()
        durable = make_system(OURS, directory)
        durable.name = DURABLE
        stack.callback(durable.cluster.stop)
        durable.start()
        yield [*systems, durable]


def table(results: Results) -> str:
    """Markdown; an exclamation mark where Kafka is ahead."""
    lines = [f"| row | figure | {OURS} | {THEIRS} | ratio (spread) | {DURABLE} |", "|---|---|---|---|---|---|"]
    for row, figures in results.rows.items():
        for figure in figures:
            ours, theirs, durable = (results.median(row, figure, name) for name in (OURS, THEIRS, DURABLE))
            ratio = results.ratio(row, figure)
            is_rate = figure.endswith("records/s")
            is_behind = ratio is not None and (ratio.median < 1 if is_rate else ratio.median > 1)
            said = "–" if ratio is None else f"{ratio}{' !' if is_behind else ''}"
            cells = [
                "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
                for value in (ours, theirs, durable)
            ]
            lines.append(f"| {row} | {figure} | {cells[0]} | {cells[1]} | {said} | {cells[2]} |")
    return "\n".join(lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.transactions", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--rows", nargs="*", metavar="PREFIX", default=[""], help="rows whose names begin so; default all"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all rounds here")
    parser.add_argument("--without-kafka", action="store_true")
    options = parser.parse_args()
    rows = [row for row in ROWS if row.name.startswith(tuple(options.rows))]
    reason = "it was left out" if options.without_kafka else apache.fetch(KAFKA_VERSION)
    with_kafka = reason is None
    if reason is not None:
        print(f"Apache Kafka is not measured: {reason}", file=sys.stderr)
    results = Results(about={"kafka": KAFKA_VERSION if with_kafka else None, "rounds": options.rounds})
    with tempfile.TemporaryDirectory() as place, running(Path(place), with_kafka=with_kafka) as systems:
        for system in systems:  # a coordinator makes its topics, a cold JVM compiles
            for _ in range(3 if system.name == THEIRS else 1):
                single(system)
                write(system, commit_every_s=0.05)
        for row in rows:
            for number in range(options.rounds):
                for system in systems[number % len(systems) :] + systems[: number % len(systems)]:
                    try:
                        results.add(row.name, system.name, row.measure(system))
                    except (KafkaException, OSError, RuntimeError) as failure:  # the other rows are worth having
                        results.failures.append(f"{row.name}, {system.name}, round {number + 1}: {failure}")
                        print(f"failed: {results.failures[-1]}", file=sys.stderr)
            print(
                "\n".join(table(Results(rows={row.name: results.rows.get(row.name, {})})).splitlines()[2:]), flush=True
            )
    print(f"\n{table(results)}")
    if options.json is not None:
        options.json.write_text(results.to_json(), encoding="utf-8")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
