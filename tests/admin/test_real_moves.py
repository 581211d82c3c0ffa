"""Moves, maintenance and their waits against a real cluster: what an operator does to brokers."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.moving import FOLLOWER_RATE, FOLLOWER_THROTTLED, LEADER_RATE, LEADER_THROTTLED
from tests.admin.test_real_cluster import Cli

pytestmark = pytest.mark.cluster


@pytest.fixture
def commands(barnabas_cluster: LocalCluster) -> Cli:
    return Cli(barnabas_cluster.admin_addresses)


def make_lopsided(commands: Cli, cluster: LocalCluster, topic: str) -> None:
    """Four partitions with 256 KiB each, all on brokers 1 and 2, all led by 1."""
    commands.run("topic", "create", topic, "-p", "4", "-r", "2")
    moves = [f"{topic}:{index}=1,2" for index in range(4)]
    commands.run("topic", "reassign", "apply", *moves, "--wait")
    commands.run("topic", "elect", topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for index in range(4):
        for _ in range(4):
            producer.produce(topic, b"x" * 65536, partition=index)
    assert producer.flush(30) == 0


def test_a_broker_without_data_gets_its_share_and_the_throttle_goes(
    commands: Cli, barnabas_cluster: LocalCluster
) -> None:
    topic = "lopsided"
    make_lopsided(commands, barnabas_cluster, topic)
    shown = commands.run("topic", "reassign", "balance", topic)
    assert b"nothing was changed: add --execute" in shown.stderr
    lines = [line.split() for line in shown.stdout.decode().splitlines()]
    assert lines[3][:5] == ["3", "-", "0", "->", "2"] and lines[3][-3::2] == ["0B", "512.2KiB"], shown.stdout.decode()
    assert {tuple(part["replicas"]) for part in described(commands, topic)} == {(1, 2)}, "it was only shown"
    done = commands.run("topic", "reassign", "balance", topic, "--execute", "--throttle", "1000000", "--wait")
    progress = done.stderr.decode()
    assert "throttled to 976.6KiB/s" in progress and "the throttle is off" in progress
    assert "partitions, 512" in progress, progress
    after = described(commands, topic)
    held = [broker for part in after for broker in part["replicas"]]
    assert sorted(held.count(broker) for broker in (1, 2, 3)) == [2, 3, 3]
    leaders = [part["leader"] for part in after]
    assert sorted(leaders.count(broker) for broker in (1, 2, 3)) == [1, 1, 2]
    assert all(sorted(part["isr"]) == sorted(part["replicas"]) for part in after)
    overrides = {row["key"] for row in commands.json("topic", "config", topic, "--overrides")["configs"]}
    assert overrides.isdisjoint({LEADER_THROTTLED, FOLLOWER_THROTTLED})
    assert {LEADER_RATE, FOLLOWER_RATE}.isdisjoint(default_broker_overrides(barnabas_cluster))
    assert b"nothing to do" in commands.run("topic", "reassign", "balance", topic).stdout
    commands.run("topic", "delete", topic, "--yes")


def described(commands: Cli, topic: str) -> list[dict[str, Any]]:
    (found,) = commands.json("topic", "describe", topic, "--no-offsets")["topics"]
    return list(found["partitions"])


def default_broker_overrides(cluster: LocalCluster) -> set[str]:
    from barnabas_admin.client import AdminClient
    from barnabas_wire.rpc import admin_pb2

    with AdminClient(cluster.admin_addresses, timeout_s=10) as admin:
        entries = admin.describe_configs(admin_pb2.RESOURCE_TYPE_BROKER, "", only_overrides=True)
        return {entry.key for entry in entries}
