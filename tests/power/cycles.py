"""Power is cut again and again under real nodes: `python -m tests.power.cycles --form all --cycles 20 --seed 1`.

May touch:  the nodes' power, their disks' faults.       Must not touch: what a client is told.
Invariants: a cycle cuts the power at a random moment amid acknowledged writes, takes away what was not flushed, starts the
            nodes again and waits until every partition acknowledges; each round of cycles has a topic of its own, whose
            whole history is judged at its end.
Read next:  cluster.py.

Forms: `all` cuts the power of all nodes at one instant. `one` cuts that of one, while another one is stopped (SIGSTOP) and
goes on some time before or after the first one is back: to the others that is a partition, and what it then still believes is
stale. `lying` is the negative control: `all`, where flushes of the topic's logs are confirmed and do nothing. It must lose: after
the cut there are acknowledged records that no node's disk holds, whoever would lead then.

A seed decides who, when and what is taken away, but real processes do not repeat themselves: a seed that failed is likely to fail
again, no more. What a failed round leaves on the disks is kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Literal

from barnabas_admin.client import AdminClient
from barnabas_wire.records.batch import CorruptBatch, crc_is_valid, iterate_batches, iterate_records
from tests.cluster.workload import UniqueProducer, replica_bytes
from tests.power.cluster import PowerCluster
from tests.power.recording_disk import FlushFault, write_faults

Form = Literal["all", "one", "lying"]

PARTITIONS = 3
PER_SECOND = 1500
VALUE_BYTES = 500
CYCLES_PER_ROUND = 10
PROGRESS_TIMEOUT_S = 60.0
AMID_S = (0.05, 0.5)
"""Between the first acknowledgements of a cycle and its power cut."""
STALE_S = 0.6
"""Most time between two steps of form `one`."""
OVERRIDES = {
    "log.segment.bytes": "1048576",
    "log.roll.ms": "1500",
    "log.index.interval.bytes": "512",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "metadata.log.max.record.bytes.between.snapshots": "4096",
}
"""So that rolls, checkpoints and snapshots are everyday."""


class PowerLost(AssertionError):
    """A law of this proof was broken."""


class Round:
    """One topic, written while the power is cut a few times, then judged."""

    def __init__(self, cluster: PowerCluster, topic: str, *, is_lying: bool = False) -> None:
        self.cuts = 0
        self.lost_bytes = 0
        self.undone_changes = 0
        self.lost: set[int] = set()
        """Of a lying round: what was acknowledged and is on no disk."""
        self._cluster = cluster
        self._is_lying = is_lying
        with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
            admin.create_topics(
                [topic], partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"}
            )
        for node_id in cluster.nodes:
            faults = [FlushFault(paths=rf"/{topic}-\d+(/|$)", is_lying=True)] if is_lying else []
            write_faults(cluster.faults_file(node_id), faults)
        settings: dict[str, Any] = {
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "log_level": 0,
        }
        self.producer = UniqueProducer(
            cluster.bootstrap_servers, topic, partitions=PARTITIONS, value_bytes=VALUE_BYTES, **settings
        )
        self._is_over = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()
        self._wait_for_progress()

    def cut_all(self, random: Random) -> None:
        """Form `all`; of a lying round the nodes stay down once something is lost."""
        time.sleep(random.uniform(*AMID_S))
        self._cut(list(self._cluster.nodes), random)
        if self._is_lying:
            self.lost = self.producer.acknowledged.keys() - self._ids_on_disks()
            if self.lost:
                return
        for node_id in random.sample(sorted(self._cluster.nodes), len(self._cluster.nodes)):
            self._cluster.start_node(node_id)
        self._wait_for_progress()

    def cut_one(self, random: Random) -> None:
        """Form `one`."""
        cluster = self._cluster
        dark, deaf = random.sample(sorted(cluster.nodes), 2)
        time.sleep(random.uniform(*AMID_S))
        steps: list[Callable[[], None]] = [lambda: cluster.pause(deaf), lambda: self._cut([dark], random)]
        random.shuffle(steps)
        back: list[Callable[[], None]] = [lambda: cluster.resume(deaf), lambda: cluster.start_node(dark)]
        random.shuffle(back)
        for step in (*steps, *back):
            step()
            time.sleep(random.uniform(0, STALE_S))
        self._wait_for_progress()

    def judge(self) -> None:
        """Stop writing, wait until the replicas are whole, compare them, read everything; not of a lying round, where `lost` says
        what is. Raises PowerLost."""
        self._is_over.set()
        self._sender.join(PROGRESS_TIMEOUT_S)
        cluster, topic = self._cluster, self.producer.topic
        if self._is_lying:
            self.producer.abandon()
            return
        self.producer.flush()
        cluster.wait_until_healthy()
        verdict = self.producer.judge(cluster.bootstrap_servers)
        if not verdict.is_clean or self.producer.failed:
            acknowledged = {each: self.producer.acknowledged[each] for each in (*verdict.lost, *verdict.misplaced)[:20]}
            raise PowerLost(f"{verdict}; failed {self.producer.failed}; as acknowledged: {acknowledged}")
        for partition in range(PARTITIONS):
            replicas = replica_bytes(cluster, topic, partition)
            if len(replicas) != len(cluster.nodes) or len(set(replicas.values())) != 1:
                sizes = {node_id: len(data) for node_id, data in replicas.items()}
                raise PowerLost(f"the replicas of {topic}-{partition} differ; bytes by node: {sizes}")

    def _ids_on_disks(self) -> set[int]:
        """Of every sound batch on any disk."""
        found: set[int] = set()
        for node in self._cluster.nodes.values():
            for path in node.data_directory.glob(f"{self.producer.topic}-*/*.log"):
                data = path.read_bytes()
                with suppress(CorruptBatch):
                    for position, header in iterate_batches(data):
                        if crc_is_valid(data, position, header):
                            batch = data[position : position + header.size_bytes]
                            found.update(int(record.value or b"-1") for record in iterate_records(batch))
        return found

    def _cut(self, node_ids: list[int], random: Random) -> None:
        self.cuts += 1
        for taken in self._cluster.cut_power(node_ids, random).values():
            self.lost_bytes += taken.lost_bytes
            self.undone_changes += taken.undone_changes

    def _send(self) -> None:
        while not self._is_over.is_set():
            self.producer.send(PER_SECOND // 10, per_second=PER_SECOND)

    def _wait_for_progress(self) -> None:
        """Until each partition has acknowledged something that was sent after the call."""
        self.producer.mark_kill(set(range(PARTITIONS)))
        known, deadline = len(self.producer.gaps), time.monotonic() + PROGRESS_TIMEOUT_S
        while len(self.producer.gaps) == known:
            if time.monotonic() > deadline:
                raise PowerLost(f"no acknowledgement by every partition within {PROGRESS_TIMEOUT_S:.0f} s")
            if deaths := list(self._cluster.find_deaths()):
                raise PowerLost(f"ended by itself: {deaths}")
            time.sleep(0.01)


def run_round(cluster: PowerCluster, form: Form, *, seed: int, cycles: int) -> Round:
    """One round; a lying one ends as soon as something is lost, with all nodes down. Raises PowerLost with the line that repeats it."""
    made: list[Round] = []
    try:
        now = Round(cluster, f"power-{form}-{seed}", is_lying=form == "lying")
        made.append(now)
        random = Random(seed)
        for _ in range(cycles):
            now.cut_one(random) if form == "one" else now.cut_all(random)
            if now.lost:
                break
        now.judge()
        return now
    except AssertionError as error:
        line = f"python -m tests.power.cycles --form {form} --cycles {cycles} --seed {seed}"
        raise PowerLost(f"{error}\nafter {made[0].cuts if made else 0} power cuts; again with: {line}") from error


def main() -> int:
    """Run rounds of one form, one seed each; 0 when nothing was lost, of `lying` when something was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=("all", "one", "lying"), default="all")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones have the next")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="barnabas-power-"))
    done = lost = acknowledged = lost_bytes = undone = 0
    begun = time.monotonic()
    try:
        cluster = PowerCluster(directory, overrides=OVERRIDES)
        with cluster:
            seed = options.seed
            while done < options.cycles:
                cycles = min(CYCLES_PER_ROUND, options.cycles - done)
                now = run_round(cluster, options.form, seed=seed, cycles=cycles)
                done += now.cuts
                lost += len(now.lost)
                acknowledged += len(now.producer.acknowledged)
                lost_bytes += now.lost_bytes
                undone += now.undone_changes
                seed += 1
                if lost:
                    break
    except PowerLost as error:
        print(f"{error}\nthe nodes' directories are in {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    seeds = f"seeds {options.seed} to {seed - 1}"
    print(
        f"{done} power cuts ({options.form}) in {time.monotonic() - begun:.0f} s, {seeds}: {lost_bytes} bytes and {undone} "
        f"changes of names taken away; of {acknowledged} acknowledged records {lost} lost"
    )
    if options.form == "lying" and not lost:
        print("flushes that do nothing lost nothing: this proof is blind", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
