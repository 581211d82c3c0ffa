"""What a suite of tests waits for, and what it takes: `python -m tests.bench.pytest_suite [--against TREE]`.

May touch:  processes it starts, a temporary directory.    Must not touch: broker code.
Invariants: arms take turns; an unmeasured run comes first, so that what is imported is compiled; a figure is a median.
Read next:  docs/testing.md, A cluster in your tests.

The suite has 50 tests, each with a topic and a consumer group of its own: it writes one record and reads it (confluent-kafka). Time is
wall time of a test with its fixtures, all but the first, which starts the cluster; CPU is that of pytest and all its children, start
and end included. Then brokers in one process: CPU of the first with its imports, of each later one, and of closing; and how long a
record takes beside a thread that computes without pause. Against a tree: CPU of its `barnabas dev -n 1 --ephemeral --exec true`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

from tests.bench.start import HERE, ROOMS

PR_SET_CHILD_SUBREAPER = 36
RUNS = 3
TESTS = 50
ARMS = {"in process": ("barnabas_in_process", 1), "1 node": ("barnabas_cluster", 1), "3 nodes": ("barnabas_cluster", 3)}
"""Fixture and nodes."""
CLIENTS = {"as they are": {}, "reconnect.backoff.ms=1": {"reconnect.backoff.ms": 1}}
SUITE = """
import pytest
from confluent_kafka import Consumer, Producer

CLIENT = {client}

@pytest.mark.parametrize("number", range({tests}))
@pytest.mark.barnabas(nodes={nodes})
def test_a_record_comes_back({fixture}, barnabas_topic, number):
    servers = {{"bootstrap.servers": {fixture}.bootstrap_servers}} | CLIENT
    producer = Producer(servers)
    producer.produce(barnabas_topic, b"record")
    assert producer.flush(30) == 0
    consumer = Consumer(servers | {{"group.id": barnabas_topic, "auto.offset.reset": "earliest"}})
    consumer.subscribe([barnabas_topic])
    message = consumer.poll(30)
    assert message is not None and message.value() == b"record"
    consumer.close()
"""
PLUGIN = """
import json, os
seconds = {}

def pytest_runtest_logreport(report):
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration

def pytest_sessionfinish(session):
    with open(os.environ["BENCH_SECONDS"], "w") as stream:
        json.dump(list(seconds.values()), stream)
"""
BROKERS = '''
import json, resource, statistics, sys, threading, time

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

import barnabas

starts, closings = [], []
for number in range(21):
    began = cpu()
    broker = barnabas.broker().start()
    if number == 0:
        from barnabas_wire.client.blocking import BlockingCluster
        from barnabas_wire.kafka.ids import TopicPartition
        from barnabas_wire.records.batch import Record, build_batch
        batch = build_batch([Record(0, 0, None, b"record")])
    client = BlockingCluster(broker.bootstrap_servers)
    client.metadata(["first"], creates_topics=True)
    client.produce(TopicPartition("first", 0), batch)
    starts.append(cpu() - (began if number else 0.0))
    client.close()
    began = cpu()
    broker.close()
    closings.append(cpu() - began)

PRODUCER = """
import sys, time
from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import Record, build_batch
client = BlockingCluster(sys.argv[1])
client.metadata(["beside"], creates_topics=True)
batch = build_batch([Record(0, 0, None, b"record")])
took = []
for _ in range(500):
    began = time.perf_counter()
    client.produce(TopicPartition("beside", 0), batch)
    took.append(time.perf_counter() - began)
took.sort()
print(took[250], took[494])
"""
import subprocess
is_over = threading.Event()

def compute():
    while not is_over.is_set():
        sum(range(1000))

with barnabas.broker() as broker:
    thread = threading.Thread(target=compute)
    thread.start()
    done = subprocess.run([sys.executable, "-c", PRODUCER, broker.bootstrap_servers], capture_output=True, text=True, check=True)
    is_over.set()
    thread.join()
p50, p99 = map(float, done.stdout.split())
print(json.dumps({"first": starts[0], "later": statistics.median(starts[1:]), "closing": statistics.median(closings[1:]),
                  "p50 beside a thread that computes": p50, "p99 beside a thread that computes": p99}))
'''


def environment(tree: Path = HERE, **more: str) -> dict[str, str]:
    """With the sources of a tree."""
    return os.environ | {"PYTHONPATH": ":".join(str(tree / room) for room in ROOMS)} | more


def cpu_of(run: Callable[[], object]) -> float:
    """CPU time of all processes that a call starts, in s; they have ended when it returns. Whoever outlives its parent, as the server does
    that nodes are forked from, becomes a child of this process."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = used()
    run()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return used() - before


def run_suite(arm: str, client: str) -> tuple[float, float]:
    """Median of a test in s, CPU of the run in s."""
    fixture, nodes = ARMS[arm]
    with tempfile.TemporaryDirectory(prefix="barnabas-suite-") as directory:
        suite = Path(directory) / "test_suite.py"
        suite.write_text(
            SUITE.format(client=CLIENTS[client], tests=TESTS, nodes=nodes, fixture=fixture), encoding="utf-8"
        )
        (Path(directory) / "conftest.py").write_text(PLUGIN, encoding="utf-8")
        seconds = Path(directory) / "seconds.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", str(suite)]
        where = environment(BENCH_SECONDS=str(seconds))
        cpu_s = cpu_of(lambda: subprocess.run(command, env=where, cwd=directory, check=True, stdout=subprocess.DEVNULL))
        found = json.loads(seconds.read_text(encoding="utf-8"))
    return median(found[1:]), cpu_s


def run_brokers() -> dict[str, float]:
    """Figures of brokers in one process, in s."""
    command = [sys.executable, "-c", BROKERS]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def run_dev(tree: Path) -> float:
    """CPU of `barnabas dev -n 1` of a tree, until it serves and has ended, in s."""
    words = ["-m", "barnabas_admin.main", "dev", "-n", "1", "--ephemeral", "--port", "15092", "--exec", "true"]
    where = environment(tree)
    return cpu_of(lambda: subprocess.run([sys.executable, *words], env=where, check=True, capture_output=True))


def main() -> int:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(prog="tests.bench.pytest_suite", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--against", type=Path, help="a work tree whose `dev -n 1` takes turns with the first broker")
    parser.add_argument("--brokers", action="store_true", help="no suite, brokers alone")
    options = parser.parse_args()
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{options.runs} runs in turns, load average {load} on {os.cpu_count()} CPUs")
    if not options.brokers:
        arms = [(arm, client) for arm in ARMS for client in CLIENTS]
        suites: dict[tuple[str, str], list[tuple[float, float]]] = {arm: [] for arm in arms}
        for turn in range(options.runs + 1):
            for pair in arms:
                found = run_suite(*pair)
                if turn:
                    suites[pair].append(found)
        for (arm, client), columns in suites.items():
            each, cpu = (median(column) for column in zip(*columns, strict=True))
            print(f"{arm:12} {client:24} {each * 1000:5.0f} ms a test   {cpu:5.2f} CPU s for {TESTS}")
    brokers: list[dict[str, float]] = []
    former: list[float] = []
    for turn in range(options.runs + 1):
        found_brokers = run_brokers()
        found_dev = run_dev(options.against.resolve()) if options.against else 0.0
        if turn:
            brokers.append(found_brokers)
            former.append(found_dev)
    for name in brokers[0]:
        print(f"{name:36} {median(row[name] for row in brokers) * 1000:6.1f} ms")
    if options.against:
        ratios = [row["first"] / dev for row, dev in zip(brokers, former, strict=True)]
        print(f"{'former dev -n 1':36} {median(former) * 1000:6.1f} ms; the first is {median(ratios):.2f} of it")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
