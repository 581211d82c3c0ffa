"""Apache Kafka's cleaner and ours over the same input, and each broker on what the other's cleaner left.

Both take the same records of a compacted topic, tombstones and transactions among them, and clean them; what is left must be the same
records. Then each, stopped, gets the other's segment files in place of its own, starts, serves, takes more, and cleans again.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_broker.offline.log_verify import check_directory
from barnabas_log.directories.checkpoints import CLEAN_OFFSETS_FILE, read_offsets
from barnabas_log.disk import RealDisk
from barnabas_wire.kafka.ids import TopicPartition as Name
from barnabas_wire.records.batch import iterate_batches, iterate_records
from tests.oracle import apache, history
from tests.oracle.conftest import APACHE_PORT_OFFSET, SHARED, both_running
from tests.oracle.test_dump_log_segments import dump
from tests.oracle.test_transaction_files import ABORTED
from tests.support.clusters import ForkedCluster

TOPIC = "changes"
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}
CLEANER = {"log.cleaner.backoff.ms": "200"}
VALUE = b"v" * 1000
STARTED_MS = history.STARTED_MS
CLEAN_WITHIN_S = 60.0


class Row(NamedTuple):
    """A record, as both must have it."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class Sides(NamedTuple):
    """Both brokers' bootstrap addresses and data directories, while they run."""

    bootstraps: tuple[str, str]
    directories: tuple[Path, Path]


def write(bootstrap: str, *, first: int, count: int) -> None:
    """Some keys once, others over and over; the last of some is a tombstone. One record per batch and no record
    twice, so that offsets are the same."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 1, "linger.ms": 0}
    )
    for number in range(first, first + count):
        # Each segment's last batches are superseded by the next one's, so Kafka's end early.
        key = b"once-%d" % number if number % 10 == 0 and number % 1000 < 700 else b"often-%d" % (number % 37)
        value = None if number % 37 == 5 and number % 10 else b"%d" % number + VALUE
        producer.produce(TOPIC, value, key=key, partition=0, timestamp=STARTED_MS + number)
        producer.poll(0)
    assert producer.flush(60) == 0


def write_in_transactions(bootstrap: str) -> None:
    """Six, every second aborted, of which one overwrites what was committed."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "of-changes", "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for key in (b"in transactions", b"of transaction %d" % number):
            producer.produce(TOPIC, b"%d" % number, key=key, partition=0, timestamp=STARTED_MS)
            producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def rows(data: Path, *, below: int = 1 << 62) -> list[Row]:
    """The records of a partition's files that are data, up to an offset."""
    found: list[Row] = []
    for path in sorted((data / f"{TOPIC}-0").glob("*.log")):
        content = path.read_bytes()
        for position, header in iterate_batches(content):
            if not header.is_control:
                for record in iterate_records(content[position : position + header.size_bytes]):
                    if record.offset < below:
                        assert record.key is not None
                        found.append(Row(record.offset, record.timestamp_ms, record.key, record.value))
    return found


def ends_early(data: Path) -> list[int]:
    """Base offsets of the sealed segments that end before the next one begins."""
    paths = sorted((data / f"{TOPIC}-0").glob("*.log"))
    early = []
    for path, following in pairwise(paths):
        headers = [header for _, header in iterate_batches(path.read_bytes())]
        if not headers or headers[-1].next_offset < int(following.stem):
            early.append(int(path.stem))
    return early


def clean_offset(data: Path) -> int:
    path = data / CLEAN_OFFSETS_FILE
    if path.exists() and not path.stat().st_size:
        return 0  # Kafka makes the file empty at its start, and fills it by a rename
    disk = RealDisk(wants_ring=False)
    try:
        return int(read_offsets(disk, str(path)).get(Name(TOPIC, 0), 0))
    finally:
        disk.close()


def wait_until_clean(data: Path) -> int:
    """Until all but the newest segment is clean; returns up to where."""
    deadline = time.monotonic() + CLEAN_WITHIN_S
    while True:
        active = max(int(path.stem) for path in (data / f"{TOPIC}-0").glob("*.log"))
        found = clean_offset(data)
        if active and found >= active:
            return found
        assert time.monotonic() < deadline, f"{data} is clean up to {found} of {active}"
        time.sleep(0.2)


def end_of(consumer: Consumer) -> int:
    """The end of the partition; a Kafka that just started names itself leader before it leads."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)[1])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def read(bootstrap: str) -> list[Row]:
    """What a reader of committed records gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        end = end_of(consumer)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[Row] = []
        while not found or found[-1].offset < end - 1:  # the last one is no marker
            message = consumer.poll(30)
            assert message is not None and message.error() is None, f"stuck behind {found[-1:]} of {end}"
            found.append(Row(message.offset(), message.timestamp()[1], bytes(message.key()), message.value()))
        return found
    finally:
        consumer.close()


def last_of_each(found: list[Row]) -> dict[bytes, Row]:
    return {row.key: row for row in found}


def check_ours(files: Path) -> None:
    """Kafka's dump tool reads what our cleaner left: segments, indexes, .txnindex, producer snapshots."""
    directory = files / f"{TOPIC}-0"
    dump(*sorted(directory.glob("*.log")), flags=("--deep-iteration", "--print-data-log"))
    dump(*sorted(directory.glob("*.index")), *sorted(directory.glob("*.timeindex")), *sorted(directory.glob("*.log")))
    dump(*sorted(directory.glob("*.index")), flags=("--index-sanity-check",))
    assert "producerId" in dump(*sorted(directory.glob("*.snapshot")))
    indexes = sorted(directory.glob("*.txnindex"))
    if indexes:
        ABORTED.findall(dump(*indexes))


@pytest.fixture(scope="module")
def directories(jars: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[apache.ApacheBroker, LocalCluster]:
    directory = tmp_path_factory.mktemp("compacted")
    base_port = find_base_port()
    theirs = apache.ApacheBroker(directory / "apache", port=base_port + APACHE_PORT_OFFSET, overrides=SHARED | CLEANER)
    return theirs, ForkedCluster(directory / "barnabas", nodes=1, base_port=base_port, overrides=SHARED | CLEANER)


def test_both_cleaners_leave_the_same_and_go_on_with_each_others_files(
    directories: tuple[apache.ApacheBroker, LocalCluster],
) -> None:
    theirs, ours = directories
    sides = Sides((f"{apache.HOST}:{theirs.port}", ours.bootstrap_servers), (theirs.data, ours.nodes[1].data_directory))
    with both_running(theirs, ours):
        for bootstrap, data in zip(*sides, strict=True):
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
            write(bootstrap, first=0, count=100)
            write_in_transactions(bootstrap)
            write(bootstrap, first=100, count=4400)
            wait_until_clean(data)
    clean = [wait_until_clean(data) for data in sides.directories]
    assert clean[0] == clean[1], "the same segments, so the same part of them"
    first, second = (rows(data, below=clean[0]) for data in sides.directories)
    assert first == second
    kept = [row for row in first if b"transaction" in row.key]
    assert [(row.key, row.value) for row in kept] == [
        (b"of transaction 0", b"0"),
        (b"of transaction 2", b"2"),
        (b"in transactions", b"4"),
        (b"of transaction 4", b"4"),
    ], "what was aborted is gone"
    assert any(row.value is None for row in first), "tombstones stay for delete.retention.ms"
    assert len(first) == len(last_of_each(first)), "one of each key"
    assert ends_early(sides.directories[0]) and not ends_early(sides.directories[1])
    check_ours(sides.directories[1])
    before = rows(sides.directories[0])
    assert before == rows(sides.directories[1])

    history.exchange(*sides.directories, topic=TOPIC)
    assert ends_early(sides.directories[1])
    disk = RealDisk(wants_ring=False)
    assert check_directory(disk, sides.directories[1] / f"{TOPIC}-0")[0] == []
    disk.close()
    with both_running(theirs, ours):
        for bootstrap in sides.bootstraps:
            assert read(bootstrap) == before
            write(bootstrap, first=5000, count=3000)
        clean = [wait_until_clean(data) for data in sides.directories]
    seen = [rows(data) for data in sides.directories]
    assert last_of_each(seen[0]) == last_of_each(seen[1])
    for found, end in zip(seen, clean, strict=True):
        below = [row for row in found if row.offset < end]
        assert len(below) == len(last_of_each(below)) and len(found) < len(before) + 3000
    assert not ends_early(sides.directories[1]), "our cleaner closes the ends that Kafka's left open"
    check_ours(sides.directories[1])
    disk = RealDisk(wants_ring=False)
    assert check_directory(disk, sides.directories[1] / f"{TOPIC}-0")[0] == []
    disk.close()
