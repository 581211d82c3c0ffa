"""How long three nodes need from exec to the first acknowledged record: `python -m tests.bench.start [--against TREE]`.

May touch:  processes it starts, a temporary directory.    Must not touch: broker code.
Invariants: an unmeasured start comes first, so that every tree's modules are compiled, as an installed package's are; trees
            take turns; a figure is a median.
Read next:  docs/performance.md, Start.

The record goes to a topic that it creates (`auto.create.topics.enable`), RF 3, acks=all: what stands before it is the format,
the processes, an election, three registrations, a topic and the follower's first fetches. Figures of a start, in ms since it
began: `serving` (the last node listens), `elected` (the active controller), `unfenced` (the last broker), `acknowledged`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import median

from confluent_kafka import KafkaError, Message, Producer

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port

HERE = Path(__file__).resolve().parents[2]
ROOMS = ("proto", "metadata_quorum", "log", "replication", "broker", "admin", "spark")
STARTS = 7
ACKNOWLEDGED_WITHIN_S = 30.0
MARKS = {"serving": "network.listener listener ", "elected": "controller is active", "unfenced": " is unfenced"}
"""What a node writes as it gets there."""
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


def start_once(nodes: int) -> dict[str, float]:
    """One cluster in a fresh directory: when it got where, and the CPU of its nodes, in ms."""
    with tempfile.TemporaryDirectory(prefix="barnabas-start-") as directory:
        cluster = LocalCluster(
            Path(directory) / "cluster",
            nodes=nodes,
            base_port=find_base_port(),
            overrides={"controller.quorum.election.timeout.ms": "500"},  # as `barnabas dev` starts its nodes
        )
        acknowledged: list[float] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise RuntimeError(f"the first record was refused: {error}")
            acknowledged.append(time.time())

        began = time.time()
        try:
            cluster.launch()
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **CLIENT})
            producer.produce("first", b"the first record", on_delivery=on_delivery)
            while not acknowledged:
                producer.poll(0.005)
                if time.time() - began > ACKNOWLEDGED_WITHIN_S:
                    raise TimeoutError(cluster.last_words(1))
            cpu_s = sum(_cpu_s(node.process.pid) for node in cluster.nodes.values() if node.process is not None)
            figures = dict.fromkeys(MARKS, 0.0)
            for node in cluster.nodes.values():
                for name, moment in _marks(node.stderr_file):
                    figures[name] = max(figures[name], (moment - began) * 1000)
        finally:
            cluster.stop(is_clean=False)
    return figures | {"acknowledged": (acknowledged[0] - began) * 1000, "cpu": cpu_s * 1000}


def _marks(words: Path) -> Iterator[tuple[str, float]]:
    for line in words.read_text(encoding="utf-8").splitlines():
        for name, mark in MARKS.items():
            if mark in line:
                yield name, datetime.fromisoformat(line.split(" ", 1)[0]).timestamp()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(tree: Path, nodes: int, compiled: Path) -> dict[str, float]:
    """`start_once` with the sources of a tree, in a process of its own."""
    environment = dict(os.environ, PYTHONPATH=":".join(str(tree / room) for room in ROOMS))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    command = [sys.executable, __file__, "--once", "--nodes", str(nodes)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(prog="tests.bench.start", description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=STARTS, help="measured starts of each tree")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another work tree: its sources take turns with these")
    parser.add_argument("--once", action="store_true", help="one start with the sources in PYTHONPATH, as JSON")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(start_once(options.nodes)))
        return 0
    trees = {"before": options.against.resolve()} if options.against else {}
    trees["now"] = HERE
    with tempfile.TemporaryDirectory(prefix="barnabas-compiled-") as compiled:
        for tree in trees.values():
            measure(tree, options.nodes, Path(compiled))
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        for _ in range(options.starts):
            for name, tree in trees.items():
                rows[name].append(measure(tree, options.nodes, Path(compiled)))
    print(f"{options.nodes} nodes, {options.starts} starts, ms since the start began: median (least to most)")
    for figure in (*MARKS, "acknowledged", "cpu"):
        words = []
        for name, found in rows.items():
            values = sorted(row[figure] for row in found)
            words.append(f"{name} {median(values):6.0f} ({values[0]:.0f} to {values[-1]:.0f})")
        print(f"{figure:>13}  " + "   ".join(words))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
