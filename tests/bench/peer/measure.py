"""How a row is measured, on either system alike.

May touch:  processes it starts, a temporary directory.        Must not touch: broker code.
Invariants: every run has a topic of its own; CPU is that of all brokers of the system.
Read next:  systems.py, client.py; ../blaster.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from barnabas_wire.records.compression import CompressionType
from tests.bench.blaster import Target, blast, drain, settle
from tests.bench.frames import KIB, MIB, Load, make_produce
from tests.bench.machine import MemoryAtHand, cpu_s, resident_mib
from tests.bench.peer.results import percentile
from tests.bench.peer.rows import Kind, RowSpec
from tests.bench.peer.systems import FAST, NODES, TIMEOUT_S, TLS_PORT_OFFSET, System, make_system

LATENCY_S = 5.0
THROUGHPUT_S = 1.0
RUN_BYTES_MAX = 1_000_000_000
"""Of all replicas of a run together: the page cache takes them without writing back."""
TRIAL_BYTES = 6_000_000
IN_FLIGHT_BYTES = 4 * MIB
"""Per connection; see ../__main__.py on windows."""
FETCHED_BYTES = 400_000_000
IDLE_S = 8.0


def measure(system: System, row: RowSpec, directory: Path) -> dict[str, float]:
    """One run; figures by name with unit."""
    if row.kind is Kind.IDLE:
        return _idle(system)
    if row.kind is Kind.MEMORY:
        return {"MiB of all brokers": sum(resident_mib(pid) for pid in system.cluster.pids())}
    partitions = 1 if row.kind is Kind.FAILOVER or (row.producers == 1 and row.kind is Kind.LATENCY) else row.partitions
    topic = system.create(partitions, row.replicas, system.cluster.durability(row.durability))
    try:
        if row.kind is Kind.LATENCY:
            return _latency(system, row, topic)
        if row.kind is Kind.FAILOVER:
            return _failover(system, row, topic)
        if row.kind is Kind.FETCH:
            return _fetch(system, row, topic)
        return _throughput(system, row, topic, directory)
    finally:
        system.delete(topic)


def start(name: str, directory: Path) -> dict[str, float]:
    """Three nodes of that system in an empty directory, to the first acknowledged record; then they are stopped."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        system = make_system(name, Path(place))
        try:
            system.cluster.prepare()
            began = time.perf_counter()
            system.cluster.launch()
            topic = system.create_first()
            aim = {"bootstrap.servers": system.cluster.bootstrap, "log_level": 0}
            producer = Producer({**aim, "acks": "all", "linger.ms": 0, **FAST})
            producer.produce(topic, b"first")
            if producer.flush(TIMEOUT_S):
                raise TimeoutError(f"{name} did not acknowledge its first record within {TIMEOUT_S} s")
            return {"s": time.perf_counter() - began}
        finally:
            system.cluster.stop()


def client_alone(row: RowSpec) -> dict[str, float]:
    """The client's own part of a latency row."""
    said = _client(bootstrap="", topic="echo", rate=row.rate, seconds=LATENCY_S / 2, producers=row.producers, pids=[])
    return {figure: value for figure, value in _latency_figures(said).items() if figure.endswith(" ms")}


def warm(system: System, directory: Path, cpu_seconds: float, rows: Sequence[RowSpec]) -> None:
    """Have the hot paths of these rows compiled, where a system compiles: produce of both kinds, replication, fetch.

    For so much CPU time of its own, as a compiler on a busy machine gets little in a minute, and until a small record costs no
    less than it did the time before; twice as long at most.
    """
    before = cpu_s(system.cluster.pids())
    replicas = max(row.replicas for row in rows)
    paths = [
        path
        for has_tls in sorted({row.has_tls for row in rows})
        for path in (
            RowSpec(name="", kind=Kind.THROUGHPUT, replicas=replicas, has_tls=has_tls),
            RowSpec(
                name="", kind=Kind.THROUGHPUT, replicas=replicas, load=Load(MIB, MIB), has_lz4=True, has_tls=has_tls
            ),
            RowSpec(name="", kind=Kind.FETCH, load=Load(KIB, MIB), replicas=1, has_tls=has_tls),
        )
    ]
    paths.append(RowSpec(name="", kind=Kind.LATENCY, replicas=replicas, rate=200))
    costs: list[float] = []
    while (spent := cpu_s(system.cluster.pids()) - before) < cpu_seconds or (
        spent < 2 * cpu_seconds and not is_settled(costs)
    ):
        for path in paths:
            seen = measure(system, path, directory)
        costs.append(seen["CPU ms/record"])


def is_settled(costs: Sequence[float]) -> bool:
    """Whether the last cost is within a tenth of the least before it."""
    return len(costs) > 1 and costs[-1] > 0.9 * min(costs[:-1])


def _client(**options: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.peer.client", json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"the client failed: {done.stderr.strip()[-2000:]}")
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def _latency(system: System, row: RowSpec, topic: str) -> dict[str, float]:
    said = _client(
        bootstrap=system.cluster.bootstrap,
        topic=topic,
        rate=row.rate,
        seconds=LATENCY_S,
        producers=row.producers,
        pids=system.cluster.pids(),
    )
    return _latency_figures(said)


def _latency_figures(said: dict[str, Any]) -> dict[str, float]:
    ordered = sorted(said["latencies_s"])
    return {
        "p50 ms": percentile(ordered, 0.5) * 1e3,
        "p99 ms": percentile(ordered, 0.99) * 1e3,
        "CPU ms/record": said["broker_cpu_s"] * 1e3 / said["records"],
    }


def _failover(system: System, row: RowSpec, topic: str) -> dict[str, float]:
    (leader,) = system.leaders(topic)
    said = _client(
        bootstrap=system.cluster.bootstrap,
        topic=topic,
        rate=row.rate,
        seconds=0,
        producers=1,
        pids=[],
        kill=system.cluster.pid_of(leader.broker_id),
    )
    system.cluster.mend(leader.broker_id)
    system.wait_whole(topic, 1, NODES)
    return {"s to the next acknowledgement": said["back_after_s"]}


def _throughput(system: System, row: RowSpec, topic: str, directory: Path) -> dict[str, float]:
    targets = _targets(system, row, topic)
    settle(targets)
    request_bytes = targets[0].frame.value_bytes
    window = max(4, IN_FLIGHT_BYTES // max(len(targets[0].frame.data), request_bytes))
    trial = blast(targets, requests=max(12, TRIAL_BYTES // request_bytes), window=window)
    wanted = min(trial.mb_per_s * 1e6 * THROUGHPUT_S, RUN_BYTES_MAX / row.replicas)
    requests = max(30, int(wanted / request_bytes) // row.partitions * row.partitions)
    with MemoryAtHand(directory, int(requests * len(targets[0].frame.data)) * row.replicas):
        before = cpu_s(system.cluster.pids())
        result = blast(targets, requests=requests, window=window)
        cpu = cpu_s(system.cluster.pids()) - before
    return {"MB/s": result.mb_per_s, "CPU ms/MB": cpu * 1e3 / (result.bytes / 1e6)}


def _targets(system: System, row: RowSpec, topic: str) -> list[Target]:
    compression = CompressionType.LZ4 if row.has_lz4 else CompressionType.NONE
    offset, tls = (TLS_PORT_OFFSET, system.tls) if row.has_tls else (0, None)
    return [
        Target(
            leader.host,
            leader.port + offset,
            make_produce(row.load, topic, index, acks=-1, compression=compression),
            tls,
        )
        for index, leader in enumerate(system.leaders(topic))
    ]


def _fetch(system: System, row: RowSpec, topic: str) -> dict[str, float]:
    (aim, *_) = _targets(system, row, topic)
    settle([aim])
    requests = max(20, FETCHED_BYTES // aim.frame.value_bytes)
    blast([aim], requests=requests, window=4)
    end = (requests + 1) * aim.frame.record_count
    share = aim.frame.value_bytes / aim.frame.batch_bytes
    before = cpu_s(system.cluster.pids())
    result = drain(aim.host, aim.port, topic, 0, end_offset=end, max_bytes=MIB, values_share=share, tls=aim.tls)
    cpu = cpu_s(system.cluster.pids()) - before
    return {"MB/s": result.mb_per_s, "CPU ms/MB": cpu * 1e3 / (result.bytes / 1e6)}


def _idle(system: System) -> dict[str, float]:
    time.sleep(1.0)
    before, began = cpu_s(system.cluster.pids()), time.perf_counter()
    time.sleep(IDLE_S)
    return {"cores": (cpu_s(system.cluster.pids()) - before) / (time.perf_counter() - began)}
