"""How long a producer with default settings gets nothing when a partition's leader is killed: `python -m tests.cluster.failover`.

Starts three combined nodes, sends steadily, kills the leader of partition 0 with SIGKILL, starts it again, waits until it is in
sync, and so on. Prints the gaps; nothing is asserted about time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.cluster.workload import UniqueProducer, leaders, wait_until_in_sync

PARTITIONS = 3
PER_SECOND = 300
GAP_TIMEOUT_S = 30.0


def main() -> int:
    """Run the kills, print each gap and the percentiles, judge the history."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-failover-") as directory:
        cluster = LocalCluster(Path(directory), nodes=3, base_port=find_base_port())
        with cluster:
            return measure(cluster, options.kills)


def measure(cluster: LocalCluster, kills: int) -> int:
    """Returns 0 when the history is clean."""
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["gap"], partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"})
    settings: dict[str, Any] = {"linger.ms": 5}
    producer = UniqueProducer(cluster.bootstrap_servers, "gap", partitions=PARTITIONS, **settings)
    is_over = threading.Event()

    def send_steadily() -> None:
        while not is_over.is_set():
            producer.send(PER_SECOND // 10, per_second=PER_SECOND)

    sender = threading.Thread(target=send_steadily)
    sender.start()
    try:
        for index in range(kills):
            time.sleep(1.0)
            led = leaders(cluster, "gap")
            victim = led[0]
            cluster.kill(victim)
            producer.mark_kill({partition for partition, who in led.items() if who == victim})
            deadline = time.monotonic() + GAP_TIMEOUT_S
            while len(producer.gaps) <= index and time.monotonic() < deadline:
                time.sleep(0.05)
            if len(producer.gaps) <= index:
                print(f"kill {index + 1}: node {victim}: nothing within {GAP_TIMEOUT_S:.0f} s", file=sys.stderr)
                return 1
            print(f"kill {index + 1:>2}: node {victim}, gap {producer.gaps[-1]:.2f} s", flush=True)
            cluster.start_node(victim)
            wait_until_in_sync(cluster)
    finally:
        is_over.set()
        sender.join(60)
    producer.flush()
    gaps = sorted(producer.gaps)
    p99 = gaps[min(len(gaps) - 1, int(len(gaps) * 0.99))]
    print(f"gaps of {len(gaps)} kills: p50 {statistics.median(gaps):.2f} s, p99 {p99:.2f} s, worst {gaps[-1]:.2f} s")
    verdict = producer.judge(cluster.bootstrap_servers)
    print(verdict)
    return 0 if verdict.is_clean and not producer.failed else 1


if __name__ == "__main__":
    sys.exit(main())
