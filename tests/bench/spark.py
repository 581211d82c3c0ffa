"""`make bench-spark`: what Spark reads and writes through `format("barnabas")` and through its own Kafka connector, in turn.

May touch:  a cluster of its own, two Spark drivers, temporary directories.    Must not touch: broker code.
Invariants: both sides read the same topics of the same broker, in turn within each round, the first one first in every other; each has a
            driver of its own, so that CPU and memory are its own; every run is counted, and a wrong count ends the bench; one small
            run of each kind goes before and is not shown.
Read next:  spark_arm.py, a side.

    python -m tests.bench.spark [--rows PREFIX ...] [--mib 256] [--rounds 3] [--minutes 40] [--json FILE] [--alone]

One broker in page-cache mode, values of random bytes without a key in batches of 16 KiB; where they are compressed, half of each is
zeros. What is written is a number filled up with one letter. Broker, drivers, Python workers and bench share the machine. CPU is that
of a side's driver, its JVM and its Python workers; memory the most that these had together (PSS, so that pages they share count once),
looked at four times a second. `--alone` leaves the stock connector out, where its jars are out of reach.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil

from barnabas_wire.records.compression import CompressionType
from tests.bench.blaster import Target, blast, settle
from tests.bench.cluster import BenchCluster
from tests.bench.frames import KIB, MIB, Load, make_produce
from tests.bench.machine import stolen_s
from tests.bench.spark_arm import ANSWER, OURS, STOCK, Seen, Task

ROOT = Path(__file__).resolve().parents[2]
WINDOW = 16
BATCH_BYTES = 16 * KIB
START_S = 240.0
RUN_S = 300.0
LOOK_S = 0.25
TREE_AGE_LOOKS = 4
WARM_MIB = 4
WRITTEN_SHARE = 4
"""A write row writes so much less than the others read."""
READ_GOAL, GOAL = 1.5, 1.0


class Shape(NamedTuple):
    """What a row is measured on."""

    record_bytes: int
    compression: CompressionType
    partitions: int

    def __str__(self) -> str:
        size = f"{self.record_bytes} B" if self.record_bytes < KIB else f"{self.record_bytes // KIB} KiB"
        return f"{size}, {self.compression.name.lower()}, {self.partitions} partitions"


SHAPES = [
    Shape(size, codec, partitions)
    for codec in (CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD)
    for partitions in (6, 200)
    for size in (100, KIB)
]
"""In this order, so that what is left out when the time is over are codecs."""
EVERYWHERE = ("batch, values read", "stream, availableNow")
UNCOMPRESSED = ("batch, count", "batch, all columns", "batch, first row", "stream, stateful")
WRITES = ("write, at least once", "write, exactly once")
ROWS = (*UNCOMPRESSED, *EVERYWHERE, *WRITES)


class Spent(NamedTuple):
    """What one run took."""

    seconds: float
    first_s: float | None
    jvm_s: float
    python_s: float
    peak_mib: float


class Side:
    """A driver that waits for work, and what its processes use."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.spark_arm", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
                cwd=ROOT,
            )
        self._root = psutil.Process(self._process.pid)
        self._unread = b""
        self._spent: dict[tuple[int, float], tuple[bool, float]] = {}
        self.version = self._answer(START_S)["version"]

    def measured(self, task: Task) -> Spent:
        """One run. Raises SystemExit when it saw anything but what is there."""
        self._ask(None)
        before = self._cpu_s()
        peak, is_over = [0.0], threading.Event()
        looking = threading.Thread(target=self._look, args=(peak, is_over))
        looking.start()
        try:
            seen = self.run(task)
        finally:
            is_over.set()
            looking.join()
        if seen.records != task.records:
            raise SystemExit(f"{task.row} by {self.name} saw {seen.records:,} of {task.records:,} records")
        jvm_s, python_s = (now - then for now, then in zip(self._cpu_s(), before, strict=True))
        return Spent(seen.seconds, seen.first_s, jvm_s, python_s, peak[0])

    def run(self, task: Task) -> Seen:
        """The same without a look at what it takes."""
        return Seen(**self._ask(task))

    def end(self) -> None:
        """The driver with its JVM and its workers, each by its id."""
        tree = [self._root, *self._children()]
        for one in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()
        psutil.wait_procs(tree, 20)

    def _ask(self, task: Task | None) -> dict[str, Any]:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(task).encode() + b"\n")
        stdin.flush()
        return self._answer(RUN_S)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        stdout: IO[bytes] | None = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout_s
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                if line.startswith(ANSWER.encode()):
                    answer: dict[str, Any] = json.loads(line[len(ANSWER) :])
                    return answer
                continue  # Spark writes there, too
            left_s = deadline - time.monotonic()
            is_ready = select.select([stdout], [], [], left_s)[0] if left_s > 0 else []
            data = os.read(stdout.fileno(), 65_536) if is_ready else b""
            if not data:
                what = "has ended" if is_ready else f"gave no answer within {timeout_s:.0f} s"
                raise SystemExit(f"the driver of {self.name} {what}:\n{self.log.read_text()[-3000:]}")
            self._unread += data

    def _children(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return self._root.children(recursive=True)
        return []

    def _cpu_s(self) -> tuple[float, float]:
        """(JVM, Python) so far, of those that have ended too."""
        for one in (self._root, *self._children()):
            self._note(one)
        jvm_s = sum(spent for is_java, spent in self._spent.values() if is_java)
        return jvm_s, sum(spent for is_java, spent in self._spent.values() if not is_java)

    def _note(self, one: psutil.Process) -> None:
        """What a process has used: Spark ends workers that rest, and then nobody else knows."""
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            self._spent[one.pid, one.create_time()] = "java" in one.name(), times.user + times.system

    def _look(self, peak: list[float], is_over: threading.Event) -> None:
        looks, tree, is_last = 0, [self._root, *self._children()], False
        while not is_last:
            is_last = is_over.wait(LOOK_S)  # one look more: a run may be shorter than a pause
            looks += 1
            if looks % TREE_AGE_LOOKS == 0:
                tree = [self._root, *self._children()]
            found = 0
            for one in tree:
                self._note(one)
                with contextlib.suppress(psutil.NoSuchProcess):
                    found += one.memory_full_info().pss
            peak[0] = max(peak[0], found / MIB)


class Filled(NamedTuple):
    """A topic that is read."""

    name: str
    records: int


def fill(cluster: BenchCluster, shape: Shape, mib: int) -> Filled:
    """A topic of about so many MiB of values."""
    name, leaders = cluster.create_topic(partitions=shape.partitions, replicas=1, durability="page-cache")
    load = Load(shape.record_bytes, BATCH_BYTES)
    targets = [
        Target(
            leader.host,
            leader.port,
            make_produce(load, name, leader.partition, acks=1, compression=shape.compression),
        )
        for leader in leaders
    ]
    settle(targets)
    wanted = mib * MIB // shape.record_bytes // targets[0].frame.record_count
    blast(targets, requests=max(shape.partitions, wanted), window=WINDOW)
    return Filled(name, cluster.records(name))


def rows_of(wanted: Sequence[str]) -> Iterator[tuple[Shape, list[str]]]:
    """The rows of each shape."""
    for shape in SHAPES:
        names = list(EVERYWHERE)
        if shape.compression == CompressionType.NONE:
            names = [*UNCOMPRESSED, *names]
        if shape.partitions == SHAPES[0].partitions or shape == Shape(100, CompressionType.NONE, 200):
            names += WRITES
        chosen = [name for name in names if name.startswith(tuple(wanted))]
        if chosen:
            yield shape, chosen


class Bench:
    """The cluster, the sides, the table as it grows."""

    def __init__(self, cluster: BenchCluster, sides: Sequence[Side], *, mib: int, rounds: int, deadline: float) -> None:
        """deadline: of time.monotonic, for the last row."""
        self.cluster = cluster
        self.sides = sides
        self.mib = mib
        self.rounds = rounds
        self.deadline = deadline
        self._longest_s = 0.0
        self.table: list[dict[str, Any]] = []

    def warm(self) -> None:
        """Python processes of Spark start, code is compiled: nobody's seconds."""
        topic = fill(self.cluster, SHAPES[0], WARM_MIB)
        for name in ROWS:
            for side in self.sides:
                self._run(side, name, SHAPES[0], topic)
        self.cluster.delete_topic(topic.name)

    def measure(self, shape: Shape, names: Sequence[str]) -> list[str]:
        """Print each row; returns those that were left out, as the time would be over before they are."""
        topic, left = None, []
        for name in names:
            started = time.monotonic()
            if started + self._longest_s > self.deadline:
                left.append(f"{name}, {shape}")
                continue
            if topic is None:
                topic = fill(self.cluster, shape, self.mib)
            found: dict[str, list[Spent]] = {side.name: [] for side in self.sides}
            for number in range(self.rounds):
                for side in self.sides if number % 2 == 0 else self.sides[::-1]:
                    found[side.name].append(self._run(side, name, shape, topic))
            self._report(name, shape, topic.records, found)
            self._longest_s = max(self._longest_s, time.monotonic() - started)
        if topic is not None:
            self.cluster.delete_topic(topic.name)
        return left

    def _run(self, side: Side, name: str, shape: Shape, topic: Filled) -> Spent:
        codec = shape.compression.name.lower()
        task = Task(name, self.cluster.bootstrap, topic.name, topic.records, shape.record_bytes, codec)
        if name not in WRITES:
            return side.measured(task)
        target, _ = self.cluster.create_topic(partitions=shape.partitions, replicas=1, durability="page-cache")
        task = task._replace(topic=target, records=topic.records // WRITTEN_SHARE)
        spent = side.measured(task)
        # By the other side, if there is one: what a sink wrote its own source need not judge.
        judge = next((other for other in self.sides if other is not side), side)
        seen = judge.run(task._replace(row="batch, count", is_committed=True))
        if seen.records != task.records:
            raise SystemExit(f"{name} by {side.name}: {seen.records:,} of {task.records:,} records are there")
        self.cluster.delete_topic(target)
        return spent

    def _report(self, name: str, shape: Shape, records: int, found: dict[str, list[Spent]]) -> None:
        if name in WRITES:
            records //= WRITTEN_SHARE
        row: dict[str, Any] = {"row": name, "shape": str(shape), "records": records}
        cells = []
        for side, runs in found.items():
            seconds, first_s, cpu_s, mib = (median(runs, kind) for kind in ("seconds", "first_s", "cpu_s", "peak_mib"))
            assert seconds is not None and cpu_s is not None and mib is not None
            row[side] = [run._asdict() for run in runs]
            cells += [
                f"{records / seconds / 1e6:.2f}" if name != "batch, first row" else "",
                f"{cpu_s:.1f}",
                f"{first_s:.2f}" if first_s is not None else "",
                f"{mib:,.0f}",
            ]
        if len(found) == 2:
            row["ratios"] = ratios(found)
            cells += [
                f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"
                for values in row["ratios"].values()
            ]
        self.table.append(row)
        print(f"| {name} | {shape} | {' | '.join(cells)} |", flush=True)


def median(runs: Sequence[Spent], kind: str) -> float | None:
    """Of one of the figures of each run; cpu_s: JVM and Python together."""
    values = [run.jvm_s + run.python_s if kind == "cpu_s" else getattr(run, kind) for run in runs]
    return None if None in values else statistics.median(values)


def ratios(found: dict[str, list[Spent]]) -> dict[str, list[float]]:
    """Ours ÷ stock, round by round: rate, CPU seconds, memory."""
    pairs = list(zip(found[OURS], found[STOCK], strict=True))
    return {
        "rate": [stock.seconds / ours.seconds for ours, stock in pairs],
        "cpu": [(ours.jvm_s + ours.python_s) / max(0.01, stock.jvm_s + stock.python_s) for ours, stock in pairs],
        "memory": [ours.peak_mib / stock.peak_mib for ours, stock in pairs],
    }


def behind(table: Sequence[dict[str, Any]]) -> list[str]:
    """The rows whose rate is below the goal: 1.5 of the stock connector's in reads, 1.0 in writes."""
    lines = []
    for row in table:
        if "ratios" in row:
            goal = GOAL if row["row"] in WRITES else READ_GOAL
            rate = statistics.median(row["ratios"]["rate"])
            if rate < goal:
                lines.append(f"{row['row']}, {row['shape']}: {rate:.2f} of {goal}")
    return lines


def header(sides: Sequence[Side]) -> str:
    """Two lines of Markdown."""
    cells = ["row", "topic"]
    for side in sides:
        name = "ours" if side.name == OURS else f"stock {side.version}"
        cells += [f"{name}: M records/s", "CPU s", "first row s", "MiB"]
    if len(sides) == 2:
        cells += ["rate ÷ (more is better)", "CPU ÷ (less is better)", "memory ÷"]
    return f"| {' | '.join(cells)} |\n|{'---|' * len(cells)}"


def main() -> int:
    """Start, warm up, measure, say what is behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=[""], metavar="PREFIX", help=f"of: {'; '.join(ROWS)}")
    parser.add_argument("--mib", type=int, default=256, help="values of each topic that is read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--minutes", type=float, default=40, help="a row that would not end by then is left out, and named"
    )
    parser.add_argument("--alone", action="store_true", help="without the stock connector")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    left: list[str] = []
    with contextlib.ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        cluster = running.enter_context(BenchCluster(directory / "cluster", nodes=1))
        sides = []
        for name in [OURS] if arguments.alone else [OURS, STOCK]:
            sides.append(Side(name, directory / f"{name}.log"))
            running.callback(sides[-1].end)
        bench = Bench(cluster, sides, mib=arguments.mib, rounds=arguments.rounds, deadline=deadline)
        bench.warm()
        stolen, load = stolen_s(), os.getloadavg()[0]
        print(
            f"{arguments.rounds} rounds, {arguments.mib} MiB a topic, {os.cpu_count()} cores; load before: {load:.1f}\n"
        )
        print(header(sides), flush=True)
        for shape, names in rows_of(arguments.rows):
            left += bench.measure(shape, names)
        stolen, load = stolen_s() - stolen, os.getloadavg()[0]
        print(f"\nload after: {load:.1f}; the host took {stolen:.0f} CPU s")
    if arguments.json is not None:
        said = {"rounds": arguments.rounds, "mib": arguments.mib, "rows": bench.table, "left_out": left}
        arguments.json.write_text(json.dumps(said, indent=1))
    for line in behind(bench.table):
        print(f"behind: {line}")
    for line in left:
        print(f"not run, the {arguments.minutes:.0f} minutes were over: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
