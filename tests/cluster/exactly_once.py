"""A copy by three clients is exact, whatever is killed: `make exactly-once RECORDS=100000 RUNS=20 SEED= CLIENT=`.

May touch:  processes it starts, a temporary directory.        Must not touch: broker code.
Invariants: what a reader of committed data sees in the target is the source, each record once and in its partition's order; a run
            in which nothing was killed is void.
Read next:  copier.py, the client; tests/ecosystem/Copier.java, the same with Kafka's own; scene.py, what a copy that stands still leaves.

Each fault kills one of: a copier, any broker, the coordinator of a copier's transactional id, the coordinator of its group. A killed
copier is started again at once under its transactional id, a killed broker after DOWN_S.

A copy that stands still leaves a directory, named in its error: what `barnabas` says of transactions, group and partitions, what was
killed when, and the clients' and nodes' own output.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from tests.cluster.scene import write_scene
from tests.ecosystem import java

PARTITIONS = 3
COPIERS = 3
DOWN_S = 1.5
HOST = "127.0.0.1"
PROBE_S = 1.0
QUIET_S = 3.0
"""How long a reader waits, once it has seen everything, for a record too many."""
REST_AFTER_S = 30.0
"""A copy that moves no further for so long is left in peace until it does. A machine that needs longer to start a client or a broker than
there is between two faults would be kept from the copy by the harness, for ever, and nothing be said of the product."""
STILL_S = 90.0
"""A copy that moves no further for so long, since REST_AFTER_S without a fault, has failed."""
THREAD_DUMP_S = 2.0
NOTED_EVERY_S = 2.0
GROUP_KEY, TRANSACTION_KEY = 0, 1
LIBRDKAFKA, JAVA = "librdkafka", "java"
COPIER = (sys.executable, "-m", "tests.cluster.copier")


@dataclass(slots=True)
class Report:
    """What a run saw."""

    records: int
    seen: Counter[int] = field(default_factory=Counter)
    by_partition: dict[int, list[int]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    rests: int = 0
    """How often the faults waited for the copy to go on."""
    longest_gap_s: float = 0.0
    """Without a record, from the first to the last."""
    restarts: int = 0
    """Copiers that ended by themselves, with an error."""
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        """Records of the source that are not in the target."""
        return self.records - len(self.seen)

    @property
    def duplicates(self) -> int:
        """Records of the target beyond the first of each."""
        return self.seen.total() - len(self.seen)

    @property
    def is_in_order(self) -> bool:
        """Whether each partition of the target has the source's order."""
        return all(found == sorted(found) for found in self.by_partition.values())

    @property
    def is_exact(self) -> bool:
        """Whether the target is the source."""
        return not self.lost and not self.duplicates and self.is_in_order

    def __str__(self) -> str:
        killed = ", ".join(f"{what} {count}" for what, count in sorted(self.kills.items())) or "nothing"
        return (
            f"{self.records:>8,} records  lost {self.lost}  duplicates {self.duplicates}  in order {'yes' if self.is_in_order else 'NO'}  "
            f"killed: {killed}  copiers that gave up {self.restarts}  "
            f"longest gap {self.longest_gap_s:.0f} s  rests {self.rests}  {self.seconds:.0f} s"
        )


class Copy:
    """One run over a cluster that is up."""

    def __init__(
        self,
        cluster: LocalCluster,
        *,
        records: int,
        seed: int,
        fault_every_s: float,
        directory: Path,
        copier: Sequence[str] = COPIER,
    ) -> None:
        """directory: for what the copiers print, and the scene; copier: the client's command, without its options."""
        self._cluster = cluster
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._command = copier
        self._random = Random(seed)
        self._fault_every_s = fault_every_s
        self._name = f"copy-{seed}"
        self._source, self._target = f"{self._name}-in", f"{self._name}-out"
        self._copiers: list[subprocess.Popen[bytes]] = []
        self._report = Report(records)
        self._begun = time.monotonic()

    def run(self, still_s: float = STILL_S) -> Report:
        """Write, copy under faults, read until nothing more comes. Raises TimeoutError when the copy stands still; it names the scene."""
        self._write()
        self._copiers = [self._start(number) for number in range(COPIERS)]
        began = time.monotonic()
        try:
            self._watch(began, still_s)
        finally:
            for copier in self._copiers:
                copier.kill()
                copier.wait()
        self._report.seconds = time.monotonic() - began
        return self._report

    def _write(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        topics = [NewTopic(name, PARTITIONS, 3) for name in (self._source, self._target)]
        for made in admin.create_topics(topics).values():
            made.result(30)
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers, "enable.idempotence": True})
        for number in range(self._report.records):
            producer.produce(self._source, f"{number}", f"{number}", partition=number % PARTITIONS)
            producer.poll(0)
        if producer.flush(60):
            raise TimeoutError("the source could not be written")

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        options = {
            "bootstrap": self._cluster.bootstrap_servers,
            "source": self._source,
            "target": self._target,
            "group": self._name,
            "transactional-id": self._id(number),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        with self._output(number).open("ab") as output:
            started = subprocess.Popen([*self._command, *words], stdin=subprocess.PIPE, stdout=output, stderr=output)
        self._note(f"copier {number} runs as process {started.pid}")
        return started

    def _output(self, number: int) -> Path:
        return self._directory / f"copier-{number}.log"

    def _note(self, words: str) -> None:
        """Write into the journal of the run, which the scene shows."""
        with (self._directory / "journal.log").open("a", encoding="utf-8") as journal:
            journal.write(f"{time.strftime('%H:%M:%S')} {time.monotonic() - self._begun:7.1f} s  {words}\n")

    def _stands_still(self) -> TimeoutError:
        """The error, once the scene is written."""
        missing: dict[int, list[int]] = {}
        for number in sorted(set(range(self._report.records)) - self._report.seen.keys()):
            missing.setdefault(number % PARTITIONS, []).append(number)
        for partition, numbers in missing.items():
            self._note(f"{self._target} {partition} lacks {len(numbers)} records, {numbers[0]} to {numbers[-1]}")
        if self._command[0] == java.RUNTIME:
            for copier in self._copiers:
                copier.send_signal(signal.SIGQUIT)  # a JVM prints its threads
            time.sleep(THREAD_DUMP_S)
        scene = write_scene(
            self._cluster,
            self._directory,
            group=self._name,
            partitions=[(topic, partition) for topic in (self._source, self._target) for partition in sorted(missing)],
            outputs=self._directory.glob("*.log"),
        )
        return TimeoutError(f"the copy stands still: {self._report}; {scene} says how things stood")

    def _id(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _watch(self, began: float, still_s: float) -> None:
        """Read what is committed, and break something now and then while records are missing."""
        report = self._report
        reader = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "group.id": f"{self._name}-check",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        reader.subscribe([self._target])
        last = noted = time.monotonic()
        fault_at = began + self._fault_every_s
        down: tuple[float, int] | None = None
        is_resting = False
        try:
            while True:
                for message in reader.consume(1_000, 0.2):
                    value, partition = message.value(), message.partition()
                    if message.error() is None and value is not None and partition is not None:
                        report.seen[int(value)] += 1
                        report.by_partition.setdefault(partition, []).append(int(value))
                        report.longest_gap_s = max(report.longest_gap_s, time.monotonic() - last)
                        last = time.monotonic()
                        is_resting = False
                now = time.monotonic()
                if now - noted > NOTED_EVERY_S:
                    noted = now
                    self._note(f"{len(report.seen)} of {report.records} records seen")
                for number, copier in enumerate(self._copiers):
                    if copier.poll() is not None:
                        report.restarts += 1
                        self._note(f"copier {number} ended with status {copier.returncode}")
                        self._copiers[number] = self._start(number)
                if down is not None and now > down[0]:
                    self._note(f"node {down[1]} starts again")
                    self._cluster.start_node(down[1])
                    down = None
                if report.lost <= 0:
                    if now - last > QUIET_S and down is None:
                        return
                elif now - last > still_s:
                    raise self._stands_still()
                elif now - last > REST_AFTER_S:
                    if not is_resting:
                        report.rests += 1
                        self._note(f"nothing came for {REST_AFTER_S:.0f} s: no faults until something does")
                    is_resting = True
                elif down is None and (now > fault_at or (report.seen and not report.kills)):
                    # The first fault follows the first records: a fast machine copies all of them before a timer is due.
                    fault_at = now + self._fault_every_s
                    down = self._break(now)
        finally:
            reader.close()
            if down is not None:
                self._cluster.start_node(down[1])

    def _break(self, now: float) -> tuple[float, int] | None:
        """Kill something; when and which broker is to be started again, if it was one."""
        number = self._random.randrange(COPIERS)
        what = self._random.choice(("copier", "copier", "broker", "transaction coordinator", "group coordinator"))
        if what == "copier":
            self._note(f"kill copier {number}")
            self._copiers[number].kill()
            self._copiers[number].wait()
            self._copiers[number] = self._start(number)
            self._report.kills[what] += 1
            return None
        brokers = sorted(node.id for node in self._cluster.brokers)
        if not all(_serves(node.kafka_port) for node in self._cluster.brokers):
            return None  # one still starts: with two down nobody leads, on a slow machine for ever
        if what == "broker":
            victim = self._random.choice(brokers)
        else:
            key, kind = (self._id(number), TRANSACTION_KEY) if what.startswith("t") else (self._name, GROUP_KEY)
            victim = asyncio.run(coordinator_of(self._cluster.bootstrap_servers, key, kind))
            if victim not in brokers:  # none is known at this moment
                return None
        self._note(f"kill node {victim}, {what}")
        self._cluster.kill(victim)
        self._report.kills[what] += 1
        return now + DOWN_S, victim


def _serves(port: int | None) -> bool:
    """Whether a broker takes connections at its Kafka port."""
    assert port is not None, "a broker has one"
    try:
        with socket.create_connection((HOST, port), PROBE_S):
            return True
    except OSError:
        return False


async def coordinator_of(bootstrap: str, key: str, kind: int) -> int:
    """The broker that coordinates; -1 where none is known now."""
    client = ClusterClient(bootstrap, client_id="exactly-once", timeout_s=2.0)
    try:
        answer = await client.call(FindCoordinatorRequest(coordinator_keys=[key], key=key, key_type=kind))
        found = answer.coordinators[0] if answer.coordinators else answer
        return int(found.node_id) if not found.error_code else -1
    except (KafkaError, OSError):
        return -1
    finally:
        await client.close()


def main() -> int:
    """Runs with a cluster each; 1 when one was not exact, or void; 2 where the client is not to be had."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.exactly_once", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="of the first run; default a random one")
    parser.add_argument("--fault-every", type=float, default=4.0, metavar="SECONDS")
    parser.add_argument("--keep", action="store_true", help="what the copiers printed, also of a run that was exact")
    parser.add_argument("--client", choices=(LIBRDKAFKA, JAVA), default=LIBRDKAFKA, help="of the copiers")
    options = parser.parse_args()
    if options.client == JAVA and (reason := java.missing()) is not None:
        print(f"exactly-once: {reason}", file=sys.stderr)
        return 2
    first = SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    is_well = True
    for seed in range(first, first + options.runs):
        scene = Path(tempfile.mkdtemp(prefix=f"barnabas-exactly-once-{seed}-"))
        with (
            tempfile.TemporaryDirectory() as classes,
            tempfile.TemporaryDirectory() as place,
            LocalCluster(Path(place), nodes=3, base_port=find_base_port()) as cluster,
        ):
            copier = java.java_copier(Path(classes)) if options.client == JAVA else COPIER
            copy = Copy(
                cluster,
                records=options.records,
                seed=seed,
                fault_every_s=options.fault_every,
                directory=scene,
                copier=copier,
            )
            try:
                report = copy.run()
            except TimeoutError as error:
                print(f"seed {seed}: {error}", flush=True)
                is_well = False
                continue
        verdict = "exact" if report.is_exact else "NOT EXACT"
        if not report.kills:
            verdict = "void: nothing was killed"
        if verdict == "exact" and not options.keep:
            shutil.rmtree(scene)
        else:
            is_well = is_well and verdict == "exact"
            verdict += f", see {scene}"
        print(f"seed {seed}: {report}  {verdict}", flush=True)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
