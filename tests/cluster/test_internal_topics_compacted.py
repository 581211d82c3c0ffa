"""The topics that the system itself writes are compacted, also where a former version wrote them: what groups committed and what
transactions are at is the same after compaction and any restart, and a coordinator that loads reads less."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.records.batch import iterate_batches, iterate_records
from barnabas_wire.rpc import admin_pb2
from tests.cluster.former import NotInThisCloneError, make_former, server_of
from tests.cluster.workload import read_segments
from tests.support.clusters import ForkedCluster

pytestmark = [pytest.mark.cluster]

FORMER = "a801271"
"""The newest commit before transactions and compaction."""
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
OVERRIDES = {
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
DIRTY_AT_ONCE = {"segment.ms": "300", "min.cleanable.dirty.ratio": "0.01"}
PARTITIONS = 10
COMMITS = 40
GROUPS = ("first", "second", "third")


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    return ForkedCluster(tmp_path / "cluster", nodes=1, base_port=find_base_port(), overrides=OVERRIDES)


def metric(cluster: LocalCluster, name: str) -> float:
    _, page = cluster.http_get(1, "/metrics")
    return sum(float(found) for found in re.findall(rf"^barnabas_{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE))


def create(cluster: LocalCluster, topic: str) -> None:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        (outcome,) = admin.create_topics([topic], partitions=PARTITIONS, replication_factor=1)
    assert not outcome.error.code, outcome


def get_dirty_at_once(cluster: LocalCluster, topic: str) -> None:
    """Small segments, and cleaned as soon as there is anything to clean."""
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        admin.alter_configs(admin_pb2.RESOURCE_TYPE_TOPIC, topic, DIRTY_AT_ONCE)


def consumer(cluster: LocalCluster, group: str, *, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )


def commit_often(cluster: LocalCluster, topic: str, *, first: int) -> dict[str, list[int]]:
    """Each group commits all partitions over and over; returns what it committed last."""
    last: dict[str, list[int]] = {}
    for number, group in enumerate(GROUPS):
        member = consumer(cluster, group)
        try:
            for offset in range(first, first + COMMITS):
                last[group] = [offset * 10 + partition + number for partition in range(PARTITIONS)]
                wanted = [TopicPartition(topic, partition, last[group][partition]) for partition in range(PARTITIONS)]
                member.commit(offsets=wanted, asynchronous=False)
        finally:
            member.close()
    return last


def committed(
    cluster: LocalCluster, topic: str, groups: tuple[str, ...] = GROUPS, *, isolation: str = "read_uncommitted"
) -> dict[str, list[int]]:
    """What groups committed. With read_committed what a transaction would commit is waited for: its end is answered before its markers
    are written."""
    found: dict[str, list[int]] = {}
    for group in groups:
        member = consumer(cluster, group, isolation=isolation)
        try:
            answer = member.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], timeout=30)
            found[group] = [each.offset for each in answer]
        finally:
            member.close()
    return found


def records_on_disk(cluster: LocalCluster, topic: str) -> int:
    """Markers of transactions left out: they stay for delete.retention.ms."""
    count = 0
    for content in read_segments(cluster.nodes[1].data_directory / f"{topic}-0"):
        for position, header in iterate_batches(content):
            if header.is_control:
                continue
            count += len(list(iterate_records(content[position : position + header.size_bytes])))
    return count


def upgrade(cluster: LocalCluster) -> None:
    """Raise metadata.version to what this version serves."""
    command = ["-m", "barnabas_admin.main", "cluster", "features", "upgrade", "--admin", cluster.admin_addresses]
    subprocess.run([sys.executable, *command], check=True, capture_output=True, timeout=60.0)


def load_again(cluster: LocalCluster, *, is_clean: bool) -> float:
    """Restart; returns how many records its group coordinator read."""
    cluster.restart(1, is_clean=is_clean)
    cluster.wait_until_healthy()
    cluster.wait_until(lambda: metric(cluster, "group_loads_total") > 0, what="the coordinator to load")
    return metric(cluster, "group_records_loaded_total")


def wait_until_clean(cluster: LocalCluster, topic: str, *, below: int) -> None:
    cluster.wait_until(
        lambda: records_on_disk(cluster, topic) < below,
        timeout_s=60.0,
        what=f"{topic} to have less than {below} records",
    )


def test_a_directory_of_the_former_version_opens_is_compacted_and_keeps_what_groups_committed(tmp_path: Path) -> None:
    (tmp_path / "former").mkdir()
    try:
        former = server_of(make_former(FORMER, tmp_path / "former"))
    except NotInThisCloneError as error:
        pytest.skip(str(error))
    cluster = LocalCluster(tmp_path / "cluster", nodes=1, base_port=find_base_port(), overrides=OVERRIDES)
    node = cluster.nodes[1]
    node.server = former
    with cluster:
        create(cluster, "read")
        last = commit_often(cluster, "read", first=0)
        before = records_on_disk(cluster, OFFSETS)
        assert before >= len(GROUPS) * COMMITS * PARTITIONS
        cluster.stop_node(1)
        node.server = ()
        cluster.start_node(1)
        cluster.wait_until_healthy()
        assert committed(cluster, "read") == last, "at the former metadata.version, not compacted yet"
        get_dirty_at_once(cluster, OFFSETS)
        time.sleep(0.4)
        last |= commit_often(cluster, "read", first=100)
        time.sleep(0.4)
        last |= commit_often(cluster, "read", first=200)
        assert metric(cluster, "log_cleaner_runs_total") == 0, "a follower of the former version could not follow"
        read_before = load_again(cluster, is_clean=False)
        assert read_before >= 3 * before
        upgrade(cluster)
        # Only the last segment stays as it was.
        wait_until_clean(cluster, OFFSETS, below=int(1.5 * before))
        assert committed(cluster, "read") == last
        for is_clean in (False, True):
            read_after = load_again(cluster, is_clean=is_clean)
            assert read_after < read_before / 2
            assert committed(cluster, "read") == last
        assert metric(cluster, "log_damage_found_total") == metric(cluster, "log_cleaner_uncleanable_logs") == 0


def begin(cluster: LocalCluster, name: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(30)
    return producer


def copy_often(producer: Producer, group: Consumer, name: str, *, first: int, count: int) -> None:
    """Transactions one after another, each with a record and an offset; every third is aborted."""
    for number in range(first, first + count):
        producer.begin_transaction()
        producer.produce("written", b"%s %d" % (name.encode(), number), key=name.encode(), partition=0)
        offsets = [TopicPartition("read", 0, number + 1)]
        producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), 30)
        if number % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def read_committed(cluster: LocalCluster) -> list[bytes]:
    reader = consumer(cluster, "of records")
    try:
        reader.assign([TopicPartition("written", 0, 0)])
        found: list[bytes] = []
        idle = 0
        while idle < 4:
            message = reader.poll(0.5)
            if message is None:
                idle += 1
            else:
                assert message.error() is None
                found.append(bytes(message.value()))
        return found
    finally:
        reader.close()


def test_transactions_go_on_after_their_topics_were_compacted(cluster: LocalCluster) -> None:
    names = ("copier-1", "copier-2")
    with cluster:
        for topic in ("read", "written"):
            create(cluster, topic)
        producers = {name: begin(cluster, name) for name in (*names, "open")}
        groups = {name: consumer(cluster, name) for name in (*names, "open")}
        for first in (0, 12, 24):
            for name in names:
                copy_often(producers[name], groups[name], name, first=first, count=12)
            for topic in (OFFSETS, TRANSACTIONS):
                get_dirty_at_once(cluster, topic)
            time.sleep(0.4)
        still_open, in_group = producers["open"], groups["open"]
        still_open.begin_transaction()
        still_open.produce("written", b"of the open one", partition=0)
        still_open.flush(30)
        still_open.send_offsets_to_transaction([TopicPartition("read", 0, 7)], in_group.consumer_group_metadata(), 30)
        for name in names:
            copy_often(producers[name], groups[name], name, first=36, count=3)
        wanted = [b"%s %d" % (name.encode(), n) for name in names for n in range(39) if n % 3 != 2]
        # Of 78 transactions with some four records each, six in the newest segment.
        wait_until_clean(cluster, TRANSACTIONS, below=100)
        wait_until_clean(cluster, OFFSETS, below=50)
        for is_clean in (False, True):
            cluster.restart(1, is_clean=is_clean)
            cluster.wait_until_healthy()
            found = committed(cluster, "read", (*names, "open"))
            assert [found[name][0] for name in (*names, "open")] == [38, 38, -1001]
        still_open.commit_transaction(60)
        assert committed(cluster, "read", ("open",), isolation="read_committed")["open"][0] == 7
        assert sorted(read_committed(cluster)) == sorted([*wanted, b"of the open one"])
        # The coordinator knows the epochs still: who took an id over fences whom it took it from.
        heir = begin(cluster, names[0])
        with pytest.raises(KafkaException):
            copy_often(producers[names[0]], groups[names[0]], "fenced", first=0, count=1)
        copy_often(heir, groups[names[0]], names[0], first=39, count=1)
        assert committed(cluster, "read", names[:1], isolation="read_committed")[names[0]][0] == 40
        assert metric(cluster, "log_damage_found_total") == metric(cluster, "log_cleaner_uncleanable_logs") == 0
        for member in groups.values():
            member.close()
