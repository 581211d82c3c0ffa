"""`make bench-trace`: see __init__.py.

May touch:  processes it starts, a temporary directory.    Must not touch: broker code.
Invariants: one record at a time, acks=all, three replicas, each sent at its time.
Read next:  path.py.

    python -m tests.bench.trace [--rate 200] [--seconds 10] [--durable] [--idle PARTITIONS] [--json FILE]

A mark costs about 0.3 us, a record has some 25 of them in its way. What a wrapped function costs more is in its step.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.bench.blaster import Target, settle
from tests.bench.frames import Load, make_produce
from tests.bench.peer.systems import NODES, SHARED, Barnabas, System
from tests.bench.trace.path import Journey, Trace, trace
from tests.bench.trace.points import Marks

RECORD = Load(100, 100)
WARM_UP = 100
"""Records that are not counted."""


def measure(directory: Path, *, rate: int, seconds: float, is_durable: bool, idle_partitions: int) -> Trace:
    """Start three traced nodes, send, stop them, read their marks."""
    cluster = LocalCluster(directory / "cluster", nodes=NODES, base_port=find_base_port(), overrides=SHARED)
    files = {node_id: directory / f"marks-{node_id}" for node_id in cluster.nodes}
    for node_id, node in cluster.nodes.items():
        node.server = (sys.executable, "-m", "tests.bench.trace.node", str(files[node_id]))
    with cluster:
        system = System("traced", Barnabas(cluster))
        system.add_idle(idle_partitions)
        topic = system.create(1, NODES, system.cluster.durability("durable" if is_durable else "page cache"))
        (leader,) = system.leaders(topic)
        target = Target(leader.host, leader.port, make_produce(RECORD, topic, 0, acks=-1))
        settle([target])
        journeys = produce(target, rate, int(rate * seconds) + WARM_UP)[WARM_UP:]
    marks: dict[int, Marks] = {node_id: json.loads(path.read_text()) for node_id, path in files.items()}
    return trace(journeys, marks, leader.broker_id)


def produce(target: Target, rate: int, records: int) -> list[Journey]:
    """One after another, each at its time or when the one before is answered."""
    journeys = []
    with socket.create_connection((target.host, target.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        for index in range(records):
            time.sleep(max(0.0, began + index / rate - time.monotonic()))
            sent = time.monotonic_ns()
            connection.sendall(target.frame.data)
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            answered = time.monotonic_ns()
            connection.recv(size, socket.MSG_WAITALL)
            journeys.append(Journey(sent, answered))
    return journeys


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trace", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--durable", action="store_true", help="flushed before each answer")
    parser.add_argument(
        "--idle", type=int, default=0, metavar="PARTITIONS", help="that lie beside, with three replicas"
    )
    parser.add_argument("--json", type=Path, help="write the table here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = measure(
            Path(place),
            rate=options.rate,
            seconds=options.seconds,
            is_durable=options.durable,
            idle_partitions=options.idle,
        )
    print(f"{os.cpu_count()} CPUs, {options.rate} records/s; {found.seen} followed, {found.left_out} left out\n")
    print(found.table())
    if options.json is not None:
        lines = {line.stretch.name: line[1:] for line in (*found.lines, found.total)}
        options.json.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
