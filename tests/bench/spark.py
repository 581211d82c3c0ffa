"""`python -m tests.bench.spark`: records a second that Spark reads through `format("barnabas")`, on local[2].

May touch:  a cluster of its own, a Spark session, temporary directories.    Must not touch: broker code.
Invariants: the records are in the cluster before the first read; one small read is not counted (it starts Spark's Python
            workers); every read counts what it read, and a wrong count ends the run.
Read next:  frames.py.

    python -m tests.bench.spark [--records 4000000] [--batch-bytes 16384] [--rounds 3]

Records have values of 100 random bytes and no key, uncompressed, in two partitions of one broker. End to end: broker, network,
decoder, Spark's Python workers and its JVM share the machine, and the CPU of each is shown. Exit status 1 when a median is
below the target.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.bench.blaster import Target, blast, settle
from tests.bench.cluster import BenchCluster
from tests.bench.frames import KIB, Load, make_produce
from tests.bench.machine import cpu_s

PARTITIONS = 2
WINDOW = 16
STREAM_BATCHES = 4
TARGET_RECORDS_PER_S = 500_000


class SparkBench:
    """A session, and the reads to be measured."""

    def __init__(self, spark: SparkSession, cluster: BenchCluster, topic: str, records: int) -> None:
        self.spark = spark
        self.cluster = cluster
        self.topic = topic
        self.records = records

    def batch(self) -> DataFrame:
        """The whole topic."""
        reader = self.spark.read.format("barnabas").option("kafka.bootstrap.servers", self.cluster.bootstrap)
        return reader.option("subscribe", self.topic).load()

    def count(self) -> int:
        """count(): the columns are made, and none is looked at."""
        return self.batch().count()

    def sum_of_lengths(self) -> int:
        """Every value is looked at."""
        total = self.batch().agg(F.sum(F.length("value"))).first()
        assert total is not None
        return int(total[0]) // 100

    def noop(self) -> int:
        """Every column becomes a row for a sink that does nothing with it."""
        self.batch().write.format("noop").mode("overwrite").save()
        return self.records

    def stream(self) -> int:
        """The same as a stream of several micro-batches, its start and its checkpoint included."""
        reader = self.spark.readStream.format("barnabas").option("kafka.bootstrap.servers", self.cluster.bootstrap)
        rows = (
            reader.option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", -(-self.records // STREAM_BATCHES))
            .load()
        )
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as checkpoint:
            query = (
                rows.writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            return sum(progress["numInputRows"] for progress in query.recentProgress)

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far: brokers, JVM, Python workers."""
        jvm = [child.pid for child in psutil.Process().children() if "java" in child.name()]
        python = [child.pid for pid in jvm for child in psutil.Process(pid).children(recursive=True)]
        return {"broker": cpu_s(self.cluster.pids), "jvm": cpu_s(jvm), "python": cpu_s(python)}

    def measure(self, name: str, read: Callable[[], int], rounds: int) -> float:
        """Print one line; returns the median of records a second."""
        rates, spent = [], []
        for _ in range(rounds):
            before, started = self.cpu(), time.perf_counter()
            seen = read()
            seconds = time.perf_counter() - started
            if seen != self.records:
                raise SystemExit(f"{name} saw {seen:,} of {self.records:,} records")
            rates.append(self.records / seconds)
            spent.append({part: value - before[part] for part, value in self.cpu().items()})
        rate = statistics.median(rates)
        millions = self.records / 1e6
        cpu = "  ".join(f"{part} {statistics.median(s[part] for s in spent) / millions:5.2f}" for part in spent[0])
        print(f"{name:24} {rate / 1e6:6.2f} M/s  ({min(rates) / 1e6:.2f}–{max(rates) / 1e6:.2f})   {cpu}", flush=True)
        return rate


def produce(cluster: BenchCluster, records: int, batch_bytes: int) -> tuple[str, int]:
    """Fill a new topic with prebuilt batches; returns it and how many records it holds."""
    topic, leaders = cluster.create_topic(partitions=PARTITIONS, replicas=1, durability="page-cache")
    load = Load(100, batch_bytes)
    targets = [
        Target(leader.host, leader.port, make_produce(load, topic, leader.partition, acks=1)) for leader in leaders
    ]
    settle(targets)
    per_batch = targets[0].frame.record_count
    requests = max(PARTITIONS, records // per_batch // PARTITIONS * PARTITIONS)
    done = blast(targets, requests=requests, window=WINDOW)
    held = done.records + PARTITIONS * per_batch  # settle sent one to each
    print(f"{held:,} records of 100 B in batches of {per_batch} produced in {done.seconds:.1f} s")
    return topic, held


def main() -> int:
    """Produce, read, print; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--batch-bytes", type=int, default=16 * KIB)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    # The session first: its launcher forks this process, which must not have run gRPC threads by then.
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("barnabas-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rates = {}
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory,
        BenchCluster(Path(directory) / "cluster", nodes=1) as cluster,
    ):
        small, held = produce(cluster, 10_000, arguments.batch_bytes)
        warm = SparkBench(spark, cluster, small, held)
        started = time.perf_counter()
        warm.count()
        print(f"first read of the session (Spark's Python processes start): {time.perf_counter() - started:.1f} s")
        warm.stream()
        started = time.perf_counter()
        warm.count()
        print(f"a read of {held:,} records after that: {time.perf_counter() - started:.2f} s")
        topic, held = produce(cluster, arguments.records, arguments.batch_bytes)
        bench = SparkBench(spark, cluster, topic, held)
        load = os.getloadavg()[0]
        print(
            f"\n{'':24} median of {arguments.rounds} (range)           CPU s per million records   load before {load:.1f}"
        )
        rates["batch count()"] = bench.measure("batch count()", bench.count, arguments.rounds)
        rates["batch sum(length)"] = bench.measure("batch sum(length(value))", bench.sum_of_lengths, arguments.rounds)
        rates["batch noop"] = bench.measure("batch to noop", bench.noop, arguments.rounds)
        rates["stream noop"] = bench.measure("stream to noop", bench.stream, arguments.rounds)
    spark.stop()
    missed = [name for name, rate in rates.items() if rate < TARGET_RECORDS_PER_S]
    print(f"\ntarget {TARGET_RECORDS_PER_S / 1e6} M/s: {'MISSED by ' + ', '.join(missed) if missed else 'met by all'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
