"""`make bench`: produce and fetch through the real listener, beside what the machine costs without a broker.

May touch:  processes it starts, a temporary directory.    Must not touch: broker code.
Invariants: floor and broker are measured in turn, round after round, and a ratio is the median of the rounds' own ratios;
            each run first touches the memory it will write; the worst fdatasync stands beside every latency; a floor worse
            than 0.9 ms/MB or 30 us per 16 KiB request voids everything.
Read next:  floor.py, blaster.py, cluster.py.

    python -m tests.bench [--rounds 3] [--scale 1.0] [--only TEXT] [--json FILE] [--directory DIR]

MB are 10^6 bytes of record values. CPU is of the broker processes alone, all threads. Exit status: 0 when every target is
met, 1 when one is missed, 2 when the run is void.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.blaster import Blast, Target, blast, drain, drain_floor, settle
from tests.bench.cluster import BenchCluster
from tests.bench.frames import KIB, MIB, Load, make_produce
from tests.bench.machine import FlushProbe, cpu_s, resident_mib, touch_memory

FLOOR_MS_PER_MB_MAX = 0.9
FLOOR_US_PER_REQUEST_MAX = 30.0
SMALL, LARGE = 16 * KIB, MIB
LOADS = (Load(KIB, SMALL), Load(KIB, LARGE), Load(100, SMALL), Load(100, LARGE))
PAGE_CACHE, DURABLE = "page-cache", "fsync"
WINDOW = {SMALL: 64, LARGE: 4}
FETCH_BYTES = MIB
FETCH_CONNECTIONS = 6
IDLE_S = 10.0


@dataclass(slots=True)
class Row:
    """One line of the table: the medians of its rounds."""

    name: str
    cpu_ms_per_mb: float
    cpu_us_per_request: float
    mb_per_s: float
    krecords_per_s: float
    p50_ms: float
    p99_ms: float
    data_lag_p99_ms: float
    control_lag_p99_ms: float
    elections: int
    fdatasync_worst_ms: float
    ratio: float | None = None
    """To the floor of the same rounds."""


@dataclass(slots=True)
class Demand:
    """One demand on the figures."""

    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the value is within its bound."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.at_least is not None and self.value >= self.at_least


@dataclass(slots=True)
class Bench:
    """One whole run."""

    directory: Path
    rounds: int
    scale: float
    only: str
    rows: dict[str, list[Row]] = field(default_factory=dict)
    facts: dict[str, list[float]] = field(default_factory=dict)

    # ---- one measurement

    def measure(self, name: str, pids: list[int], cluster: BenchCluster | None, work: Callable[[], Blast]) -> Row:
        """Run `work` and put down what it cost the processes."""
        before = cluster.snapshot() if cluster is not None else None
        with FlushProbe(self.directory) as probe:
            cpu_before = cpu_s(pids)
            result = work()
            cpu = cpu_s(pids) - cpu_before
        after = cluster.snapshot() if cluster is not None else None
        row = Row(
            name=name,
            cpu_ms_per_mb=cpu * 1e3 / (result.bytes / 1e6),
            cpu_us_per_request=cpu * 1e6 / result.requests,
            mb_per_s=result.mb_per_s,
            krecords_per_s=result.records / result.seconds / 1e3,
            p50_ms=result.percentile_ms(0.5),
            p99_ms=result.percentile_ms(0.99),
            data_lag_p99_ms=0.0,
            control_lag_p99_ms=0.0,
            elections=0,
            fdatasync_worst_ms=probe.worst_ms,
        )
        if before is not None and after is not None:
            lag = "barnabas_loop_lag_seconds"
            row.data_lag_p99_ms = after.quantile_ms(before, lag, 'lane="data"', 0.99)
            row.control_lag_p99_ms = after.quantile_ms(before, lag, 'lane="control"', 0.99)
            row.elections = int(after.grown(before, "barnabas_raft_elections_total"))
        self.rows.setdefault(name, []).append(row)
        print(
            f"  {name:58s} {row.cpu_ms_per_mb:7.3f} ms/MB {row.mb_per_s:7.0f} MB/s  p50 {row.p50_ms:7.2f}"
            f"  p99 {row.p99_ms:7.2f} ms  fdatasync worst {row.fdatasync_worst_ms:.1f} ms",
            flush=True,
        )
        return row

    def wants(self, name: str) -> bool:
        """Whether --only lets the case run."""
        return self.only in name

    def requests(self, load: Load, value_bytes: int) -> int:
        """How many requests a run of this load sends."""
        total = (200e6 if load.batch_bytes == SMALL else 400e6) * self.scale
        return max(60, int(total / value_bytes) // 3 * 3)

    # ---- the floor

    @contextmanager
    def floor_process(self, *arguments: str) -> Iterator[tuple[int, int]]:
        """(pid, port) of a floor server."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.floor", *arguments], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()

    def floor_produce(self, load: Load) -> Row:
        """The produce floor with the frames of this load."""
        frame = make_produce(load, "floor", 0, acks=-1)
        requests = self.requests(load, frame.value_bytes)
        path = self.directory / "floor.log"
        touch_memory(int(requests * len(frame.data) * 1.1))
        with self.floor_process("produce", str(path), str(frame.batch_start)) as (pid, port):
            target = Target("127.0.0.1", port, frame)
            row = self.measure(
                f"floor, produce, {load.name}",
                [pid],
                None,
                lambda: blast([target], requests=requests, window=WINDOW[load.batch_bytes], is_broker=False),
            )
        path.unlink()
        return row

    def floor_fetch(self, load: Load, segment: Path) -> Row:
        """The sendfile floor, in answers of FETCH_BYTES, over the very file that the broker sends.

        The same file, because the page cache gives it from large or small folios, as it was written: 0.05 to 0.35 ms/MB.
        """
        frame = make_produce(load, "floor", 0, acks=-1)
        with self.floor_process("fetch", str(segment), str(FETCH_BYTES)) as (pid, port):
            return self.measure(
                f"floor, sendfile, {load.name}",
                [pid],
                None,
                lambda: _in_turn(
                    lambda: drain_floor(
                        "127.0.0.1",
                        port,
                        requests=segment.stat().st_size // FETCH_BYTES,
                        records_bytes=FETCH_BYTES,
                        values_share=frame.value_bytes / frame.batch_bytes,
                    )
                ),
            )

    # ---- the broker

    def produce_and_fetch(self, cluster: BenchCluster, load: Load, durability: str, replicas: int) -> None:
        """One topic: blast it full, then read it back."""
        kind = "durable" if durability == DURABLE else "page cache"
        name = f"produce, RF {replicas}, {kind}, {load.name}"
        if not self.wants(name):
            return
        partitions = 1 if replicas == 1 else cluster.node_count
        topic, leaders = cluster.create_topic(partitions=partitions, replicas=replicas, durability=durability)
        frames = [make_produce(load, topic, leader.partition, acks=-1) for leader in leaders]
        targets = [Target(leader.host, leader.port, frame) for leader, frame in zip(leaders, frames, strict=True)]
        requests = self.requests(load, frames[0].value_bytes)
        touch_memory(int(requests * len(frames[0].data) * replicas * 1.1))
        settle(targets)
        floor = self.floor_produce(load) if replicas == 1 and durability == PAGE_CACHE else None
        if floor is not None:
            touch_memory(int(requests * len(frames[0].data) * 1.1))
        row = self.measure(
            name,
            cluster.pids,
            cluster,
            lambda: blast(targets, requests=requests, window=WINDOW[load.batch_bytes]),
        )
        if floor is not None:
            row.ratio = row.cpu_ms_per_mb / floor.cpu_ms_per_mb
        if durability == PAGE_CACHE:
            frame = frames[0]
            end_offset = requests // len(targets) * frame.record_count
            floor = self.floor_fetch(load, cluster.segment(topic)) if replicas == 1 else None
            row = self.measure(
                f"fetch, RF {replicas}, {load.name}",
                cluster.pids,
                cluster,
                lambda: _in_turn(
                    lambda: drain(
                        leaders[0].host,
                        leaders[0].port,
                        topic,
                        0,
                        end_offset=end_offset,
                        max_bytes=FETCH_BYTES,
                        values_share=frame.value_bytes / frame.batch_bytes,
                    )
                ),
            )
            if floor is not None:
                row.ratio = row.cpu_ms_per_mb / floor.cpu_ms_per_mb
        cluster.delete_topic(topic)

    def librdkafka(self, cluster: BenchCluster, load: Load, durability: str, replicas: int) -> None:
        """The same with confluent-kafka: produce, then consume."""
        kind = "durable" if durability == DURABLE else "page cache"
        name = f"librdkafka produce, RF {replicas}, {kind}, {load.name}"
        if not self.wants(name):
            return
        partitions = 1 if replicas == 1 else cluster.node_count
        topic, _ = cluster.create_topic(partitions=partitions, replicas=replicas, durability=durability)
        records = int((100e6 if load.record_bytes >= KIB else 40e6) * self.scale / load.record_bytes)
        touch_memory(int(records * (load.record_bytes + 12) * replicas * 1.1))
        sizes = (str(load.record_bytes), str(load.batch_bytes), str(records))
        self.measure(name, cluster.pids, cluster, lambda: _client("produce", cluster.bootstrap, topic, *sizes))
        self.measure(
            f"librdkafka consume, RF {replicas}, {load.name}",
            cluster.pids,
            cluster,
            lambda: _client("consume", cluster.bootstrap, topic, str(records)),
        )
        cluster.delete_topic(topic)

    def lone_writer(self, cluster: BenchCluster) -> None:
        """One durable request at a time, RF 1: its p50 beside one fdatasync."""
        name = "lone writer, RF 1, durable, 1 KiB"
        if not self.wants(name):
            return
        topic, leaders = cluster.create_topic(partitions=1, replicas=1, durability=DURABLE)
        frame = make_produce(Load(KIB, KIB), topic, 0, acks=-1)
        target = Target(leaders[0].host, leaders[0].port, frame)
        with FlushProbe(self.directory) as probe:
            time.sleep(1.0)
        row = self.measure(name, cluster.pids, cluster, lambda: blast([target], requests=500, window=1))
        self.facts.setdefault("lone writer p50 - fdatasync p50, ms", []).append(row.p50_ms - probe.median_ms)
        cluster.delete_topic(topic)

    def idle(self, cluster: BenchCluster) -> None:
        """What a cluster costs while nothing happens."""
        time.sleep(2.0)
        before = cpu_s(cluster.pids)
        time.sleep(IDLE_S)
        self.facts["idle, % of a core"] = [(cpu_s(cluster.pids) - before) / IDLE_S * 100]
        self.facts["memory of a node, idle, MiB"] = [max(resident_mib(pid) for pid in cluster.pids)]
        self.facts["start, s"] = [cluster.start_s]

    def run(self) -> None:
        """All cases, round by round."""
        if "RF 3" not in self.only:
            with BenchCluster(self.directory / "one", nodes=1) as cluster:
                for _ in range(self.rounds):
                    for load in LOADS:
                        for durability in (PAGE_CACHE, DURABLE):
                            self.produce_and_fetch(cluster, load, durability, 1)
                    self.lone_writer(cluster)
                    for load in LOADS:
                        self.librdkafka(cluster, load, DURABLE, 1)
        if "RF 1" not in self.only:
            with BenchCluster(self.directory / "three", nodes=3) as cluster:
                self.idle(cluster)
                for _ in range(self.rounds):
                    for load in LOADS:
                        for durability in (PAGE_CACHE, DURABLE):
                            self.produce_and_fetch(cluster, load, durability, 3)
                    for load in (LOADS[0], LOADS[2]):
                        self.librdkafka(cluster, load, DURABLE, 3)

    # ---- what came out

    def medians(self) -> list[Row]:
        """One row per case."""
        found = []
        for name, rows in self.rows.items():
            values: dict[str, Any] = {}
            for key in Row.__dataclass_fields__:
                if key == "name":
                    continue
                column = [getattr(row, key) for row in rows]
                if key == "ratio":
                    values[key] = None if None in column else statistics.median(column)
                elif key == "elections":
                    values[key] = sum(column)
                elif key == "fdatasync_worst_ms":
                    values[key] = max(column)
                else:
                    values[key] = statistics.median(column)
            found.append(Row(name=name, **values))
        return found

    def targets(self, rows: list[Row]) -> list[Demand]:
        """The demands, as far as their figures were measured."""
        by_name = {row.name: row for row in rows}
        small, large = LOADS[0], LOADS[1]
        found = []

        def ratio(name: str, at_most: float) -> None:
            row = by_name.get(name)
            if row is not None and row.ratio is not None:
                found.append(Demand(f"{name}: broker CPU / floor CPU", row.ratio, at_most=at_most))

        ratio(f"produce, RF 1, page cache, {large.name}", 1.5)
        ratio(f"produce, RF 1, page cache, {small.name}", 2.5)
        ratio(f"fetch, RF 1, {large.name}", 1.5)
        ratio(f"fetch, RF 1, {small.name}", 1.5)
        for load, at_most in ((small, 4.0), (large, 6.0)):
            one = by_name.get(f"produce, RF 1, page cache, {load.name}")
            three = by_name.get(f"produce, RF 3, page cache, {load.name}")
            if one is not None and three is not None:
                share = three.cpu_ms_per_mb / one.cpu_ms_per_mb
                found.append(Demand(f"{load.name}: CPU of all brokers, RF 3 / RF 1", share, at_most=at_most))
        for replicas in (1, 3):
            for load in (small, large):
                page = by_name.get(f"produce, RF {replicas}, page cache, {load.name}")
                durable = by_name.get(f"produce, RF {replicas}, durable, {load.name}")
                if page is not None and durable is not None:
                    share = durable.mb_per_s / page.mb_per_s
                    found.append(
                        Demand(f"{load.name}, RF {replicas}: durable MB/s / page cache MB/s", share, at_least=0.75)
                    )
        served = [row for row in rows if not row.name.startswith("floor")]
        if served:
            lag = max(row.control_lag_p99_ms for row in served)
            found.append(Demand("control-lane tick p99 under load, worst case, ms", lag, at_most=50.0))
            found.append(Demand("elections under load", sum(row.elections for row in served), at_most=0.0))
        bounds = {
            "lone writer p50 - fdatasync p50, ms": 1.0,
            "idle, % of a core": 3.0,
            "memory of a node, idle, MiB": 120.0,
            "start, s": 3.0,
        }
        for name, at_most in bounds.items():
            if name in self.facts:
                found.append(Demand(name, statistics.median(self.facts[name]), at_most=at_most))
        return found

    def void_reason(self, rows: list[Row]) -> str | None:
        """Why the figures mean nothing, if so."""
        by_name = {row.name: row for row in rows}
        large = by_name.get(f"floor, produce, {LOADS[1].name}")
        if large is not None and large.cpu_ms_per_mb > FLOOR_MS_PER_MB_MAX:
            return f"the floor is {large.cpu_ms_per_mb:.2f} ms/MB with 1 MiB batches (at most {FLOOR_MS_PER_MB_MAX})"
        small = by_name.get(f"floor, produce, {LOADS[0].name}")
        if small is not None and small.cpu_us_per_request > FLOOR_US_PER_REQUEST_MAX:
            return f"the floor is {small.cpu_us_per_request:.0f} us per 16 KiB request (at most {FLOOR_US_PER_REQUEST_MAX:.0f})"
        return None


def _in_turn(work: Callable[[], Blast]) -> Blast:
    """The same reading over several connections, one after another, as one result.

    What sendfile costs depends on which of the CPUs the reader happens to run on: 0.05 to 0.45 ms/MB for the same bytes and
    the same process, constant while a connection lives.
    """
    parts = [work() for _ in range(FETCH_CONNECTIONS)]
    return Blast(
        seconds=sum(part.seconds for part in parts),
        requests=sum(part.requests for part in parts),
        bytes=sum(part.bytes for part in parts),
        records=sum(part.records for part in parts),
        latencies_s=[latency for part in parts for latency in part.latencies_s],
    )


def _client(*arguments: str) -> Blast:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.librdkafka", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    seen = json.loads(done.stdout)
    return Blast(seen["seconds"], seen["records"], seen["bytes"], seen["records"], seen["latencies_s"])


def _print_table(rows: list[Row]) -> None:
    print(
        f"\n{'median of the rounds':58s} {'CPU':>8s} {'CPU':>9s} {'':>7s} {'':>9s} {'p50':>8s} {'p99':>8s} {'data lag':>9s}"
        f" {'ctl lag':>8s} {'elec-':>6s} {'worst':>9s} {'x':>6s}"
    )
    print(
        f"{'':58s} {'ms/MB':>8s} {'us/req':>9s} {'MB/s':>7s} {'krec/s':>9s} {'ms':>8s} {'ms':>8s} {'p99 ms':>9s}"
        f" {'p99 ms':>8s} {'tions':>6s} {'fsync ms':>9s} {'floor':>6s}"
    )
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        print(
            f"{row.name:58s} {row.cpu_ms_per_mb:8.3f} {row.cpu_us_per_request:9.1f} {row.mb_per_s:7.0f}"
            f" {row.krecords_per_s:9.1f} {row.p50_ms:8.2f} {row.p99_ms:8.2f} {row.data_lag_p99_ms:9.1f}"
            f" {row.control_lag_p99_ms:8.1f} {row.elections:6d} {row.fdatasync_worst_ms:9.1f} {ratio:>6s}"
        )


def main() -> int:
    """Parse, run, print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often every case is run (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of each run; 1.0 is 200 to 400 MB")
    parser.add_argument("--only", default="", help="run only cases whose name contains this text, such as 'RF 1'")
    parser.add_argument("--json", type=Path, default=None, help="write rows, facts and targets to this file")
    parser.add_argument("--directory", type=Path, default=None, help="where to keep logs meanwhile")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-", dir=options.directory))
    bench = Bench(directory, options.rounds, options.scale, options.only)
    try:
        bench.run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rows = bench.medians()
    _print_table(rows)
    void = bench.void_reason(rows)
    targets = bench.targets(rows)
    print("\ntargets")
    for target in targets:
        bound = f"at most {target.at_most:g}" if target.at_most is not None else f"at least {target.at_least:g}"
        print(f"  {'met   ' if target.is_met else 'MISSED'} {target.name}: {target.value:.2f} ({bound})")
    if void is not None:
        print(f"\nVOID: {void}; something else uses this machine, or it is too slow to say anything")
    if options.json is not None:
        document = {
            "rows": [asdict(row) for row in rows],
            "facts": bench.facts,
            "targets": [{**asdict(target), "is_met": target.is_met} for target in targets],
            "void": void,
        }
        options.json.write_text(json.dumps(document, indent=1))
    if void is not None:
        return 2
    return 0 if all(target.is_met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
