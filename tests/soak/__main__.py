"""`python -m tests.soak --hours H`: churn against three real nodes, cycle after cycle; at rest they must be as after the first.

May touch:  a temporary directory, loopback.   Must not touch: anything else.
Invariants: exit status 1 when a figure did not return, a node ended or complained, or some kind of churn never succeeded.
Read next:  churn.py, figures.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.chaos.nodes import ROOT, find_complaints
from tests.soak.churn import STEADY, STEADY_CONFIGS, STEADY_PARTITIONS
from tests.soak.figures import MIB, RSS, Growth, find_growth, gauge_sums, process_figures, table

CYCLE_S = (20.0, 900.0)
CYCLES = 6
"""A run has so many cycles, unless they would be shorter or longer than CYCLE_S."""
REST_S = 20.0
"""From the end of a cycle's load to its figures: deletions and expiries are done."""
SETTLE_S = 120.0
"""The last figures may take so long to return."""
LOOK_EVERY_S = 5.0
CHURN_ENDS_WITHIN_S = 120.0
KINDS = ("connections", "admin connections", "topics", "producer ids", "group members", "steady records")
OVERRIDES = {
    "offsets.topic.num.partitions": "3",
    "file.delete.delay.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "producer.id.expiration.ms": "5000",
    "producer.id.expiration.check.interval.ms": "1000",
}


FILL_BYTES = 3 * MIB
"""Of each partition of the topic that stays: its segments and its retention turn over before the baseline."""
FILL_RECORD_BYTES = 16 * 1024


class Soak:
    """One run."""

    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        self._cluster = cluster
        self._seed = seed
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.moments: list[tuple[str, dict[int, dict[str, float]]]] = []
        self.broken: list[str] = []
        self.grown: list[Growth] = []
        self._begun = time.monotonic()

    def run(self, duration_s: float) -> None:
        """Cycles for as long, the first of them only for the baseline."""
        length = min(max(duration_s / CYCLES - REST_S, CYCLE_S[0]), CYCLE_S[1])
        self._look("idle, new")
        deadline = self._begun + duration_s
        cycle = 0
        while cycle < 2 or time.monotonic() + length < deadline:
            self._churn(cycle, length)
            time.sleep(REST_S)
            self._look("baseline" if cycle == 0 else f"cycle {cycle}")
            cycle += 1
        (_, baseline) = self.moments[1]
        deadline = time.monotonic() + SETTLE_S
        while True:
            (_, last) = self.moments[-1]
            self.grown = [growth for node in last for growth in find_growth(node, baseline[node], last[node])]
            if time.monotonic() > deadline or not any(growth.is_judged for growth in self.grown):
                break
            time.sleep(LOOK_EVERY_S)
            self._look("settling")

    def _look(self, moment: str) -> None:
        figures = {}
        for node in self._cluster.nodes.values():
            assert node.process is not None
            status, page = self._cluster.http_get(node.id, "/metrics")
            if status != 200:
                self.broken.append(f"{moment}: node {node.id} does not tell its metrics: {page}")
            figures[node.id] = process_figures(node.process.pid) | gauge_sums(page if status == 200 else "")
        is_again = bool(self.moments) and self.moments[-1][0] == moment
        if is_again:
            self.moments.pop()
        self.moments.append((moment, figures))
        if is_again:
            return
        sizes = " ".join(f"{found[RSS] / MIB:.0f}" for found in figures.values())
        print(f"{time.monotonic() - self._begun:7.0f} s  {moment}: {sizes} MiB; {_counted(self.done)}", flush=True)

    def _churn(self, cycle: int, length_s: float) -> None:
        words = ["--bootstrap", self._cluster.bootstrap_servers, "--admin", self._cluster.admin_addresses]
        churn = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.churn", *words, "--seed", str(self._seed + cycle)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):  # it works until it is told to end
            churn.wait(length_s)
        try:
            output, _ = churn.communicate(timeout=CHURN_ENDS_WITHIN_S)
            found = json.loads(output)
        except (subprocess.TimeoutExpired, ValueError) as error:
            churn.kill()
            churn.wait()
            self.broken.append(f"cycle {cycle}: the clients did not end in order: {error!r}")
            return
        self.done.update(found["done"])
        self.errors.update(found["errors"])
        missing = [kind for kind in KINDS if not found["done"].get(kind)]
        if missing:
            self.broken.append(f"cycle {cycle}: no {', no '.join(missing)}: the clients heard {found['errors']}")


def _fill(bootstrap_servers: str) -> None:
    """Let every partition of STEADY have as many segments as it will have from now on. Raises TimeoutError."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5})
    for partition in range(STEADY_PARTITIONS):
        for _ in range(FILL_BYTES // FILL_RECORD_BYTES):
            producer.produce(STEADY, b"x" * FILL_RECORD_BYTES, partition=partition)
    if producer.flush(CHURN_ENDS_WITHIN_S):
        raise TimeoutError(f"{STEADY} was not filled within {CHURN_ENDS_WITHIN_S:.0f} s; look at the nodes' logs")


def _counted(done: Counter[str]) -> str:
    return ", ".join(f"{done[kind]:,} {kind}" for kind in KINDS)


def run(directory: Path, *, hours: float, seed: int, result: Path | None) -> int:
    """Soak, print, judge; returns the exit status."""
    with LocalCluster(directory, nodes=3, base_port=find_base_port(), overrides=OVERRIDES) as cluster:
        with AdminClient(cluster.admin_addresses, timeout_s=30.0) as admin:
            admin.create_topics([STEADY], partitions=STEADY_PARTITIONS, replication_factor=3, configs=STEADY_CONFIGS)
        cluster.wait_until_healthy()
        _fill(cluster.bootstrap_servers)
        soak = Soak(cluster, seed)
        soak.run(hours * 3600)
        soak.broken += [f"node {death.node_id} {death.status}: {death.last_words}" for death in cluster.find_deaths()]
        for node in cluster.nodes.values():
            lines = node.stderr_file.read_text(errors="replace").splitlines()
            soak.broken += [f"node {node.id}: {line}" for line in find_complaints(lines)]
    print(table(soak.moments))
    print(_counted(soak.done))
    for words, times in soak.errors.most_common(10):
        print(f"  clients heard {times} times: {words}")
    for words in soak.broken[:20]:
        print(f"  BROKEN {words}")
    for growth in soak.grown:
        print(f"  {'GREW' if growth.is_judged else 'not judged:'} {growth}")
    is_clean = not soak.broken and not any(growth.is_judged for growth in soak.grown)
    print("clean" if is_clean else "BROKEN")
    if result is not None:
        found = {
            "hours": hours,
            "seed": seed,
            "is_clean": is_clean,
            "done": soak.done,
            "errors": soak.errors,
            "broken": soak.broken,
            "grown": [growth._asdict() for growth in soak.grown],
            "moments": [{"moment": moment, "nodes": nodes} for moment, nodes in soak.moments],
        }
        result.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if is_clean else 1


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.1, help="how long; a fraction will do")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-soak-", ignore_cleanup_errors=True) as temporary:
        return run(Path(temporary), hours=options.hours, seed=options.seed, result=options.json)


if __name__ == "__main__":
    sys.exit(main())
