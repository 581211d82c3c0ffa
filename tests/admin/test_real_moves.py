"""Moves, maintenance and their waits against a real cluster: what an operator does to brokers."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
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


@pytest.mark.barnabas(scope="function", roles="separate")
def test_a_broker_is_drained_restarted_and_taken_out_for_good(barnabas_cluster: LocalCluster) -> None:
    commands = Cli(barnabas_cluster.admin_addresses)
    topic = "kept"
    make_lopsided(commands, barnabas_cluster, topic)
    drained = commands.json("broker", "drain", "1")
    assert (drained["handed_over"], drained["kept"]) == (4, 0)

    def becomes(what: str, condition: Callable[[], bool]) -> None:
        """Another node than the one that took the change may answer, a moment behind it."""
        barnabas_cluster.wait_until(condition, timeout_s=60, what=what)

    becomes("led by 2", lambda: {part["leader"] for part in described(commands, topic)} == {2})
    becomes("1 stays in sync", lambda: {tuple(sorted(part["isr"])) for part in described(commands, topic)} == {(1, 2)})
    becomes("maintenance", lambda: b"brokers [1 in maintenance] 2 3" in commands.run("cluster", "health").stdout)
    barnabas_cluster.restart(1)
    barnabas_cluster.wait_until_healthy(timeout_s=60)
    becomes("1 in maintenance", lambda: states(commands) == {1: "maintenance", 2: "active", 3: "active"})
    commands.run("broker", "undrain", "1")
    becomes("1 active", lambda: states(commands) == {1: "active", 2: "active", 3: "active"})
    commands.run("topic", "elect", topic)
    becomes("led by 1", lambda: {part["leader"] for part in described(commands, topic)} == {1})

    process = barnabas_cluster.nodes[1].process
    assert process is not None
    planned = commands.json("broker", "decommission", "1", "--dry")
    assert planned["replicas_to_move"] >= 4 and planned["bytes_to_copy"] > 4 * 256 * 1024
    commands.run("broker", "decommission", "1", stdin=b"", status=2)
    kill = f"kill -TERM {process.pid} # {{id}} {{host}}"
    done = commands.run("broker", "decommission", "1", "--wait", "--yes", "--stop-command", kill)
    assert done.stdout.endswith(b"replicas moved, stopped, unregistered\n")
    assert process.wait(30) == 0
    becomes("1 unregistered", lambda: states(commands) == {2: "active", 3: "active"})
    becomes(
        "on 2 and 3",
        lambda: all(sorted(part["isr"]) == sorted(part["replicas"]) == [2, 3] for part in described(commands, topic)),
    )
    assert len(commands.consumed(topic, "-e")) == 16, "every record is there"


def states(commands: Cli) -> dict[int, str]:
    return {broker["id"]: broker["state"] for broker in commands.json("broker", "list")["brokers"]}


@pytest.mark.barnabas(scope="function", roles="separate")
def test_nodes_are_rolled_one_at_a_time_and_a_voters_disk_is_replaced(
    barnabas_cluster: LocalCluster, tmp_path: Path
) -> None:
    commands = Cli(barnabas_cluster.admin_addresses)
    commands.run("topic", "create", "t", "-p", "3")
    commands.run("topic", "create", "small", "-p", "2", "-r", "1")
    before = {node.id: node.process for node in barnabas_cluster.nodes.values()}
    active = commands.json("quorum", "status")["leader_id"]
    order = [row["node"] for row in commands.json("cluster", "roll", "--dry")["order"]]
    dry = commands.run("cluster", "roll", "--dry")
    (homes,) = [each["partitions"] for each in commands.json("topic", "describe", "small")["topics"]]
    alone = {each["replicas"][0] for each in homes}
    for broker in (1, 2, 3):
        warning = f"node {broker} has the only replica of".encode()
        assert (warning in dry.stderr) == (broker in alone)
    assert barnabas_admin_version().encode() in dry.stdout, "the admin listeners that were named say their versions"
    assert order[:3] == [1, 2, 3] and order[-1] == active and sorted(order[3:]) == [101, 102, 103]
    assert b"name what restarts" in commands.run("cluster", "roll", "--yes", status=2).stderr

    with Restarter(barnabas_cluster, tmp_path) as restarter:
        done = commands.run(
            *("cluster", "roll", "--skip", "2", "--skip", "3", "--yes", "--restart-command", restarter.command)
        )
        assert restarter.restarted[0] == 1 and sorted(restarter.restarted[1:]) == [101, 102, 103]
    assert b"4 of 4: restarting node" in done.stderr and b"(active controller)" in done.stderr
    assert b"4 nodes restarted" in done.stdout and b"the cluster is healthy" in done.stdout
    renewed = {node.id for node in barnabas_cluster.nodes.values() if node.process is not before[node.id]}
    assert renewed == {1, 101, 102, 103}
    version = barnabas_admin_version()
    assert b"nothing to do" in commands.run("cluster", "roll", "--dry", "--to", version).stdout

    voter = next(v for v in (101, 102, 103) if v != commands.json("quorum", "status")["leader_id"])
    node = barnabas_cluster.nodes[voter]
    barnabas_cluster.kill(voter)
    shutil.rmtree(node.directory / "data")
    config = str(node.directory / "server.properties")
    cluster_id = barnabas_cluster.cluster_id
    commands.run("storage", "format", "-c", config, "--cluster-id", cluster_id, "--no-initial-controllers")
    old = {row["id"]: row["directory_id"] for row in commands.json("quorum", "status")["voters"]}
    barnabas_cluster.start_node(voter)
    done = commands.run("quorum", "replace-voter", str(voter))
    assert f"votes in place of node {voter}, {old[voter]}".encode() in done.stdout
    new = {row["id"]: row["directory_id"] for row in commands.json("quorum", "status")["voters"]}
    assert new.keys() == old.keys() and [i for i in new if new[i] != old[i]] == [voter]
    barnabas_cluster.wait_until_healthy()


class Restarter:
    """What an operator's restart command is on this host: a word in a pipe, which the owner of the processes obeys."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self._cluster = cluster
        self._pipe = directory / "restart"
        self.restarted: list[int] = []
        self._thread = threading.Thread(target=self._serve)

    @property
    def command(self) -> str:
        """Blocks until the node has been restarted."""
        return f"echo {{id}} > {self._pipe} && cat {self._pipe}.done > /dev/null"

    def __enter__(self) -> Restarter:
        os.mkfifo(self._pipe)
        os.mkfifo(f"{self._pipe}.done")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.write_text("end\n")
        self._thread.join(30)

    def _serve(self) -> None:
        while (word := self._pipe.read_text().strip()) != "end":
            self._cluster.restart(int(word))
            self.restarted.append(int(word))
            Path(f"{self._pipe}.done").write_text("done\n")


def barnabas_admin_version() -> str:
    return importlib.metadata.version("barnabas")


class ServedDirectory:
    """What an operator's restart command is on this host: files named by node in a directory, whose nodes somebody restarts."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.command = f"touch {directory}/{{id}}; while [ -e {directory}/{{id}} ]; do sleep 0.1; done"
        self.restarted: list[int] = []
        self._cluster = cluster
        self._directory = directory
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> ServedDirectory:
        self._directory.mkdir()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._is_ended.wait(0.2):
            for each in sorted(self._directory.iterdir()):
                self._cluster.restart(int(each.name))
                self.restarted.append(int(each.name))
                each.unlink()


def test_a_host_is_drained_and_rolled_at_once_where_its_partitions_bear_it(tmp_path: Path) -> None:
    with LocalCluster(
        tmp_path / "cluster", nodes=3, base_port=find_base_port(), roles="separate", brokers_per_host=2
    ) as cluster:
        commands = Cli(cluster.admin_addresses)
        commands.run("topic", "create", "apart", "-p", "4", "-r", "2")
        commands.run("topic", "create", "shared", "-p", "1", "-r", "2")
        done = commands.run("topic", "reassign", "apply", "shared:0=1,2", "--wait")
        assert b"shared:0 has 2 replicas on host host-1" in done.stderr

        drained = commands.json("broker", "drain", "--host", "host-1")
        assert (drained["host"], [row["broker"] for row in drained["brokers"]]) == ("host-1", [1, 2])
        assert drained["brokers"][1]["kept"] == 1, "nobody else has a replica of shared"
        cluster.wait_until(
            lambda: states(commands) == {1: "maintenance", 2: "maintenance", 3: "active"}, timeout_s=60, what="drained"
        )
        assert b"no broker names host host-9" in commands.run("broker", "drain", "--host", "host-9", status=3).stderr
        commands.run("broker", "drain", "1", "--host", "host-1", status=2)
        commands.run("broker", "undrain", "--host", "host-1")
        cluster.wait_until(lambda: set(states(commands).values()) == {"active"}, timeout_s=60, what="undrained")

        def steps() -> list[list[int]]:
            rows = commands.json("cluster", "roll", "1", "2", "3", "--dry")["order"]
            return [[row["node"] for row in rows if row["step"] == step] for step in range(1, rows[-1]["step"] + 1)]

        assert steps() == [[1], [2], [3]], "shared would have no leader"
        commands.run("topic", "reassign", "apply", "shared:0=1,3", "--wait")
        cluster.wait_until(lambda: steps() == [[1, 2], [3]], timeout_s=60, what="apart")
        with ServedDirectory(cluster, tmp_path / "asked") as served:
            rolled = commands.run(
                *("cluster", "roll", "1", "2", "3", "--yes", "-o", "json", "--restart-command", served.command)
            )
        assert b"1 to 2 of 3: restarting host host-1 (brokers 1, 2 at once)" in rolled.stderr
        assert b"3 of 3: restarting node 3 (broker of host host-2)" in rolled.stderr
        assert json.loads(rolled.stdout)["steps"] == [[1, 2], [3]]
        assert sorted(served.restarted) == [1, 2, 3] and served.restarted[2] == 3
