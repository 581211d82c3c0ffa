"""A producer of unique records against a real cluster, a reader of the whole log, and the comparison of replicas.

Everything goes to loopback; every loop has a bound in count or time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas_admin.local_cluster import LocalCluster
from barnabas_simulation.history import Place, Verdict, judge

FLUSH_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 90.0


class UniqueProducer:
    """Sends records whose value is their id, and keeps every delivery report."""

    def __init__(
        self, bootstrap: str, topic: str, *, acks: str = "all", partitions: int, value_bytes: int = 0, **settings: Any
    ) -> None:
        """value_bytes: least size of a record's value; the rest of settings is the client's."""
        self.topic = topic
        self._value_bytes = value_bytes
        self.partitions = partitions
        self.is_idempotent = acks == "all"
        self.sent = 0
        self.acknowledged: dict[int, Place] = {}
        self.failed: dict[int, str] = {}
        self.gaps: list[float] = []
        """Per kill that `mark_kill` told of: s until every partition it concerned acknowledged something sent later."""
        self._waiting: dict[int, float] = {}
        self._first_after_kill = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "enable.idempotence": self.is_idempotent,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
            }
            | settings
        )

    def send(self, count: int, *, per_second: float | None = None) -> None:
        """Hand `count` records to the client, spread over the partitions in turn."""
        begun = time.monotonic()
        for index in range(count):
            record_id = self.sent
            value = (b"%d" % record_id).ljust(self._value_bytes)
            partition = record_id % self.partitions
            while True:
                try:
                    self._producer.produce(
                        self.topic, value, partition=partition, on_delivery=self._on_delivery(record_id)
                    )
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self.sent += 1
            if index % 100 == 0:
                self._producer.poll(0)
            if per_second is not None and (ahead := index / per_second - (time.monotonic() - begun)) > 0:
                self._producer.poll(ahead)

    def mark_kill(self, partitions: set[int]) -> None:
        """The leader of these partitions has just been killed: measure until each acknowledges again."""
        self._first_after_kill = self.sent
        self._waiting = dict.fromkeys(partitions, time.monotonic())

    def flush(self) -> None:
        """Wait until every record has its report; raises AssertionError when that takes too long."""
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert left == 0, f"{left} records have no delivery report after {FLUSH_TIMEOUT_S:.0f} s"

    def abandon(self) -> None:
        """Drop what has no report yet: it counts as failed."""
        self._producer.purge()
        self.flush()

    def judge(self, bootstrap: str) -> Verdict:
        """Read the whole log and judge this producer's history."""
        return judge(
            sent=range(self.sent),
            acknowledged=self.acknowledged,
            log=read_log(bootstrap, self.topic),
            is_idempotent=self.is_idempotent,
        )

    def _on_delivery(self, record_id: int) -> Callable[[Any, Any], None]:
        def report(error: Any, message: Any) -> None:
            if error is not None:
                self.failed[record_id] = str(error)
                return
            offset = message.offset()
            self.acknowledged[record_id] = Place(message.topic(), message.partition(), -1 if offset is None else offset)
            if record_id < self._first_after_kill:
                return  # handed over before the kill: its report may have waited in the client
            begun = self._waiting.pop(message.partition(), None)
            if begun is not None and not self._waiting:
                self.gaps.append(time.monotonic() - begun)

        return report


def read_log(bootstrap: str, topic: str) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """(offset, id) of every record of every partition up to its high watermark."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"reader-{topic}", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        log: dict[tuple[str, int], list[tuple[int, int]]] = {(topic, index): [] for index in partitions}
        ends = {}
        for index in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=60)
            if high > low:
                ends[index] = high
        consumer.assign([TopicPartition(topic, index, 0) for index in ends])
        deadline = time.monotonic() + READ_TIMEOUT_S
        while ends:
            assert time.monotonic() < deadline, f"partitions {ends} were not read to their end"
            for message in consumer.consume(10_000, timeout=1.0):
                assert not message.error(), str(message.error())
                log[(topic, message.partition())].append((message.offset(), int(message.value())))
                if message.offset() >= ends.get(message.partition(), 0) - 1:
                    ends.pop(message.partition(), None)
        return log
    finally:
        consumer.close()


def leaders(cluster: LocalCluster, topic: str) -> dict[int, int]:
    """Partition -> broker id of its leader, as the admin service says."""
    from barnabas_admin.client import AdminClient

    with AdminClient(cluster.admin_addresses, timeout_s=30.0) as admin:
        described = admin.describe_topics([topic])[0]
        return {partition.partition: partition.leader for partition in described.partitions}


def active_controller(cluster: LocalCluster) -> int:
    """node.id of the quorum's leader."""
    from barnabas_admin.client import AdminClient

    with AdminClient(cluster.admin_addresses, timeout_s=30.0) as admin:
        return int(admin.describe_cluster().controller_id)


def wait_until_in_sync(cluster: LocalCluster, *, timeout_s: float = 60.0) -> None:
    """Return once the cluster is healthy: every replica in its ISR."""
    cluster.wait_until_healthy(timeout_s=timeout_s)


def replica_bytes(cluster: LocalCluster, topic: str, partition: int) -> Mapping[int, bytes]:
    """Node id -> all segment bytes of its replica, in offset order."""
    found = {}
    for node in cluster.brokers:
        directory: Path = node.data_directory / f"{topic}-{partition}"
        if directory.is_dir():
            found[node.id] = b"".join(read_segments(directory))
    return found


def read_segments(directory: Path) -> list[bytes]:
    """The bytes of each segment of a replica, in offset order; read again where the cleaner replaces one meanwhile."""
    for _ in range(1_000):
        # Where one is replaced after it was listed; the cleaner soon has none left to replace.
        with contextlib.suppress(FileNotFoundError):
            return [path.read_bytes() for path in sorted(directory.glob("*.log"))]
    raise AssertionError(f"the cleaner never leaves off replacing segments of {directory}")
