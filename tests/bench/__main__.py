"""`make bench`: produce and fetch through the real listener, beside what the machine costs without a broker.

May touch:  processes it starts, a temporary directory.    Must not touch: broker code.
Invariants: floor and broker are measured in turn, round after round, and a ratio is the median of the rounds' own ratios;
            fetches change sides after every connection, and their medians count; nothing waits to be written back meanwhile;
            the memory that a run will write is made ready; the worst fdatasync stands beside every latency; a floor worse
            than 0.9 ms/MB or 30 us per 16 KiB request voids everything.
Read next:  floor.py, blaster.py, cluster.py.

    python -m tests.bench [--rounds 5] [--scale 1.0] [--only TEXT] [--json FILE] [--directory DIR]

Windows. A connection has 1 MiB in flight with 16 KiB batches and 4 MiB with 1 MiB batches: small, so that p50 and p99 say what
the broker adds. There a durable broker is bound by latency, window over (turn of the loop + fdatasync), and the share of page
cache throughput that it reaches says how long a flush takes rather than what durability costs. That is measured at saturation,
with SATURATED_BYTES in flight, about what a client's own queue holds. MB/s by window of 1, 4, 8, 16 MiB, measured at RF 3,
before followers fetched ahead of their flushes:
16 KiB batches, page cache 638, 686, 647, 653, durable 385, 517, 516, 531; 1 MiB batches, page cache 1,095, 1,137, 1,179, 1,185,
durable 689, 833, 869, 895. So 4 saturates the page cache; that it seemed to saturate a durable broker with 16 KiB batches too was
the 256 requests that a connection then had in flight at most (1,024 since: 19 % more at 16). What RF 3 costs in CPU
beside RF 1 depends on it too: with less in flight the followers come for less at a time. Both windows are printed; the demands
on durability and on RF 3 are on that at saturation, as the prototype that they were taken from was measured.

The disk. All nodes write to one, so at RF 3 it takes every byte three times; page cache mode does not wait for it. Beside each
durable run the disk alone is measured (disk.py) with as many files as the run writes: a share of it that the cluster uses is
printed, and where the disk itself is too slow for a demand, how much it allows. The demand stays what it is.

How long. A run takes a quarter of a second or more: at RF 1 with 400 MB it took 0.14 s on a fast machine, in which a durable
one had hardly begun (2.1 GB/s; 2.8 with 800 MB, and the disk alone 2.2 and 2.8). Nor much longer, or the disk has had its
burst: at RF 3 with 1,200 MB it takes 1.3 GB/s in place of 5.

In every other round the durable runs come first, so that neither kind always finds the disk as the other left it. Those at
saturation go there and back in each round (page cache, durable, durable, page cache): what the host's other guests take drifts
within minutes, and one run of 0.4 s beside another of twice the speed is then no ratio of ours. For the same reason RF 1 and
RF 3 are measured one after the other in each round, the idle cluster of one beside the other's runs (it takes 1 % of the
machine): with all rounds of RF 1 first, and a machine that slowed down meanwhile, the ratio with 16 KiB batches was 4.2;
side by side 3.7 to 3.9.

Each run waits until the files of the one before are removed and the disk is quiet: their removal (segment.delete.delay) and the
file system's discard of their blocks otherwise fall into the next run and stop every fdatasync for 40 to 60 ms.

The host. A virtual machine has its CPU from a host that gives it to others too: what was taken in each run stands beside it,
for seconds later it may be another share (seen: none for half an hour, then 10 to 40 %), and such a pair of runs is no ratio
of ours.

MB are 10^6 bytes of record values. CPU is of the broker processes alone, all threads. Exit status: 0 when every target is
met, 1 when one is missed, 2 when the run is void.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench.blaster import Blast, Target, blast, drain, drain_floor, settle
from tests.bench.cluster import BenchCluster, Snapshot
from tests.bench.disk import fill_disk
from tests.bench.figures import (
    DURABLE,
    LOADS,
    PAGE_CACHE,
    SATURATED_BYTES,
    SMALL,
    WINDOW,
    Figures,
    Row,
    disk_name,
    print_table,
    produce_name,
    saturated_name,
    window_bytes,
)
from tests.bench.frames import KIB, MIB, Load, ProduceFrame, make_produce
from tests.bench.machine import FlushProbe, MemoryAtHand, congestion_control, cpu_s, resident_mib, stolen_s

FETCH_BYTES = MIB
FETCH_CONNECTIONS = 11
"""Where the kernel's congestion control is BBR, which paces by timers, sendfile to loopback costs 0.07 to 0.5 ms/MB for the
same bytes and the same process, about constant while a connection lives; with reno a steady 0.065 (measured). So many
connections are used, floor and broker in turn, and the median one counts. The broker asks for reno to its own host; the
floor takes what the kernel gives it."""
IDLE_S = 10.0
ALONE = 2
"""A lone broker is so many times faster, and is given so much more."""


@dataclass(slots=True)
class Bench:
    """One whole run."""

    directory: Path
    rounds: int
    scale: float
    only: str
    figures: Figures = field(default_factory=Figures)

    # ---- one measurement

    def measure(
        self, name: str, pids: list[int], cluster: BenchCluster | None, work: Callable[[], Blast], *, writes: int = 0
    ) -> Row:
        """Run `work`, which makes `writes` bytes of files, and put down what it cost the processes."""
        with MemoryAtHand(self.directory, writes):
            before = cluster.snapshot() if cluster is not None else None
            with FlushProbe(self.directory) as probe:
                began_s, stolen_before_s = time.perf_counter(), stolen_s()
                cpu, result = _timed(pids, work)
                wanted_s = (time.perf_counter() - began_s) * (os.cpu_count() or 1)
                stolen = (stolen_s() - stolen_before_s) / wanted_s
        after = cluster.snapshot() if cluster is not None else None
        row = self.put_down(name, cpu, result, probe.worst_ms, stolen)
        if before is not None and after is not None:
            _put_down_lanes(row, before, after)
        return row

    def put_down(
        self, name: str, cpu: float, result: Blast, fdatasync_worst_ms: float, stolen: float | None = None
    ) -> Row:
        """Keep and print one line; `cpu` in seconds, `stolen` as a share of the machine."""
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
            fdatasync_worst_ms=fdatasync_worst_ms,
            stolen=stolen,
        )
        self.figures.rows.setdefault(name, []).append(row)
        host = "" if stolen is None else f"  host took {stolen:.0%}"
        print(
            f"  {name:58s} {row.cpu_ms_per_mb:7.3f} ms/MB {row.mb_per_s:7.0f} MB/s  p50 {row.p50_ms:7.2f}"
            f"  p99 {row.p99_ms:7.2f} ms  fdatasync worst {row.fdatasync_worst_ms:.1f} ms{host}",
            flush=True,
        )
        return row

    def wants(self, name: str) -> bool:
        """Whether --only lets the case run."""
        return self.only in name

    def requests(self, load: Load, value_bytes: int, *, replicas: int = 1) -> int:
        """How many requests a run of this load sends."""
        total = (200e6 if load.batch_bytes == SMALL else 400e6) * self.scale
        if replicas == 1:
            total *= ALONE
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
        with self.floor_process("produce", str(path), str(frame.batch_start)) as (pid, port):
            target = Target("127.0.0.1", port, frame)
            row = self.measure(
                f"floor, produce, {load.name}",
                [pid],
                None,
                lambda: blast([target], requests=requests, window=WINDOW[load.batch_bytes], is_broker=False),
                writes=requests * frame.batch_bytes,
            )
        path.unlink()
        return row

    # ---- the broker

    def saturate(self, cluster: BenchCluster, load: Load, durability: str, replicas: int) -> None:
        """One topic, blasted full with SATURATED_BYTES in flight per connection."""
        name = saturated_name(load, durability, replicas)
        if not self.wants(name):
            return
        topic, targets, requests = self._topic(cluster, load, durability, replicas)
        row = self.measure(
            name,
            cluster.pids,
            cluster,
            lambda: blast(targets, requests=requests, window=SATURATED_BYTES // load.batch_bytes),
            writes=requests * targets[0].frame.batch_bytes * replicas,
        )
        cluster.delete_topic(topic)
        if durability == DURABLE:
            self.disk_floor(row, load, targets, requests, replicas, SATURATED_BYTES)

    def disk_floor(
        self, durable: Row, load: Load, targets: list[Target], requests: int, replicas: int, flush_bytes: int
    ) -> None:
        """What the disk alone takes of the files of a durable run, and how much of that the run used."""
        frame = targets[0].frame
        total_bytes = requests * frame.batch_bytes * replicas
        with MemoryAtHand(self.directory, total_bytes):
            began_cpu_s = time.process_time()
            run = fill_disk(
                self.directory,
                files=len(targets) * replicas,
                write_bytes=frame.batch_bytes,
                flush_bytes=flush_bytes,
                total_bytes=total_bytes,
            )
            cpu = time.process_time() - began_cpu_s
        os.sync()  # what the removed files leave to be done
        batches = run.bytes // frame.batch_bytes
        row = self.put_down(
            disk_name(durable.name),
            cpu,
            Blast(run.seconds, batches, batches * frame.value_bytes, batches * frame.record_count, run.flushes_s),
            max(run.flushes_s) * 1000,
        )
        durable.disk_share = durable.mb_per_s * replicas / row.mb_per_s

    def _topic(
        self, cluster: BenchCluster, load: Load, durability: str, replicas: int
    ) -> tuple[str, list[Target], int]:
        """A fresh topic with a target per partition, and how many requests to send."""
        partitions = 1 if replicas == 1 else cluster.node_count
        topic, leaders = cluster.create_topic(partitions=partitions, replicas=replicas, durability=durability)
        frames = [make_produce(load, topic, leader.partition, acks=-1) for leader in leaders]
        targets = [Target(leader.host, leader.port, frame) for leader, frame in zip(leaders, frames, strict=True)]
        requests = self.requests(load, frames[0].value_bytes, replicas=replicas)
        settle(targets)
        return topic, targets, requests

    def produce_and_fetch(self, cluster: BenchCluster, load: Load, durability: str, replicas: int) -> None:
        """One topic: blast it full, then read it back."""
        name = produce_name(load, durability, replicas)
        if not self.wants(name):
            return
        topic, targets, requests = self._topic(cluster, load, durability, replicas)
        frame = targets[0].frame
        floor = self.floor_produce(load) if replicas == 1 and durability == PAGE_CACHE else None
        row = self.measure(
            name,
            cluster.pids,
            cluster,
            lambda: blast(targets, requests=requests, window=WINDOW[load.batch_bytes]),
            writes=requests * frame.batch_bytes * replicas,
        )
        if floor is not None:
            row.ratio = row.cpu_ms_per_mb / floor.cpu_ms_per_mb
        if durability == PAGE_CACHE:
            os.sync()  # else the kernel writes the produced bytes back beside the fetches
            end_offset = requests // len(targets) * frame.record_count

            def read() -> Blast:
                return drain(
                    targets[0].host,
                    targets[0].port,
                    topic,
                    0,
                    end_offset=end_offset,
                    max_bytes=FETCH_BYTES,
                    batch=(frame.batch_bytes, frame.record_count),
                    values_share=frame.value_bytes / frame.batch_bytes,
                )

            name = f"fetch, RF {replicas}, {load.name}"
            if replicas == 1:
                self.fetch_beside_floor(name, cluster, load, frame, cluster.segment(topic), read)
            else:
                self.measure(name, cluster.pids, cluster, lambda: _joined([read() for _ in range(FETCH_CONNECTIONS)]))
        cluster.delete_topic(topic)
        if durability == DURABLE:
            self.disk_floor(row, load, targets, requests, replicas, window_bytes(load))

    def fetch_beside_floor(
        self,
        name: str,
        cluster: BenchCluster,
        load: Load,
        frame: ProduceFrame,
        segment: Path,
        read: Callable[[], Blast],
    ) -> None:
        """Read a partition from the broker, and in turn with it the very file that it sends by the sendfile floor, in
        answers of FETCH_BYTES.

        The same file, because the page cache gives it from large or small folios, as it was written: 0.05 to 0.35 ms/MB.
        """
        answers = segment.stat().st_size // FETCH_BYTES
        share = frame.value_bytes / frame.batch_bytes
        floor: list[tuple[float, Blast]] = []
        broker: list[tuple[float, Blast]] = []
        with (
            self.floor_process("fetch", str(segment), str(FETCH_BYTES)) as (pid, port),
            FlushProbe(self.directory) as probe,
        ):

            def read_floor() -> Blast:
                return drain_floor("127.0.0.1", port, requests=answers, records_bytes=FETCH_BYTES, values_share=share)

            before = cluster.snapshot()
            for _ in range(FETCH_CONNECTIONS):
                floor.append(_timed([pid], read_floor))
                broker.append(_timed(cluster.pids, read))
            after = cluster.snapshot()
        floor_row = self.put_down(f"floor, sendfile, {load.name}", *_median(floor), probe.worst_ms)
        row = self.put_down(name, *_median(broker), probe.worst_ms)
        _put_down_lanes(row, before, after)
        row.ratio = row.cpu_ms_per_mb / floor_row.cpu_ms_per_mb

    def librdkafka(self, cluster: BenchCluster, load: Load, durability: str, replicas: int) -> None:
        """The same with confluent-kafka: produce, then consume."""
        kind = "durable" if durability == DURABLE else "page cache"
        name = f"librdkafka produce, RF {replicas}, {kind}, {load.name}"
        if not self.wants(name):
            return
        partitions = 1 if replicas == 1 else cluster.node_count
        topic, _ = cluster.create_topic(partitions=partitions, replicas=replicas, durability=durability)
        records = int((100e6 if load.record_bytes >= KIB else 40e6) * self.scale / load.record_bytes)
        sizes = (str(load.record_bytes), str(load.batch_bytes), str(records))
        self.measure(
            name,
            cluster.pids,
            cluster,
            lambda: _client("produce", cluster.bootstrap, topic, *sizes),
            writes=records * (load.record_bytes + 12) * replicas,
        )
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
        self.figures.facts.setdefault("lone writer p50 - fdatasync p50, ms", []).append(row.p50_ms - probe.median_ms)
        cluster.delete_topic(topic)

    def idle(self, cluster: BenchCluster) -> None:
        """What a cluster costs while nothing happens."""
        time.sleep(2.0)
        before = cpu_s(cluster.pids)
        time.sleep(IDLE_S)
        self.figures.facts["idle, % of a core"] = [(cpu_s(cluster.pids) - before) / IDLE_S * 100]
        self.figures.facts["memory of a node, idle, MiB"] = [max(resident_mib(pid) for pid in cluster.pids)]
        self.figures.facts["start, s"] = [cluster.start_s]

    def produces_and_fetches(self, cluster: BenchCluster, load: Load, number: int) -> None:
        """One round of a load, with a replica on every node."""
        replicas = cluster.node_count
        kinds = (DURABLE, PAGE_CACHE) if number % 2 else (PAGE_CACHE, DURABLE)
        for durability in kinds:
            self.produce_and_fetch(cluster, load, durability, replicas)
        for durability in (*kinds, *reversed(kinds)):
            self.saturate(cluster, load, durability, replicas)

    def run(self) -> None:
        """All cases, round by round."""
        with ExitStack() as stack:
            clusters: list[BenchCluster] = []
            if "RF 1" not in self.only:
                three = stack.enter_context(BenchCluster(self.directory / "three", nodes=3))
                self.idle(three)
                clusters.append(three)
            if "RF 3" not in self.only:
                clusters.append(stack.enter_context(BenchCluster(self.directory / "one", nodes=1)))
            for number in range(self.rounds):
                for load in LOADS:
                    for cluster in clusters:
                        self.produces_and_fetches(cluster, load, number)
                for cluster in clusters:
                    alone = cluster.node_count == 1
                    if alone:
                        self.lone_writer(cluster)
                    for load in LOADS if alone else (LOADS[0], LOADS[2]):
                        self.librdkafka(cluster, load, DURABLE, cluster.node_count)


def _timed(pids: list[int], work: Callable[[], Blast]) -> tuple[float, Blast]:
    """CPU seconds of the processes during `work`, and what came of it."""
    before = cpu_s(pids)
    result = work()
    return cpu_s(pids) - before, result


def _median(parts: list[tuple[float, Blast]]) -> tuple[float, Blast]:
    """All parts as one result, with the CPU seconds that it takes at the rate of the median part."""
    joined = _joined([result for _, result in parts])
    return statistics.median(cpu / result.bytes for cpu, result in parts) * joined.bytes, joined


def _put_down_lanes(row: Row, before: Snapshot, after: Snapshot) -> None:
    """How late the lanes were, and whether anybody was elected, between the two."""
    lag = "barnabas_loop_lag_seconds"
    row.data_lag_p99_ms = after.quantile_ms(before, lag, 'lane="data"', 0.99)
    row.control_lag_p99_ms = after.quantile_ms(before, lag, 'lane="control"', 0.99)
    row.elections = int(after.grown(before, "barnabas_raft_elections_total"))


def _joined(parts: list[Blast]) -> Blast:
    """The same work done several times, as one result."""
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


def main() -> int:
    """Parse, run, print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often every case is run (default 5)")
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
    rows = bench.figures.medians()
    print(f"\ncongestion control of the kernel: {congestion_control()}")
    print_table(rows)
    void = bench.figures.void_reason(rows)
    targets = bench.figures.targets(rows)
    print("\ntargets")
    for target in targets:
        print(target)
    if void is not None:
        print(f"\nVOID: {void}; something else uses this machine, or it is too slow to say anything")
    if options.json is not None:
        document = {
            "rows": [asdict(row) for row in rows],
            "facts": bench.figures.facts,
            "targets": [{**asdict(target), "is_met": target.is_met} for target in targets],
            "void": void,
        }
        options.json.write_text(json.dumps(document, indent=1))
    if void is not None:
        return 2
    return 0 if all(target.is_met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
