"""A compacted topic on real brokers: cleaned on every replica, while workers and brokers are killed amid it; no key loses its last
value, and replicas go on following each other."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.records.batch import iterate_batches, iterate_records
from barnabas_wire.rpc import admin_pb2
from tests.cluster.workload import read_segments
from tests.support.clusters import ForkedCluster

pytestmark = [pytest.mark.cluster]

KEYS = 40
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    overrides = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "3000000"}
    with ForkedCluster(tmp_path / "cluster", nodes=3, base_port=find_base_port(), overrides=overrides) as running:
        yield running


def metric(cluster: LocalCluster, node_id: int, name: str) -> float:
    _, page = cluster.http_get(node_id, "/metrics")
    return sum(float(found) for found in re.findall(rf"^barnabas_{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE))


def write(cluster: LocalCluster, topic: str, last: dict[bytes, bytes], *, start: int, count: int) -> None:
    """Keys over and over; each value says when it was written. The last of each key is a tombstone now and then."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True})
    for number in range(start, start + count):
        key = b"key-%d" % (number * 7 % KEYS)
        last[key] = b"%08d" % number + b"v" * 1_000
        producer.produce(topic, last[key], key=key, partition=0)
        producer.poll(0)
    assert producer.flush(90.0) == 0


def read(cluster: LocalCluster, topic: str) -> tuple[dict[bytes, bytes], int]:
    """(the last value of each key, how many records there are), as a consumer sees it from the beginning."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30.0)
        consumer.assign([TopicPartition(topic, 0, 0)])
        last: dict[bytes, bytes] = {}
        count, position = 0, 0
        while position < end:
            message = consumer.poll(30.0)
            assert message is not None and message.error() is None, f"stuck at {position} of {end}"
            last[bytes(message.key())] = message.value()
            count, position = count + 1, message.offset() + 1
        return last, count
    finally:
        consumer.close()


def on_disk(cluster: LocalCluster, topic: str, node_id: int) -> dict[bytes | None, bytes | None]:
    """The last value of each key in a replica's files."""
    (node,) = [node for node in cluster.brokers if node.id == node_id]
    last: dict[bytes | None, bytes | None] = {}
    for content in read_segments(node.data_directory / f"{topic}-0"):
        for position, header in iterate_batches(content):
            for record in iterate_records(content[position : position + header.size_bytes]):
                last[record.key] = record.value
    return last


def workers() -> list[int]:
    """Cleaner processes on this host that descend from this one's brokers."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if b"barnabas_log.cleaner.worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def of_cluster(cluster: LocalCluster, pid: int) -> bool:
    """Whether a worker has a segment of this cluster open, or is nobody's."""
    with contextlib.suppress(OSError):
        return any(str(cluster.directory) in os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_compaction_survives_kills_of_workers_and_brokers(cluster: LocalCluster) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["changes"], partitions=1, replication_factor=3, configs=SETTINGS)
    last: dict[bytes, bytes] = {}
    write(cluster, "changes", last, start=0, count=8_000)

    killed = 0

    def kill_a_worker() -> bool:
        nonlocal killed
        for pid in workers():
            if of_cluster(cluster, pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        return killed > 0

    cluster.wait_until(kill_a_worker, timeout_s=60.0, what="a worker to be amid a job")
    cluster.wait_until(
        lambda: any(of_cluster(cluster, pid) for pid in workers()), timeout_s=60.0, what="another worker to begin"
    )
    cluster.restart(2, is_clean=False)
    cluster.wait_until(lambda: cluster.is_ready(2), what="the killed broker to serve")
    write(cluster, "changes", last, start=8_000, count=4_000)
    for node_id in (1, 2, 3):
        cluster.wait_until(
            lambda node_id=node_id: metric(cluster, node_id, "log_cleaner_runs_total") > 0,  # type: ignore[misc]
            timeout_s=90.0,
            what=f"broker {node_id} to clean its replica",
        )
    seen, count = read(cluster, "changes")
    assert seen == last and count < 9_000
    cluster.restart(1, is_clean=False)
    cluster.restart(3)
    cluster.wait_until_healthy()
    assert read(cluster, "changes")[0] == last
    for node_id in (1, 2, 3):
        assert on_disk(cluster, "changes", node_id) == last, f"broker {node_id}"
        assert metric(cluster, node_id, "log_cleaner_uncleanable_logs") == 0
        assert metric(cluster, node_id, "log_damage_found_total") == 0


def test_a_topic_may_be_compacted_later_and_takes_no_record_without_a_key_then(cluster: LocalCluster) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["later"], partitions=1, replication_factor=1, configs={"segment.bytes": str(1 << 20)})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "message.timeout.ms": 20_000})
    failures: list[str] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(str(error))

    producer.produce("later", b"without a key", on_delivery=on_delivery)
    assert producer.flush(30.0) == 0 and not failures
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.alter_configs(admin_pb2.RESOURCE_TYPE_TOPIC, "later", SETTINGS)

    def is_refused() -> bool:
        failures.clear()
        producer.produce("later", b"without a key", on_delivery=on_delivery)
        producer.flush(30.0)
        return bool(failures)

    cluster.wait_until(is_refused, what="a record without a key to be refused")
    assert "key" in failures[0].lower() or "INVALID_RECORD" in failures[0]
    last: dict[bytes, bytes] = {}
    write(cluster, "later", last, start=0, count=4_000)
    cluster.wait_until(
        lambda: sum(metric(cluster, node_id, "log_cleaner_runs_total") for node_id in (1, 2, 3)) > 0,
        timeout_s=60.0,
        what="the topic to be cleaned",
    )
    with contextlib.suppress(KafkaException):
        assert read(cluster, "later")[0] == last


def runs_left(cluster: LocalCluster, node_id: int) -> set[Path]:
    """Directories of runs below a broker's data, under way or left behind."""
    return set(cluster.nodes[node_id].data_directory.glob("*/.cleaning/*"))


def workers_of(cluster: LocalCluster, node_id: int) -> list[int]:
    """Workers that have a file below the broker's data open."""
    found = []
    for pid in workers():
        with contextlib.suppress(OSError):
            place = str(cluster.nodes[node_id].data_directory)
            if any(place in os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()):
                found.append(pid)
    return found


def test_a_killed_brokers_worker_ends_and_what_it_left_is_removed_at_the_next_start(cluster: LocalCluster) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["changes"], partitions=1, replication_factor=3, configs=SETTINGS)
    last: dict[bytes, bytes] = {}
    write(cluster, "changes", last, start=0, count=8_000)
    orphans: list[int] = []
    node_id = 0

    def is_amid_a_run() -> bool:
        nonlocal node_id
        for node_id in cluster.nodes:
            orphans[:] = workers_of(cluster, node_id)
            if orphans and any(list(run.iterdir()) for run in runs_left(cluster, node_id)):
                return True
        return False

    cluster.wait_until(is_amid_a_run, timeout_s=60.0, what="a worker to have written something")
    cluster.kill(node_id)
    cluster.wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans), timeout_s=10.0, what="the orphan to end"
    )
    left = runs_left(cluster, node_id)
    assert left, "the run should have been under way"
    cluster.start_node(node_id)
    cluster.wait_until_healthy()
    assert not left & runs_left(cluster, node_id)
    cluster.wait_until(
        lambda: metric(cluster, node_id, "log_cleaner_runs_total") > 0, timeout_s=60.0, what="the log to be cleaned"
    )
    assert read(cluster, "changes")[0] == last
    assert metric(cluster, node_id, "log_damage_found_total") == 0


def test_a_log_that_cannot_be_cleaned_is_counted_and_explained(cluster: LocalCluster) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["rotten"], partitions=1, replication_factor=1, configs={"segment.bytes": str(1 << 20)})
        (described,) = admin.describe_topics(["rotten"])
    leader = described.partitions[0].leader
    write(cluster, "rotten", {}, start=0, count=3_000)

    def ask(*words: str, exit_code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas_admin.main", *words],
            env={
                **os.environ,
                "BARNABAS_ADMIN": cluster.admin_addresses,
                "BARNABAS_BROKERS": cluster.bootstrap_servers,
            },
            capture_output=True,
            text=True,
            timeout=60.0,
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout

    def explain() -> str:
        return ask("explain", "partition", "rotten", "0")

    assert "cannot compact" not in explain()
    segment = cluster.nodes[leader].data_directory / "rotten-0" / f"{0:020d}.log"
    with segment.open("r+b") as stream:
        stream.seek(500)
        flipped = bytes([stream.read(1)[0] ^ 1])
        stream.seek(500)
        stream.write(flipped)
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.alter_configs(admin_pb2.RESOURCE_TYPE_TOPIC, "rotten", SETTINGS)
    cluster.wait_until(
        lambda: metric(cluster, leader, "log_cleaner_uncleanable_logs") == 1, what="the log to be set aside"
    )
    said = explain()
    assert f"broker {leader} cannot compact its replica, which grows: " in said, said
    assert "barnabas log verify LOG_DIR/rotten-0" in said
    health = json.loads(ask("cluster", "health", "-o", "json", exit_code=10))
    assert "logs_uncleanable" in health["reasons"], health
    assert [(each["node"], each["topic"]) for each in health["logs_uncleanable"]] == [(leader, "rotten")]
    assert "barnabas explain partition rotten 0" in health["next"]


def stable_end(cluster: LocalCluster, topic: str) -> int:
    """Where readers of committed data end."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30.0)[1])
    finally:
        consumer.close()


def control_batches(cluster: LocalCluster, node_id: int, topic: str) -> list[int]:
    """Offsets of the markers that a replica's sealed segments have; of an emptied one only the header is left."""
    (node,) = [node for node in cluster.brokers if node.id == node_id]
    found: list[int] = []
    for content in read_segments(node.data_directory / f"{topic}-0")[:-1]:
        found += [
            header.base_offset for _, header in iterate_batches(content) if header.is_control and header.record_count
        ]
    return found


def test_aborted_data_goes_at_once_and_markers_after_their_time(cluster: LocalCluster) -> None:
    settings = {**SETTINGS, "segment.ms": "300", "delete.retention.ms": "4000"}
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.create_topics(["copied"], partitions=1, replication_factor=1, configs=settings)
        (described,) = admin.describe_topics(["copied"])
    leader = described.partitions[0].leader
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "copier", "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        producer.produce("copied", b"%d" % number, key=b"overwritten", partition=0)
        producer.produce(
            "copied", b"%d" % number, key=b"%s-%d" % (b"aborted" if number % 2 else b"kept", number), partition=0
        )
        if number % 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    kept = {b"kept-%d" % number: b"%d" % number for number in range(0, 12, 2)}

    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})

    def roll() -> None:
        """A segment more, so that what was the newest one may be cleaned."""
        time.sleep(0.4)
        plain.produce("copied", b"last", key=b"overwritten", partition=0)
        assert plain.flush(30) == 0

    def is_aborted_data_gone() -> bool:
        roll()
        return not any(key and key.startswith(b"aborted") for key in on_disk(cluster, "copied", leader))

    cluster.wait_until(is_aborted_data_gone, timeout_s=60.0, what="what was aborted to go")
    began_s = time.monotonic()
    assert len(control_batches(cluster, leader, "copied")) == 12, "markers stay until their delete horizon"
    assert read(cluster, "copied")[0] == {**kept, b"overwritten": b"last"}

    def are_spent_markers_gone() -> bool:
        roll()
        return len(control_batches(cluster, leader, "copied")) == len(kept) + 1

    # Those of the committed ones stay with the data of theirs that is left, and the last one with the header of the batch that has
    # the last sequence of a producer which lives.
    cluster.wait_until(are_spent_markers_gone, timeout_s=60.0, what="the markers of what was aborted to go")
    assert time.monotonic() - began_s > 2.0, "they went before delete.retention.ms was over"
    cluster.restart(leader, is_clean=False)
    cluster.wait_until_healthy()
    assert read(cluster, "copied")[0] == {**kept, b"overwritten": b"last"}
    # The producer and its epoch are known still: its next transaction is taken.
    stable = stable_end(cluster, "copied")
    producer.begin_transaction()
    producer.produce("copied", b"after", key=b"overwritten", partition=0)
    producer.commit_transaction(60)
    cluster.wait_until(lambda: stable_end(cluster, "copied") == stable + 2, what="its marker to be written")
    plain.produce("copied", b"", key=b"end", partition=0)
    assert plain.flush(30) == 0
    assert read(cluster, "copied")[0] == {**kept, b"overwritten": b"after", b"end": b""}
    assert metric(cluster, leader, "log_cleaner_uncleanable_logs") == 0
