"""Groups moved, watched and deleted, and topics trimmed, against a real cluster."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Wanted

from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.admin.test_real_cluster import Cli
from tests.support import poison
from tests.support.poison import POISON

pytestmark = pytest.mark.cluster


@pytest.fixture
def commands(barnabas_cluster: LocalCluster) -> Cli:
    return Cli(barnabas_cluster.admin_addresses)


@pytest.fixture
def topic(commands: Cli, barnabas_cluster: LocalCluster) -> Any:
    """Two partitions with ten records each, one a second of timestamps from 1,000,000."""
    name = "sought"
    commands.run("topic", "create", name, "-p", "2", "-c", "retention.ms=-1")  # retention would take what is of 1970
    producer = Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers})
    for number in range(10):
        for index in range(2):
            producer.produce(name, b"%d" % number, partition=index, timestamp=1_000_000 + 1000 * number)
    assert producer.flush(30) == 0
    yield name
    commands.run("topic", "delete", name, "--yes")


def commit(cluster: LocalCluster, group: str, topic: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    partitions = [Wanted(topic, index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


def committed(commands: Cli, group: str) -> list[int]:
    return [row["committed"] for row in commands.json("group", "describe", group)["partitions"]]


def test_a_group_is_sought_after_it_was_shown_and_never_with_members(
    commands: Cli, barnabas_cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    commit(barnabas_cluster, "g", topic, 4, 6)
    shown = commands.run("group", "seek", "g", "--to", "-2")
    assert b"add --execute" in shown.stderr and committed(commands, "g") == [4, 6]
    assert [line.split()[2:4] for line in shown.stdout.decode().splitlines()[1:]] == [["4", "2"], ["6", "4"]]
    commands.run("group", "seek", "g", "--to", "-2", "--execute")
    assert committed(commands, "g") == [2, 4]
    commands.run("group", "seek", "g", f"{topic}:1", "--to", "@1007000", "--execute")
    assert committed(commands, "g") == [2, 7]
    done = commands.json("group", "seek", "g", "--to", "99", "--execute")
    assert [(row["to"], row["clamped"]) for row in done["partitions"]] == [(10, True)] * 2
    saved = tmp_path / "offsets.json"
    saved.write_bytes(commands.run("group", "describe", "g", "-o", "json").stdout)
    commands.run("group", "seek", "g", "--to", "start", "--execute")
    commands.run("group", "seek", "g", "--from-file", str(saved), "--execute")
    assert committed(commands, "g") == [10, 10]
    commands.run("group", "seek", "copy", "--to-group", "g", "--execute")
    assert committed(commands, "copy") == [10, 10], "a group that did not exist"
    assert commands.json("group", "lag", "g", "copy")["groups"][1]["lag"] == 0

    member = Consumer({"bootstrap.servers": barnabas_cluster.bootstrap_servers, "group.id": "g"})
    member.subscribe([topic])
    deadline = time.monotonic() + 30
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.1)
    refused = commands.run("group", "seek", "g", "--to", "start", "--execute", status=1).stderr
    assert b"NON_EMPTY_GROUP" in refused and b"stop them" in refused
    assert b"NON_EMPTY_GROUP" in commands.run("group", "delete", "g", "--yes", status=1).stderr
    assert b"GROUP_SUBSCRIBED_TO_TOPIC" in commands.run("group", "delete-offsets", "g", topic, "--yes", status=1).stderr
    member.close()
    assert committed(commands, "g") == [10, 10]

    commands.run("group", "delete-offsets", "g", f"{topic}:1", "--yes")
    assert committed(commands, "g") == [10]
    commands.run("group", "delete", "g", "copy", "--yes")
    commands.run("group", "describe", "g", status=3)
    commands.run("group", "seek", "nobody", "--to", "end", status=3)


def test_a_group_of_the_consumer_protocol_is_explained_and_named_before_its_protocol_is_taken_away(
    commands: Cli, barnabas_cluster: LocalCluster, topic: str
) -> None:
    """The first member does not give up what the second waits for."""

    async def beat(member: str, epoch: int = 0, **named: Any) -> Any:
        client = ClusterClient(barnabas_cluster.bootstrap_servers, client_id=member)
        try:
            request = ConsumerGroupHeartbeatRequest(group_id="held", member_id=member, member_epoch=epoch, **named)
            answer = await client.call_coordinator("held", request)
        finally:
            await client.close()
        assert answer.error_code == 0, answer
        return answer

    def join(member: str) -> Any:
        return asyncio.run(
            beat(member, subscribed_topic_names=[topic], topic_partitions=[], rebalance_timeout_ms=60_000)
        )

    first = join("first")
    assert "is Stable: every member" in commands.run("explain", "group", "held").stdout.decode()
    time.sleep(1.1)  # the interval between two assignments
    second = join("second")
    asyncio.run(beat("first", first.member_epoch))
    said = commands.run("explain", "group", "held").stdout.decode()
    assert "member first (first at 127.0.0.1) has had to give up sought-1" in said
    assert "member second (second at 127.0.0.1) waits for sought-1" in said
    fields = commands.json("explain", "group", "held")
    assert fields["status"] == "reconciling"
    assert [(each["kind"], each["member"], each["others"]) for each in fields["findings"]] == [
        ("revoking", "first", ["second"]),
        ("waiting", "second", ["first"]),
    ]
    downgrade = ("cluster", "features", "downgrade", "--feature", "group.version=0", "--dry")
    assert b"warning: group held is of group.protocol=consumer: would be refused" in commands.run(*downgrade).stderr
    for member, epoch in (("first", first.member_epoch), ("second", second.member_epoch)):
        asyncio.run(beat(member, -1 if epoch else epoch))
    assert "it has no members" in commands.run("explain", "group", "held").stdout.decode()
    commands.run("group", "delete", "held", "--yes")
    assert b"does not exist" in commands.run("explain", "group", "held", status=3).stderr


def test_records_are_trimmed_from_the_front_only_after_a_yes(commands: Cli, topic: str) -> None:
    commands.run("topic", "trim", topic, "--to", "4", status=2, stdin=b"")
    assert commands.json("topic", "trim", topic, "--to", "4", "--dry")["partitions"][0]["status"] == "would trim"
    assert len(commands.consumed(topic, "-e")) == 20
    commands.run("topic", "trim", f"{topic}:0", "--to", "4", "--yes")
    assert len(commands.consumed(topic, "-e")) == 16
    commands.run("topic", "trim", topic, "--to", "@1008000", "--yes")
    assert [record["offset"] for record in commands.consumed(topic, "-e")] == [8, 9, 8, 9]
    assert b"beyond the end" in commands.run("topic", "trim", topic, "--to", "11", "--yes", status=1).stderr
    commands.run("topic", "trim", topic, "--to", "end", "--yes")
    assert commands.consumed(topic, "-e") == []


def test_a_group_gets_past_a_batch_that_nobody_can_read(commands: Cli, barnabas_cluster: LocalCluster) -> None:
    name, where = "poisoned", TopicPartition("poisoned", 0)
    commands.run("topic", "create", name, "-p", "1", "--config", "validate.batches=header")

    async def write() -> None:
        client = ClusterClient(barnabas_cluster.bootstrap_servers)
        try:
            for data in (poison.batch(poison.TWO, 2), POISON["offset deltas 0, 0"][0], poison.batch(poison.TWO, 2)):
                await client.produce(where, data)
        finally:
            await client.close()

    asyncio.run(write())
    skip = ("group", "skip", "g2", name, "0")
    assert b"GROUP_ID_NOT_FOUND" in commands.run(*skip, "--yes", status=3).stderr
    commit(barnabas_cluster, "g2", name, 0)
    refused = commands.run(*skip, "--yes", status=1).stderr
    assert b"offsets 0 to 1 can be read" in refused and b"--to 2 --execute" in refused
    commit(barnabas_cluster, "g2", name, 2)
    shown = commands.json(*skip, "--dry")
    assert (shown["first_offset"], shown["last_offset"], shown["next_offset"], shown["skipped"]) == (2, 3, 4, False)
    assert "offset delta" in shown["reason"] and shown["record_count"] == 2 and shown["size_bytes"] > 61
    assert committed(commands, "g2") == [2]
    unasked = commands.run(*skip, status=2)
    assert b"offsets 2 to 3" in unasked.stdout and b"--yes" in unasked.stderr
    assert committed(commands, "g2") == [2]

    member = Consumer({"bootstrap.servers": barnabas_cluster.bootstrap_servers, "group.id": "g2"})
    member.subscribe([name])
    deadline = time.monotonic() + 30
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.1)
    refused = commands.run(*skip, "--yes", status=1).stderr
    assert b"NON_EMPTY_GROUP" in refused and b"stop them" in refused
    member.close()

    commit(barnabas_cluster, "g2", name, 2)
    done = commands.json(*skip, "--yes")
    assert done["skipped"] is True and committed(commands, "g2") == [4]
    assert b"can be read" in commands.run(*skip, "--yes", status=1).stderr, "there is no second one"
    (row,) = commands.json("group", "describe", "g2")["partitions"]
    assert (row["end"], row["lag"]) == (6, 2), "the log is as it was"
    commands.run("topic", "delete", name, "--yes")
