"""How fast the cleaner cleans, what memory it takes, and what producers feel of it: `make bench-compaction`.

May touch:  a temporary directory, a worker process, a cluster of one node on loopback.   Must not touch: anything outside these.
Invariants: each figure is of the real worker over real files, from the page cache; bytes are those of the log that is cleaned, read
            twice and written once where all of it stays.
Read next:  barnabas_log/cleaner/worker.py; apache_cleaner.py.

Two tables. The first: MB of log per second of wall time and of CPU, and peak memory, for records of 100 B and 1 KiB, 10 % and 90 %
unique keys, uncompressed and lz4: by the base install, with the extra, and by Apache Kafka over the same segments. The second: p50 and
p99 of an acks=all produce to other topics of the same broker, one that is flushed before the answer and one that is not, without and
with a cleaner at work.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from confluent_kafka import Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_log.cleaner.process import WorkerProcess
from barnabas_log.cleaner.rewrite import Job, Result, Source
from barnabas_log.cleaner.worker import PLAIN
from barnabas_log.config import LogConfig
from barnabas_log.disk import RealDisk
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import Record, build_batch
from barnabas_wire.records.compression import CompressionType
from tests.bench import apache_cleaner

SEGMENT_BYTES = 8 << 20
BATCH_BYTES = 16_000
MAP_BYTES = 128 << 20
PRODUCE_S = 14.0
KINDS = ("fsync", "page-cache")
"""Topics that are measured, by their log.flush.on.acks."""


def write_log(directory: Path, *, log_bytes: int, record_bytes: int, unique: float, codec: CompressionType) -> Job:
    """A log of sealed segments, and the job of cleaning all of it."""
    disk = RealDisk(wants_ring=False)
    random = Random(1)
    records_in_all = log_bytes // record_bytes
    keys = max(1, int(records_in_all * unique))
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    sources: list[Source] = []
    offset = written = 0
    filler = random.randbytes(512).hex().encode()
    while written < log_bytes:
        base = Offset(offset)
        segment = LogSegment.create(disk, str(directory), base, config, now_ms=0)
        while segment.size_bytes < SEGMENT_BYTES - 2 * BATCH_BYTES and written < log_bytes:
            records = []
            for index in range(max(1, BATCH_BYTES // record_bytes)):
                key = b"key-%012d" % random.randrange(keys)
                value = filler[: record_bytes - 30] + b"%06d" % index
                records.append(Record(offset + index, 1_700_000_000_000 + offset, key, value))
            batch = build_batch(records, compression=codec)
            segment.add_batch(offset + len(records) - 1, records[-1].timestamp_ms, len(batch))
            segment.file.append([batch])
            offset += len(records)
            written += len(records) * record_bytes
        segment.finish()
        sources.append(Source(base, offset, segment.size_bytes))
        segment.close()
    disk.close()
    run = directory / "run"
    run.mkdir()
    return Job(
        directory=str(directory),
        run_directory=str(run),
        sources=tuple(sources),
        first_dirty=0,
        segment_bytes=1 << 30,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
        now_ms=1_700_000_000_000,
        delete_retention_ms=86_400_000,
        map_bytes_max=MAP_BYTES,
    )


async def clean(job: Job, *arguments: str) -> tuple[Result, float, float, float]:
    """(result, wall seconds, CPU seconds, peak MiB) of one run, the start of the process left out."""
    worker = WorkerProcess(*arguments)
    # an empty job first: what is measured is cleaning, not the start of an interpreter
    await worker.clean(job._replace(sources=()), bytes_per_second=1e300, on_bytes=lambda moved: None)
    pid = worker.pid
    assert pid is not None
    cpu_before, began_s = _cpu_s(pid), time.monotonic()
    result = await worker.clean(job, bytes_per_second=1e300, on_bytes=lambda moved: None)
    wall_s, cpu_s = time.monotonic() - began_s, _cpu_s(pid) - cpu_before
    peak = _peak_mib(pid)
    await worker.close()
    shutil.rmtree(job.run_directory)
    os.mkdir(job.run_directory)
    return result, wall_s, cpu_s, peak


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def speed_table(log_bytes: int, directory: Path) -> None:
    """Print the first table."""
    jobs: dict[str, Job] = {}
    for record_bytes in (100, 1024):
        for unique in (0.1, 0.9):
            for codec in (CompressionType.NONE, CompressionType.LZ4):
                name = f"{record_bytes}B-{unique:.0%}-{codec.name.lower()}".replace("%", "")
                (directory / name).mkdir(parents=True)
                jobs[name] = write_log(
                    directory / name, log_bytes=log_bytes, record_bytes=record_bytes, unique=unique, codec=codec
                )
    print(
        f"{'cleaner':>12} {'record-unique%-codec':>20} {'MB/s':>7} {'MB/CPU s':>9} {'left':>6} {'keys':>8} {'MiB':>5}"
    )
    logical = log_bytes / 1e6
    for cleaner, arguments in (("base install", (PLAIN,)), ("extra", ())):
        for name, job in jobs.items():
            result, wall_s, cpu_s, peak = asyncio.run(clean(job, *arguments))
            left = sum(output.size_bytes for output in result.outputs) / _on_disk(job)
            print(
                f"{cleaner:>12} {name:>20} {logical / wall_s:>7.1f} {logical / cpu_s:>9.1f} {left:>6.0%} {result.keys:>8} {peak:>5.0f}",
                flush=True,
            )
    reason = apache_cleaner.why_not()
    if reason is not None:
        print(f"NOT RUN beside Apache Kafka: {reason}")
        return
    warming = {f"warming-{name}": job for name, job in jobs.items()}
    cleaned, mib = apache_cleaner.clean_all({**warming, **jobs}, directory)
    for name, job in jobs.items():
        wall_s, cpu_s, left_bytes = cleaned[name]
        print(
            f"{'Kafka':>12} {name:>20} {logical / wall_s:>7.1f} {logical / cpu_s:>9.1f} {left_bytes / _on_disk(job):>6.0%} "
            f"{'':>8} {mib:>5.0f}",
            flush=True,
        )
    print(
        "MB count uncompressed bytes of the log that is cleaned. MiB: of our whole process; of Kafka, what its broker takes more"
    )
    print(
        "at the end of all of them than with its cleaner off. Its CPU is that of the cleaner's thread, without compiler and collector."
    )


def _on_disk(job: Job) -> int:
    return sum(source.size_bytes for source in job.sources)


def produce_latencies(cluster: LocalCluster, topics: Sequence[str], seconds: float) -> dict[str, list[float]]:
    """Of single records, one after another, to each topic in turn, in ms."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0})
    found: dict[str, list[float]] = {topic: [] for topic in topics}
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        for topic in topics:
            began_s = time.perf_counter()
            producer.produce(topic, b"v" * 1000, key=b"k")
            producer.flush(30.0)
            found[topic].append((time.perf_counter() - began_s) * 1000)
            time.sleep(0.002)
    return {topic: sorted(each) for topic, each in found.items()}


def fill(cluster: LocalCluster, topic: str, megabytes: int) -> None:
    """Keys over and over."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 20})
    for number in range(megabytes * 1000):
        producer.produce(topic, b"v" * 980, key=b"%09d" % (number * 7919 % (megabytes * 500)))
        if number % 500 == 0:
            producer.poll(0)
            while len(producer) > 20_000:
                producer.poll(0.01)
    producer.flush(120.0)


def keep_filling(cluster: LocalCluster, topics: list[str], stop: threading.Event) -> None:
    """Some 2 MB/s, so that the cleaner finds work all the while; written in both runs."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 20})
    number = 0
    while not stop.wait(0.05):
        for _ in range(100):
            number += 1
            producer.produce(topics[number % len(topics)], b"v" * 980, key=b"%09d" % (number % 3000))
        producer.poll(0)
    producer.flush(60.0)


def latency_table(megabytes: int, directory: Path) -> None:
    """Print the second table."""
    print(f"{'cleaner':>12} {'flush on acks':>12} {'p50 ms':>8} {'p99 ms':>8} {'records':>8} {'runs':>5}")
    without = directory / "without"
    without.mkdir()
    (without / "numba.py").write_text("raise ImportError")
    paths = os.environ.get("PYTHONPATH", "")
    for cleaner in ("off", "base install", "extra"):
        is_cleaning = cleaner != "off"
        os.environ["PYTHONPATH"] = f"{without}:{paths}" if cleaner == "base install" else paths
        overrides = {"log.cleaner.backoff.ms": "50", "log.cleaner.enable": "true" if is_cleaning else "false"}
        settings = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0"}
        with (
            tempfile.TemporaryDirectory(prefix="barnabas-bench-", ignore_cleanup_errors=True) as home,
            LocalCluster(Path(home) / "c", nodes=1, base_port=find_base_port(), overrides=overrides) as cluster,
        ):
            with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
                names = [f"compacted-{number}" for number in range(4)]
                for kind in KINDS:
                    admin.create_topics([kind], partitions=1, replication_factor=1, configs={"log.flush.on.acks": kind})
                if not is_cleaning:
                    settings = {"segment.bytes": str(1 << 20)}
                admin.create_topics(names, partitions=1, replication_factor=1, configs=settings)
            for name in names:
                fill(cluster, name, megabytes)
            stop = threading.Event()
            writer = threading.Thread(target=keep_filling, args=(cluster, names, stop))
            writer.start()
            found = produce_latencies(cluster, KINDS, PRODUCE_S)
            stop.set()
            writer.join()
            _, page = cluster.http_get(1, "/metrics")
            runs = next(
                (line.split()[1] for line in page.splitlines() if line.startswith("barnabas_log_cleaner_runs_total ")),
                "0",
            )
        for kind, latencies in found.items():
            print(
                f"{cleaner:>12} {kind:>12} {latencies[len(latencies) // 2]:>8.2f} {latencies[len(latencies) * 99 // 100]:>8.2f} "
                f"{len(latencies):>8} {float(runs):>5.0f}",
                flush=True,
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compaction", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=32, help="of each log in the first table")
    parser.add_argument("--fill", type=int, default=24, help="MB of each of the four compacted topics in the second")
    parser.add_argument("--only", choices=["speed", "latency"], help="one of the tables")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", ignore_cleanup_errors=True) as directory:
        if options.only != "latency":
            speed_table(options.megabytes * 1_000_000, Path(directory))
        if options.only != "speed":
            latency_table(options.fill, Path(directory))


if __name__ == "__main__":
    main()
