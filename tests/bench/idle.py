"""`make bench-idle`: what one record costs beside partitions that do nothing: p50 and the brokers' CPU time.

May touch:  a cluster on loopback, /proc.      Must not touch: broker code.
Invariants: the same record at the same pace in all rows; CPU is that of the brokers alone.
Read next:  cluster.py.

    python -m tests.bench.idle [--idle 0,300,1000] [--rates 200,1000] [--seconds 8] [--label NAME]

Three nodes, RF 3, page cache, 100 B, acks=all, linger 0, one librdkafka client in this process. Latency is from produce() to the
delivery report. A measure before and after a change: run it with PYTHONPATH at either tree.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.bench.cluster import BenchCluster

RECORD = bytes(100)
WARM_UP_S = 1.5
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: list[int]) -> float:
    """User and system time of the processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def paced(producer: Producer, topic: str, rate: int, seconds: float) -> list[float]:
    """Latencies in s of records sent at that rate to partition 0. Raises RuntimeError when one is not acknowledged."""
    taken: list[float] = []
    count = int(rate * seconds)
    started = time.perf_counter()
    for index in range(count):
        due = started + index / rate
        while (left := due - time.perf_counter()) > 0:
            producer.poll(min(left, 0.0005))
        sent = time.perf_counter()

        def reported(error: KafkaError | None, message: Message, sent: float = sent) -> None:
            if error is None:
                taken.append(time.perf_counter() - sent)

        producer.produce(topic, RECORD, partition=0, on_delivery=reported)
    producer.flush(30)
    if len(taken) != count:
        raise RuntimeError(f"{count - len(taken)} of {count} records were not acknowledged")
    return taken


def main() -> None:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description="What one record costs beside idle partitions.")
    parser.add_argument("--idle", default="0,300,1000")
    parser.add_argument("--rates", default="200,1000")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--label", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, BenchCluster(Path(directory), nodes=3) as cluster:
        topic, _ = cluster.create_topic(partitions=1, replicas=3, durability="page-cache")
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "socket.nagle.disable": True,
                "log_level": 0,
            }
        )
        there = 0
        for idle in sorted(int(each) for each in arguments.idle.split(",")):
            if idle > there:
                cluster.create_topic(partitions=idle - there, replicas=3, durability="page-cache")
                there = idle
            for rate in (int(each) for each in arguments.rates.split(",")):
                paced(producer, topic, rate, WARM_UP_S)
                before_s = cpu_s(cluster.pids)
                taken = paced(producer, topic, rate, arguments.seconds)
                cost_ms = (cpu_s(cluster.pids) - before_s) / len(taken) * 1000
                p50_ms = statistics.median(taken) * 1000
                print(
                    f"{arguments.label:8} {idle:6} idle {rate:6}/s  p50 {p50_ms:7.2f} ms  CPU {cost_ms:6.2f} ms/record",
                    flush=True,
                )


if __name__ == "__main__":
    main()
