"""A restore drill: a topic is saved while writers run, lost, and restored, here and in another cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas_admin.backup import RestoredOffsets
from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.records.batch import Record
from tests.admin.test_real_cluster import Cli

pytestmark = pytest.mark.cluster


def is_unknown(commands: Cli, group: str) -> bool:
    """Not before the coordinator has written that its offsets are gone: until then they are shown, of a group that is dead."""
    try:
        commands.run("group", "describe", group, status=3)
    except AssertionError:
        return False
    return True


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_topic_is_saved_lost_and_restored_here_and_elsewhere(
    barnabas_cluster: LocalCluster, barnabas_factory: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    commands = Cli(barnabas_cluster.admin_addresses)
    commands.run("topic", "create", "ledger", "-p", "2", "-c", "retention.ms=123456")
    servers = {"bootstrap.servers": barnabas_cluster.bootstrap_servers}
    transactional = Producer(servers | {"transactional.id": "drill"})
    transactional.init_transactions()
    for is_kept in (True, False, True):
        transactional.begin_transaction()
        transactional.produce("ledger", b"kept" if is_kept else b"aborted", key=b"t", headers={"h": b"x"}, partition=0)
        transactional.flush()
        transactional.commit_transaction() if is_kept else transactional.abort_transaction()
    producer = Producer(servers)
    for number in range(200):
        producer.produce("ledger", b"%d" % number, partition=1)
    assert producer.flush(30) == 0
    reader = Consumer(servers | {"group.id": "auditors"})
    reader.commit(offsets=[TopicPartition("ledger", 0, 4), TopicPartition("ledger", 1, 150)], asynchronous=False)
    reader.close()

    stopped = threading.Event()
    writer = threading.Thread(target=write_on, args=(servers, stopped))
    writer.start()
    try:
        saved = commands.json("topic", "export", "ledger", "-d", str(tmp_path))["partitions"]
    finally:
        stopped.set()
        writer.join()
    assert b"holds a backup" in commands.run("topic", "export", "ledger", "-d", str(tmp_path), status=3).stderr
    end = saved[1]["end"]
    assert saved[1]["start"] == 0 and end >= 200
    before = [(r["value"], r["timestamp_ms"]) for r in commands.consumed("ledger", "-p", "1", "-e")][:end]
    commands.run("topic", "import", str(tmp_path), status=3)
    commands.run("topic", "delete", "ledger", "--yes")
    assert eventually(lambda: is_unknown(commands, "auditors")), "a group's offsets go with the topic"

    elsewhere = barnabas_factory(nodes=1)
    for cluster, extra in ((barnabas_cluster, ()), (elsewhere, ("-r", "1"))):
        there = Cli(cluster.admin_addresses)
        restored = there.json("topic", "import", str(tmp_path), *extra)["partitions"]
        assert [row["records"] for row in restored] == [2, end]
        assert [(r["value"], r["timestamp_ms"]) for r in there.consumed("ledger", "-p", "1", "-e")] == before
        first = there.consumed("ledger", "-p", "0", "-e")
        assert [(r["value"], r["key"], r["headers"]) for r in first] == [
            ("kept", "t", [{"name": "h", "value": "x"}])
        ] * 2
        overrides = there.json("topic", "config", "ledger", "--overrides")["configs"]
        assert [(row["key"], row["value"]) for row in overrides] == [("retention.ms", "123456")]
        rows = there.json("group", "describe", "auditors")["partitions"]
        assert [row["committed"] for row in rows] == [1, 150], "markers and aborted records are no longer counted"
    damaged = tmp_path / "ledger" / "1.log"
    whole = damaged.read_bytes()
    for bytes_found in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        damaged.write_bytes(bytes_found)
        assert b"is damaged" in commands.run("topic", "import", str(tmp_path), "--as", "again", status=1).stderr
        commands.run("topic", "describe", "again", status=3)  # nothing was made
    damaged.write_bytes(whole)
    commands.run("topic", "import", str(tmp_path), "--as", "again")
    for name in ("ledger", "again"):
        commands.run("topic", "delete", name, "--yes", "--if-exists")


def write_on(servers: dict[str, str], stopped: threading.Event) -> None:
    producer = Producer(servers)
    while not stopped.is_set():
        producer.produce("ledger", b"more", partition=1)
        producer.flush(10)


def test_a_groups_place_is_counted_in_what_is_restored() -> None:
    restored = RestoredOffsets({"none": 0, "gap": 12, "all": 20})
    for offset in (10, 11, 15):
        restored.note(Record(offset, 0, None, None))
    assert restored.finish() == {"none": 0, "gap": 2, "all": 3}
