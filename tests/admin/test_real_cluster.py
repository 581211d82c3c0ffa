"""The commands against a real cluster: records in and out, groups, health while a node is dead, data across runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import PORTS_SPAN, find_base_port
from barnabas_admin.main import cli
from tests.admin.conftest import is_alive
from tests.broker.metrics.claimed import CLAIMED, reported
from tests.support.clusters import ForkedCluster

pytestmark = pytest.mark.cluster

BARNABAS = [sys.executable, "-m", "barnabas_admin.main"]
TIMEOUT_S = 60


class Done(NamedTuple):
    """How a command ended."""

    stdout: bytes
    stderr: bytes


class Cli:
    """Runs commands: in this process (an interpreter costs half a second), or in one of their own when they read stdin."""

    def __init__(self, admin: str) -> None:
        self._environment = {"BARNABAS_ADMIN": admin, "BARNABAS_BROKERS": ""}

    def run(self, *arguments: str, stdin: bytes | None = None, status: int = 0) -> Done:
        if stdin is None:
            result = CliRunner().invoke(cli, list(arguments), env=self._environment, catch_exceptions=False)
            assert result.exit_code == status, result.output
            return Done(result.stdout_bytes, result.stderr_bytes)
        done = subprocess.run(
            [*BARNABAS, *arguments],
            env=os.environ | self._environment,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == status, done.stderr.decode()
        return Done(done.stdout, done.stderr)

    def json(self, *arguments: str, stdin: bytes | None = None, status: int = 0) -> dict[str, Any]:
        found = json.loads(self.run(*arguments, "-o", "json", stdin=stdin, status=status).stdout)
        assert found.pop("api_version") == "v1"
        return dict(found)

    def consumed(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run("topic", "consume", *arguments, "-o", "json").stdout.splitlines()]


@pytest.fixture
def commands(barnabas_cluster: LocalCluster) -> Cli:
    return Cli(barnabas_cluster.admin_addresses)


def test_a_topic_from_its_making_to_its_end(commands: Cli) -> None:
    (created,) = commands.json("topic", "create", "life", "-p", "2", "-c", "retention.ms=60000")["topics"]
    assert (created["status"], created["partitions"], created["replication_factor"]) == ("created", 2, 3)
    commands.run("topic", "create", "life", status=3)
    commands.run("topic", "create", "life", "--if-not-exists")
    bad = commands.run("topic", "create", "odd", "-c", "retention.ms=soon", "-o", "json", status=1)
    assert json.loads(bad.stderr.splitlines()[-1])["error"]["name"] == "INVALID_CONFIG"
    assert "life" in [topic["name"] for topic in commands.json("topic", "list")["topics"]]
    commands.run("topic", "alter", "life", "-c", "segment.ms=1000", "-d", "retention.ms")
    overrides = commands.json("topic", "config", "life", "--overrides")["configs"]
    assert [(row["key"], row["value"], row["source"]) for row in overrides] == [("segment.ms", "1000", "topic")]
    assert commands.json("topic", "add-partitions", "life", "--num", "1")["partitions"] == 3
    (described,) = commands.json("topic", "describe", "life")["topics"]
    assert [sorted(part["isr"]) for part in described["partitions"]] == [[1, 2, 3]] * 3
    assert [(part["log_start_offset"], part["high_watermark"]) for part in described["partitions"]] == [(0, 0)] * 3
    commands.run("topic", "delete", "life", "--yes")
    commands.run("topic", "describe", "life", status=3)


def test_acls_users_and_quotas_are_kept_shown_and_deleted(commands: Cli) -> None:
    alice = ("--principal", "User:alice")
    commands.run("acl", "create", "--allow", "User:alice", "--operation", "read", "--resource", "topic", "--name", "t")
    (entry,) = commands.json("acl", "list", *alice)["acls"]
    assert (entry["principal"], entry["operation"], entry["permission"]) == ("User:alice", "read", "allow")
    refused = commands.run(
        "acl", "create", "--allow", "alice", "--operation", "read", "--resource", "cluster", status=1
    )
    assert b"User:alice" in refused.stderr
    refused = commands.run("acl", "delete", *alice, status=2)
    assert (
        refused.stdout == b""
        and b"User:alice" in refused.stderr
        and b"this deletes 1 ACL: add --yes to do it" in refused.stderr
    )
    assert commands.json("acl", "delete", *alice, "--yes")["deleted"]
    assert commands.json("acl", "list", *alice)["acls"] == []

    assert b"password" in commands.run("user", "create", "alice", stdin=b"", status=1).stderr
    commands.run("user", "create", "alice", stdin=b"secret\n")
    listed = commands.run("user", "list", "-o", "json").stdout
    (user,) = json.loads(listed)["users"]
    assert (user["user"], user["mechanism"]) == ("alice", "SCRAM-SHA-512") and b"secret" not in listed
    assert b"add --yes to do it" in commands.run("user", "delete", "alice", stdin=b"", status=2).stderr
    commands.run("user", "delete", "alice", "--yes")
    assert b"alice" in commands.run("user", "delete", "alice", "--yes", status=3).stderr

    commands.run("quota", "set", "producer_byte_rate=1000", "--user", "alice")
    expected = [{"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1000.0}}]
    assert commands.json("quota", "list")["quotas"] == expected
    assert b"the keys are" in commands.run("quota", "set", "producer_bite_rate=1", "--user", "alice", status=1).stderr
    commands.run("quota", "set", "producer_byte_rate=", "--user", "alice")
    assert commands.json("quota", "list")["quotas"] == []


def test_the_metadata_log_is_read_and_compared_from_its_empty_beginning(commands: Cli) -> None:
    commands.run("topic", "create", "logged")
    lines = [json.loads(line) for line in commands.run("quorum", "log", "-o", "json").stdout.splitlines()]
    (made,) = [line for line in lines if line["kind"] == "TopicRecord" and line["fields"]["name"] == "logged"]
    found = commands.json("quorum", "diff", "-1")
    assert found["from"] == -1 and found["to"] >= made["offset"]
    assert [change["entity"] for change in found["changes"] if change["entity"].startswith("topic logged (")] != []
    commands.run("quorum", "diff", "-2", status=2)


def test_a_topic_that_is_not_there_is_reported_with_what_shows_the_topics(commands: Cli) -> None:
    started_s = time.monotonic()
    assert b"`barnabas topic list`" in commands.run("topic", "consume", "absent", status=3).stderr
    assert time.monotonic() - started_s < 4, "who mistyped a name does not wait as a long-lived client would"


def test_a_mistyped_name_makes_no_topic_unless_it_is_meant(commands: Cli) -> None:
    refused = commands.run("topic", "produce", "mistyped", stdin=b"lost\n", status=3)
    assert b"topic 'mistyped' does not exist" in refused.stderr and b"--create" in refused.stderr
    assert "mistyped" not in {topic["name"] for topic in commands.json("topic", "list")["topics"]}
    done = commands.run("topic", "produce", "mistyped", "--create", stdin=b"kept\n")
    assert done.stderr.startswith(b"mistyped: created with ") and b"1 record written" in done.stderr
    again = commands.run("topic", "produce", "mistyped", "--create", stdin=b"too\n")
    assert b"created" not in again.stderr
    assert {record["value"] for record in commands.consumed("mistyped", "-e")} == {"kept", "too"}


def test_lines_go_in_and_come_out(commands: Cli) -> None:
    commands.run("topic", "create", "lines", "-p", "3")
    lines = b"".join(b"k%d|value %d\n" % (number % 7, number) for number in range(2000))
    written = commands.json("topic", "produce", "lines", "-k", "|", "-H", "source=test", "-z", "lz4", stdin=lines)
    assert written["records"] == 2000
    for nothing_or_something in (b"", b"lost\n"):
        refused = commands.run("topic", "produce", "lines", "-p", "99", stdin=nothing_or_something, status=3)
        assert b"lines has no partition 99" in refused.stderr
    records = commands.consumed("lines", "-e")
    assert sorted(record["value"] for record in records) == sorted(f"value {number}" for number in range(2000))
    assert records[0]["headers"] == [{"name": "source", "value": "test"}]
    by_key: dict[str, list[int]] = {}
    for record in records:
        by_key.setdefault(record["key"], []).append(int(record["value"].split()[1]))
    assert all(values == sorted(values) for values in by_key.values())
    first = commands.consumed("lines", "-p", "0", "--from-beginning", "-n", "1")
    assert (first[0]["partition"], first[0]["offset"]) == (0, 0)
    assert len(commands.consumed("lines", "-p", "0", "--offset", "-5", "-e")) == 5
    assert commands.consumed("lines", "--offset", "end", "-e") == []
    beyond = commands.run("topic", "consume", "lines", "-p", "0", "--offset", "999999", "-e")
    assert beyond.stdout == b"" and b"lines-0: offset 999999 is not there; going on at the nearest" in beyond.stderr
    at_ms = min(record["timestamp_ms"] for record in records)
    assert len(commands.consumed("lines", "--offset", f"@{at_ms}", "-e")) == 2000
    assert commands.run("topic", "consume", "lines", "--offset", "@4102444800000", "-e").stdout == b""


def test_what_was_consumed_can_be_produced_again(commands: Cli, tmp_path: Path) -> None:
    for name in ("original", "copy"):
        commands.run("topic", "create", name, "-p", "1")
    commands.run("topic", "produce", "original", "-k", ":", stdin=b"a:1\n\xff:\xfe\x00\nb:2")
    kept = tmp_path / "records.jsonl"
    lines = commands.run("topic", "consume", "original", "-e", "-o", "json").stdout
    assert commands.run("topic", "consume", "original", "-e", "-o", "json", "--to-file", str(kept)).stdout == b""
    assert kept.read_bytes() == lines
    commands.run("topic", "produce", "copy", "--input", "jsonl", "--from-file", str(kept))
    names = ("offset", "timestamp_ms", "key", "key_base64", "value", "value_base64")
    assert [[record.get(name) for name in names] for record in commands.consumed("copy", "-e")] == [
        [record.get(name) for name in names] for record in commands.consumed("original", "-e")
    ]


def test_keys_go_where_librdkafka_sends_them(commands: Cli, barnabas_cluster: LocalCluster) -> None:
    commands.run("topic", "create", "placed", "-p", "5")
    producer = Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers, "partitioner": "murmur2_random"})
    keys = [f"key-{number}" for number in range(60)]
    for key in keys:
        producer.produce("placed", key=key, value="librdkafka")
    producer.flush(30)
    commands.run("topic", "produce", "placed", "-k", ":", stdin="".join(f"{key}:ours\n" for key in keys).encode())
    places = [{(record["key"], record["partition"]) for record in commands.consumed("placed", "-e")}]
    assert len(places[0]) == len(keys)


def test_a_group_shows_members_offsets_and_lag(commands: Cli, barnabas_cluster: LocalCluster) -> None:
    commands.run("topic", "create", "grouped", "-p", "2")
    commands.run("topic", "produce", "grouped", "-p", "0", stdin=b"1\n2\n3\n4\n5\n")
    commands.run("group", "describe", "readers", status=3)
    consumer = Consumer(
        {
            "bootstrap.servers": barnabas_cluster.bootstrap_servers,
            "group.id": "readers",
            "client.id": "reader-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["grouped"])
    try:
        for _ in range(3):
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
        consumer.commit(message, asynchronous=False)
        found = commands.json("group", "describe", "readers")
        assert (found["state"], found["protocol_type"], found["total_lag"]) == ("Stable", "consumer", 2)
        (member,) = found["members"]
        assert member["client"] == "reader-1"
        assert member["partitions"] == [{"topic": "grouped", "partition": 0}, {"topic": "grouped", "partition": 1}]
        (row,) = [row for row in found["partitions"] if row["partition"] == 0]
        assert (row["committed"], row["end"], row["lag"], row["client"]) == (3, 5, 2, "reader-1")
        listed = {group["group"]: group for group in commands.json("group", "list")["groups"]}
        assert listed["readers"]["state"] == "Stable"
    finally:
        consumer.close()
    found = commands.json("group", "describe", "readers")
    assert (found["state"], found["members"], found["total_lag"]) == ("Empty", [], 2)


def test_every_node_sees_the_quorum_as_its_leader_does(barnabas_cluster: LocalCluster) -> None:
    for node in barnabas_cluster.nodes.values():
        found = Cli(f"127.0.0.1:{node.admin_port}").json("quorum", "replicas")
        assert sorted((row["id"], row["log_end_offset"] is not None) for row in found["replicas"]) == [
            (1, True),
            (2, True),
            (3, True),
        ]
        assert [row["id"] for row in found["replicas"] if row["role"] == "leader"] == [found["leader_id"]]


def test_the_metadata_of_all_nodes_is_compared_read_and_told_apart(commands: Cli) -> None:
    commands.run("topic", "create", "reported", "-p", "1")
    report = commands.json("quorum", "verify", "--recompute")
    assert report["is_consistent"] and {row["state"] for row in report["nodes"]} == {"agrees"}
    assert {row["node"] for row in report["nodes"]} == {1, 2, 3}
    assert len({row["hash"] for row in report["nodes"]}) == 1

    log = commands.run("quorum", "log", "-n", "1000", "-o", "json").stdout.splitlines()
    entries = [json.loads(line) for line in log]
    made = next(each for each in entries if each["kind"] == "TopicRecord" and each["fields"]["name"] == "reported")
    compared = next(each for each in entries if each["offset"] == report["offset"])
    assert compared["kind"] == "ImageHashRecord"
    (only,) = commands.run("quorum", "log", "--from", str(made["offset"]), "-n", "1").stdout.decode().splitlines()
    assert "TopicRecord" in only and "name=reported" in only

    before, after = str(made["offset"] - 1), str(report["offset"])
    changes = commands.json("quorum", "diff", before, after)["changes"]
    assert {(each["change"], each["entity"].split(" (")[0]) for each in changes} >= {
        ("added", "topic reported"),
        ("added", "partition reported-0"),
    }
    assert b"topic reported" in commands.run("quorum", "diff", before, after).stdout
    refused = commands.run("quorum", "diff", after, before, status=1)
    assert b"FROM must be below TO" in refused.stderr

    nodes = commands.json("quorum", "quarantine", "list")["nodes"]
    assert [node["is_blocked"] for node in nodes] == [False] * 3
    commands.run("quorum", "quarantine", "show", "1", status=3)
    commands.run("quorum", "quarantine", "sign-off", "1", "--reason", "r", "--yes", status=1)


def test_the_log_of_a_cluster_is_dumped_from_its_files(barnabas_cluster: LocalCluster, commands: Cli) -> None:
    commands.run("topic", "create", "dumped", "--if-not-exists")
    done = subprocess.run(
        [*BARNABAS, "log", "dump", "--metadata", str(barnabas_cluster.directory / "node-1"), "-o", "json"],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert {"LeaderChange", "RegisterBrokerRecord", "TopicRecord", "KRaftVoters"} <= set(kinds)


def test_every_brokers_directories_tell_their_disks_and_replicas(commands: Cli) -> None:
    commands.run("topic", "create", "on-disk", "-p", "3", "-r", "1", "--if-not-exists")
    rows = commands.json("broker", "logdirs")["log_dirs"]
    assert [row["broker"] for row in rows] == [1, 2, 3]
    assert all(row["state"] == "online" and 0 < row["free_bytes"] <= row["total_bytes"] for row in rows)
    assert all(row["replicas"] >= 1 for row in rows)
    assert b"broker 9 is not registered" in commands.run("broker", "logdirs", "9", status=3).stderr


@pytest.mark.barnabas_topic(partitions=3, replicas=3)
def test_orders_survive_a_broker(barnabas_cluster: LocalCluster, barnabas_topic: str) -> None:
    """The example of docs/testing.md."""
    producer = Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers, "enable.idempotence": True})
    producer.produce(barnabas_topic, b"first")
    assert producer.flush(10) == 0
    barnabas_cluster.kill(2)
    producer.produce(barnabas_topic, b"second")
    assert producer.flush(30) == 0


def test_health_names_a_dead_node_and_heals(commands: Cli, barnabas_cluster: LocalCluster) -> None:
    assert commands.json("cluster", "health")["healthy"]
    barnabas_cluster.kill(3)
    reasons = ""

    def is_noticed() -> bool:
        nonlocal reasons
        arguments = ["cluster", "health", "--admin", barnabas_cluster.admin_addresses, "-o", "json"]
        done = CliRunner().invoke(cli, arguments)
        reasons = done.stdout
        return done.exit_code == 10 and "broker_down" in reasons

    barnabas_cluster.wait_until(is_noticed, what="the death of node 3 being noticed")
    assert json.loads(reasons)["brokers_fenced"] == [3]
    barnabas_cluster.heal()
    commands.run("cluster", "health")


def test_health_tells_that_nobody_leads_when_a_majority_is_gone(tmp_path: Path) -> None:
    """Who is left names the leader of its epoch for ever: without a majority there is no other epoch."""
    with ForkedCluster(tmp_path, nodes=3, base_port=find_base_port()) as cluster:
        leader = Cli(cluster.admin_addresses).json("quorum", "status")["leader_id"]
        other, left = (node for node in cluster.nodes if node != leader)
        cluster.kill(leader)
        cluster.kill(other)
        address = f"127.0.0.1:{cluster.nodes[left].admin_port}"
        with AdminClient(address, timeout_s=TIMEOUT_S) as admin:
            cluster.wait_until(lambda: "no_controller" in admin.describe_health().reasons, what="no_controller")
            until_s = time.monotonic() + 4  # two time-outs of its fetches, after which it looks for the leader anew
            while time.monotonic() < until_s:
                assert "no leader of the metadata quorum is known" in cluster.http_get(left, "/readyz")[1]
                assert "\nbarnabas_raft_leader_id -1.0\n" in cluster.http_get(left, "/metrics")[1]
                time.sleep(0.02)
            assert "no_controller" in admin.describe_health().reasons
        assert "barnabas explain leader" in Cli(address).json("cluster", "health", status=10)["next"]
        cluster.kill(left)


def test_probes_and_metrics_answer_on_every_node(barnabas_cluster: LocalCluster) -> None:
    for node_id in barnabas_cluster.nodes:
        assert barnabas_cluster.http_get(node_id, "/livez") == (200, "ok\n")
        assert barnabas_cluster.http_get(node_id, "/readyz") == (200, "ok\n")
        status, page = barnabas_cluster.http_get(node_id, "/metrics")
        assert status == 200
        assert f'barnabas_node_info{{cluster_id="{barnabas_cluster.cluster_id}"' in page
        assert re.search(r'^barnabas_broker_heartbeats_total\{result="sent"\} [1-9]', page, re.MULTILINE)
        assert "\nbarnabas_raft_recovered_twice 0.0\n" in page


def test_a_live_cluster_tells_every_metric_that_is_claimed(commands: Cli, barnabas_cluster: LocalCluster) -> None:
    commands.run("topic", "create", "measured", "-p", "3", "-c", "max.message.bytes=500")
    producer = Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(30):
        producer.produce("measured", value=str(number), partition=number % 3)
    assert producer.flush(30) == 0
    refusing = Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers})
    refusing.produce("measured", value=b"x" * 1000, partition=0)
    assert refusing.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": barnabas_cluster.bootstrap_servers,
            "group.id": "listeners",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["measured"])
    try:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        consumer.commit(message, asynchronous=False)
        pages = {node: barnabas_cluster.http_get(node, "/metrics")[1] for node in barnabas_cluster.nodes}
    finally:
        consumer.close()
    page = {name: claim for text in pages.values() for name, claim in reported(text).items()}
    assert {name: page.get(name) for name in CLAIMED} == CLAIMED
    everywhere = "\n".join(pages.values())
    for line in (
        r'request_errors_total\{api="Produce",error="MESSAGE_TOO_LARGE"\} 1.0',
        r'group_state_info\{group="listeners",protocol="range",state="Stable"\} 1.0',
        r'group_members\{group="listeners"\} 1.0',
        r'group_rebalances_total\{group="listeners",reason="join"\} 1.0',
        r'group_commits_total\{group="listeners",result="done"\} 1.0',
        r'controller_event_queue_seconds_count\{phase="wait"\} [1-9]',
        r"raft_election_seconds_count [1-9]",
        r"raft_records_appended_total [1-9]",
        r"raft_records_fetched_total [1-9]",
        r"raft_append_seconds_count [1-9]",
        r"raft_voted_id [1-3].0",
        r"replica_fetch_seconds_count [1-9]",
        r"producer_ids [1-9]",
    ):
        assert re.search(f"^barnabas_{line}", everywhere, re.MULTILINE), line


def test_calls_of_every_admin_service_are_counted(commands: Cli, barnabas_cluster: LocalCluster) -> None:
    commands.run("cluster", "info")
    commands.run("explain", "leader")
    commands.run("quorum", "log", "-n", "1")
    commands.run("quorum", "verify")
    pages = "".join(barnabas_cluster.http_get(node_id, "/metrics")[1] for node_id in barnabas_cluster.nodes)
    for method in ("DescribeCluster", "Explain", "ReadLog", "DescribeImage"):
        assert f'barnabas_admin_requests_total{{code="NONE",method="{method}"}}' in pages
        assert f'barnabas_admin_request_seconds_count{{method="{method}"}}' in pages


@pytest.fixture
def dev_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_CONTEXT", str(tmp_path / "context.json"))
    monkeypatch.delenv("BARNABAS_ADMIN", raising=False)


@pytest.mark.usefixtures("dev_environment")
def test_dev_keeps_its_data_on_another_port(tmp_path: Path) -> None:
    port = find_base_port()
    barnabas = f"{sys.executable} -m barnabas_admin.main"

    def dev(first_port: int, command: str) -> subprocess.CompletedProcess[str]:
        arguments = ["dev", "-n", "3", "--data", str(tmp_path / "data"), "--port", str(first_port), "--exec", command]
        done = subprocess.run(
            [*BARNABAS, *arguments], capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done

    # Without --admin: the command finds the cluster by BARNABAS_ADMIN, and by the context when that is gone.
    dev(
        port,
        f"echo kept | {barnabas} topic produce memory --create && env -u BARNABAS_ADMIN -u BARNABAS_BROKERS {barnabas} cluster info",
    )
    moved = [f"127.0.0.1:{port + PORTS_SPAN // 8 + 20 + index}" for index in range(3)]
    # A voter tells its new address by itself, one after the other, each once per fetch time-out.
    seen = " && ".join(f"grep -qF '\"{endpoint}\"' status" for endpoint in moved)
    asked = f"cd {tmp_path}; for _ in $(seq 60); do {barnabas} quorum status -o json > status; {seen} && break; sleep 0.3; done"
    again = dev(port + PORTS_SPAN // 8, f"{barnabas} topic consume memory -n 1 && ({asked}; cat status)")
    kept, status = again.stdout.splitlines()
    assert kept == "kept"
    assert {voter["endpoint"] for voter in json.loads(status)["voters"]} == set(moved)


@pytest.mark.usefixtures("dev_environment")
def test_nodes_stop_in_order_when_their_dev_is_killed_and_the_directory_is_free_again(tmp_path: Path) -> None:
    words = ["dev", "-n", "2", "--data", str(tmp_path / "d"), "--port", str(find_base_port())]
    with subprocess.Popen([*BARNABAS, *words, "-o", "json"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        nodes = json.loads(process.stdout.readline())["nodes"]
        process.kill()
    until_s = time.monotonic() + TIMEOUT_S
    while left := [node["pid"] for node in nodes if is_alive(node["pid"])]:
        assert time.monotonic() < until_s, f"nodes {left} outlive `barnabas dev`"
        time.sleep(0.05)
    assert all("has stopped cleanly" in Path(node["log"]).read_text().splitlines()[-1] for node in nodes)
    subprocess.run([*BARNABAS, *words, "--exec", "true"], capture_output=True, check=True, timeout=TIMEOUT_S)


def test_a_stop_that_is_asked_for_twice_at_once_is_in_order(tmp_path: Path) -> None:
    """As `timeout` does, and whatever signals a process and its whole group."""
    with LocalCluster(tmp_path, nodes=1, base_port=find_base_port()) as cluster:
        (node,) = cluster.nodes.values()
        assert node.process is not None
        until_s = time.monotonic() + 0.8
        while node.process.poll() is None and time.monotonic() < until_s:  # the process's last moments too
            node.process.terminate()
            time.sleep(0.002)
        # The last signal may meet an interpreter that has nothing left to do.
        assert node.process.wait(TIMEOUT_S) in (0, -signal.SIGTERM)
        assert "has stopped cleanly" in cluster.last_words(node.id).splitlines()[-1]


@pytest.mark.usefixtures("dev_environment")
@pytest.mark.parametrize("output", ["text", "json"])
def test_dev_knows_the_key_that_a_mistyped_one_means(tmp_path: Path, output: str) -> None:
    words = ["dev", "--data", str(tmp_path / "d"), "--port", str(find_base_port()), "-o", output]
    words += ["--set", "log.segment.byts=1", "--exec", "true"]
    done = subprocess.run([*BARNABAS, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2 and "did you mean log.segment.bytes?" in done.stderr, done
    assert not (tmp_path / "d").exists()
    if output == "json":
        assert json.loads(done.stderr)["error"]["name"] == "INVALID_REQUEST"


def test_storage_verbs_speak_through_the_server(tmp_path: Path) -> None:
    commands = Cli("")
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=controller\nnode.id=7\nlisteners=CONTROLLER://127.0.0.1:19999\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:19999\nlog.dirs={tmp_path}/data\n"
    )
    cluster_id = commands.json("storage", "random-uuid")["uuid"]
    refused = commands.run("storage", "info", "-c", str(file), status=1)
    assert b"storage format" in refused.stderr
    commands.run("storage", "format", "-c", str(file), "--cluster-id", cluster_id, "--standalone")
    found = commands.json("storage", "info", "-c", str(file))
    assert (found["cluster_id"], found["node_id"]) == (cluster_id, 7)
    file.write_text(file.read_text() + "num.io.threads=8\n")
    assert b"num.io.threads is not a key" in commands.run("storage", "info", "-c", str(file)).stderr
    again = commands.run("storage", "format", "-c", str(file), "--cluster-id", cluster_id, "--standalone", status=1)
    warning, error = again.stderr.splitlines()
    assert warning.startswith(b"num.io.threads is not a key") and error.startswith(b"error: INVALID_REQUEST: /")
    assert b"--ignore-formatted" in again.stderr
