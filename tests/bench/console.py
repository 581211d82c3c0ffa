"""`make bench-console`: how long each page of the console takes beside many topics and groups, and what memory the console holds.

May touch:  processes it starts, a temporary directory.    Must not touch: the console's code, but for its list of routes.
Invariants: every route of the console is asked for, forms too; the routes take turns, so that whatever else goes on falls on all of
            them; the console keeps its history meanwhile, as it does for its users.
Read next:  docs/performance.md, Console.

    python -m tests.bench.console [--topics 1000] [--partitions 3] [--groups 50] [--rounds 100] [--json FILE] [--profile FILE]

Three nodes, RF 3; each group has committed for GROUP_TOPICS topics and has no member. A time is from the request to the answer's last
byte, over one connection that stays. CPU is that of the console and the nodes together, median: it says what a page costs where other
work makes the times longer. Memory is the console's process, now and at its highest.

Exit status 1: a page whose p99 is over 300 ms, or over 150 MiB.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient as KafkaAdmin
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from starlette.routing import compile_path

from barnabas_admin.client import AdminClient
from barnabas_admin.console.application import PAGES, RUN
from barnabas_admin.console.writes import FORMS
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.bench.machine import cpu_s, resident_mib, stolen_s

P99_MS_MAX = 300.0
RESIDENT_MIB_MAX = 150.0
TOPICS_PER_CALL = 100
GROUP_TOPICS = 10
RECORDS_PER_TOPIC = 20
LOOKS_S = 32.0
"""Until the console has looked at the cluster three times: its charts have lines then."""
WARM_UP_ROUNDS = 3
OVERRIDES = {
    "controller.quorum.election.timeout.ms": "500",
    "auto.create.topics.enable": "false",
    "log.flush.on.acks": "page-cache",
}
TRANSACTIONAL_ID = "bench-console"
SIMULATE = ("sim", "--scenario", "network-splits", "--seed", "1")
"""The run that the console steps through, of 210 steps."""


def routes(topic: str, group: str) -> list[str]:
    """An address for each thing that the console shows. Raises LookupError for a route that none of them is of."""
    found = [
        *("/", "/quorum", "/brokers", "/brokers/1", "/topics", "/topics?sort=leader_skew&order=down", "/topics?q=99"),
        *(f"/topics/{topic}?tab={tab}" for tab in ("partitions", "consumers", "config", "metrics", "explain")),
        f"/topics/{topic}?tab=messages&start=newest",
        f"/topics/{topic}/tail",
        *("/groups", f"/groups/{group}", "/transactions", f"/transaction?id={TRANSACTIONAL_ID}"),
        *("/access?tab=acls", "/access?tab=users", "/access?tab=quotas"),
        *("/events", "/explain?subject=leader", "/explain?subject=broker&broker=1", "/tv"),
        *("/topics/new", f"/topics/{topic}/delete", f"/topics/{topic}/config?key=retention.ms"),
        *(f"/topics/{topic}/produce", f"/groups/{group}/offsets", f"/transactions/abort?id={TRANSACTIONAL_ID}"),
        *("/access/acls/new", "/access/acls/delete", "/access/users/set", "/access/users/delete", "/access/quotas/set"),
        *(f"{RUN}?step=44", f"{RUN}?step=60&all=1"),
    ]
    paths = [each.partition("?")[0] for each in found]
    for pattern in (*PAGES, *FORMS, RUN):
        if not any(compile_path(pattern)[0].match(path) for path in paths):
            raise LookupError(f"no address of {pattern} is measured: add one to tests/bench/console.py")
    return found


def fill(cluster: LocalCluster, *, topics: int, partitions: int, groups: int) -> None:
    """Topics with a few records each, groups behind them, and one transactional id."""
    names = [f"orders-{index:04}" for index in range(topics)]
    with AdminClient(cluster.admin_addresses, timeout_s=60) as admin:
        for first in range(0, topics, TOPICS_PER_CALL):
            some = names[first : first + TOPICS_PER_CALL]
            for outcome in admin.create_topics(some, partitions=partitions, replication_factor=3):
                if outcome.HasField("error"):
                    raise RuntimeError(f"{outcome.name}: {outcome.error.message}")
    cluster.wait_until_healthy(timeout_s=120)
    client = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    producer = Producer(client | {"transactional.id": TRANSACTIONAL_ID})
    producer.init_transactions(60)
    producer.begin_transaction()
    for name in names:
        for number in range(RECORDS_PER_TOPIC):
            producer.produce(name, f'{{"order": {number}}}'.encode(), f"customer-{number}".encode())
        producer.poll(0)
    producer.commit_transaction(60)
    kafka = KafkaAdmin(client)
    for index in range(groups):
        name = f"readers-{index:03}"
        read = [names[(index * 7 + step) % topics] for step in range(GROUP_TOPICS)]
        offsets = [TopicPartition(topic, part, 1) for topic in read for part in range(partitions)]
        for waiting in kafka.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, offsets)]).values():
            waiting.result(60)


class ConsoleProcess:
    """`barnabas console` over a cluster; use as a context manager."""

    def __init__(self, cluster: LocalCluster, directory: Path, *, profile: Path | None) -> None:
        """profile: where cProfile writes what the console did, when it ends."""
        self._is_profiled = profile is not None
        how = ["-m", "cProfile", "-o", str(profile)] if profile is not None else []
        command = [sys.executable, *how, "-m", "barnabas_admin.main", "console", "--port", "0", "-o", "json"]
        command += ["--history", str(directory / "console.sqlite"), "--admin", cluster.admin_addresses]
        journal = directory / "run.jsonl"
        simulate = [sys.executable, "-m", "barnabas_broker.main", *SIMULATE, "--out", str(journal)]
        subprocess.run(simulate, stdout=subprocess.DEVNULL, check=True)
        command += ["--journal", str(journal)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address: str = json.loads(self._process.stdout.readline())["address"].removeprefix("http://")

    def __enter__(self) -> ConsoleProcess:
        return self

    def __exit__(self, *_: object) -> None:
        # After a SIGTERM cProfile writes nothing.
        self._process.send_signal(signal.SIGINT if self._is_profiled else signal.SIGTERM)
        self._process.wait(20)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    @property
    def resident_mib(self) -> float:
        """Memory now."""
        return resident_mib(self._process.pid)

    @property
    def highest_mib(self) -> float:
        """The most that it ever had."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise LookupError("no VmHWM")


def ask(connection: http.client.HTTPConnection, route: str) -> tuple[float, int]:
    """Milliseconds and bytes of one answer. Raises RuntimeError for one that is no page."""
    began = time.perf_counter()
    connection.request("GET", route)
    answer = connection.getresponse()
    body = answer.read()
    taken_ms = (time.perf_counter() - began) * 1000
    if answer.status != 200:
        raise RuntimeError(f"{route} answered {answer.status}: {body[-800:].decode(errors='replace')}")
    return taken_ms, len(body)


def measure(address: str, asked: Sequence[str], rounds: int, pids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A row for each route, the slowest first. pids: whose CPU time a page costs."""
    connection = http.client.HTTPConnection(address, timeout=60)
    taken: dict[str, list[float]] = {route: [] for route in asked}
    costs: dict[str, list[float]] = {route: [] for route in asked}
    sizes: dict[str, int] = {}
    for round_ in range(WARM_UP_ROUNDS + rounds):
        for route in asked:
            before_s = cpu_s(pids)
            taken_ms, sizes[route] = ask(connection, route)
            if round_ >= WARM_UP_ROUNDS:
                taken[route].append(taken_ms)
                costs[route].append((cpu_s(pids) - before_s) * 1000)
    connection.close()
    rows = [
        {
            "route": route,
            "p50_ms": round(quantile(times, 0.5), 1),
            "p99_ms": round(quantile(times, 0.99), 1),
            "max_ms": round(max(times), 1),
            "cpu_ms": round(quantile(costs[route], 0.5), 1),
            "bytes": sizes[route],
        }
        for route, times in taken.items()
    ]
    yield from sorted(rows, key=lambda row: -float(str(row["p99_ms"])))


def quantile(values: Sequence[float], fraction: float) -> float:
    """The smallest of the values that so much of them is at most."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * round(fraction * 100) // 100) - 1))]


def main() -> int:
    """Fill a cluster, ask every page, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.console", description="What each page takes.")
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=3, help="of each topic")
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=100, help="times that each page is asked for")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="write cProfile's figures of the console there")
    options = parser.parse_args()
    asked = routes("orders-0007", "readers-000")
    out = Console(highlight=False, soft_wrap=True, width=120)
    with tempfile.TemporaryDirectory(prefix="barnabas-console-") as name:
        directory = Path(name)
        base_port = find_base_port()
        with LocalCluster(directory / "cluster", nodes=3, base_port=base_port, overrides=OVERRIDES) as cluster:
            fill(cluster, topics=options.topics, partitions=options.partitions, groups=options.groups)
            with ConsoleProcess(cluster, directory, profile=options.profile) as console:
                time.sleep(LOOKS_S)
                began, stolen = time.monotonic(), stolen_s()
                pids = [node.process.pid for node in cluster.nodes.values() if node.process is not None]
                rows = list(measure(console.address, asked, options.rounds, [console.pid, *pids]))
                figures = {
                    "topics": options.topics,
                    "partitions": options.topics * options.partitions,
                    "groups": options.groups,
                    "rounds": options.rounds,
                    "seconds": round(time.monotonic() - began, 1),
                    "stolen_s": round(stolen_s() - stolen, 2),
                    "resident_mib": round(console.resident_mib, 1),
                    "highest_mib": round(console.highest_mib, 1),
                    "routes": rows,
                }
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading, side in (
        ("route", "left"),
        *((each, "right") for each in ("p50 ms", "p99 ms", "max ms", "CPU ms", "bytes")),
    ):
        table.add_column(heading, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        late = row["p99_ms"] > P99_MS_MAX
        times = [f"{row[name]:.1f}" for name in ("p50_ms", "p99_ms", "max_ms", "cpu_ms")]
        table.add_row(row["route"], *times, f"{row['bytes']:,}", style="red" if late else "")
    out.print(table)
    out.print(
        f"{options.topics:,} topics, {figures['partitions']:,} partitions, {options.groups} groups, {options.rounds} rounds in "
        f"{figures['seconds']} s, load average {os.getloadavg()[0]:.1f}; "
        f"the console holds {figures['resident_mib']} MiB, at most {figures['highest_mib']}"
    )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    is_late = any(row["p99_ms"] > P99_MS_MAX for row in rows)
    return 1 if is_late or figures["highest_mib"] > RESIDENT_MIB_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
