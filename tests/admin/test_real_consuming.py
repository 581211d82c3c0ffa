"""What consume shows and what produce takes, against a real cluster: forms, places, filters, several topics, groups."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from barnabas_admin.local_cluster import LocalCluster
from tests.admin.test_real_cluster import BARNABAS, Cli

pytestmark = pytest.mark.cluster


@pytest.fixture
def commands(barnabas_cluster: LocalCluster) -> Cli:
    return Cli(barnabas_cluster.admin_addresses)


@pytest.mark.barnabas_topic(partitions=2)
def test_records_are_shown_as_they_are_asked_for(
    commands: Cli, barnabas_cluster: LocalCluster, barnabas_topic: str
) -> None:
    began_ms = (int(time.time()) - 3600) * 1000  # of today: retention takes what is older than a week
    producer = Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers})
    for number in range(6):
        producer.produce(
            barnabas_topic,
            key=b"k%d" % number,
            value=b"v%d" % number,
            headers=[("region", b"eu" if number % 2 else b"us")],
            partition=number % 2,
            timestamp=began_ms + number * 1000,
        )
    assert producer.flush(30) == 0

    def shown(*arguments: str) -> list[str]:
        lines = commands.run("topic", "consume", barnabas_topic, "-e", *arguments).stdout.decode().splitlines()
        return sorted(lines)

    assert shown("-f", r"%p/%o %k=%s %T %h\n", "-p", "1") == [
        f"1/0 k1=v1 {began_ms + 1000} region=eu",
        f"1/1 k3=v3 {began_ms + 3000} region=eu",
        f"1/2 k5=v5 {began_ms + 5000} region=eu",
    ]
    assert shown("--keys", "--headers", "--offsets", "-p", "0", "-n", "1") == ["0\t0\tregion=us\tk0\tv0"]
    assert shown("--filter-header", "region=e*", "--filter-key", "k[13]") == ["v1", "v3"]
    assert shown("--filter-value", "v5", "-n", "1") == ["v5"]
    assert shown("--offset", f"@{began_ms + 1000}", "--until", f"@{began_ms + 4000}") == ["v1", "v2", "v3"]
    assert shown("--offset", "-1") == ["v4", "v5"]
    assert shown("--until", "1") == ["v0", "v1"]
    pattern = barnabas_topic[:-4] + ".{4}"
    done = commands.run("topic", "consume", "-r", pattern, "-e", "-n", "2").stdout.decode().splitlines()
    assert [line.split("\t")[0] for line in done] == [barnabas_topic] * 2, (
        "the topic is named where there may be several"
    )
    commands.run("topic", "consume", "-r", "no such.*", "-e", status=3)
    commands.run("topic", "consume", barnabas_topic, "-f", "%y", status=2)


def test_files_are_produced_with_keys_and_headers(commands: Cli, barnabas_topic: str, tmp_path: Path) -> None:
    whole, lines = tmp_path / "whole", tmp_path / "lines"
    whole.write_bytes(b"one\nrecord\n")
    lines.write_text("a=1|k:v\n|l:w\n")
    commands.run("topic", "produce", barnabas_topic, "-f", str(whole), "--whole", "-K", "name", "-H", "x=y")
    commands.run("topic", "produce", barnabas_topic, "-f", str(lines), "--headers-separator", "|", "-k", ":")
    found = [(r["key"], r["value"], r["headers"]) for r in commands.consumed(barnabas_topic, "-e")]
    assert found == [
        ("name", "one\nrecord\n", [{"name": "x", "value": "y"}]),
        ("k", "v", [{"name": "a", "value": "1"}]),
        ("l", "w", []),
    ]


@pytest.mark.barnabas_topic(partitions=4)
def test_a_group_shares_partitions_with_another_client_and_commits_what_was_printed(
    commands: Cli, barnabas_cluster: LocalCluster, barnabas_topic: str
) -> None:
    producer = Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers})
    for number in range(40):
        producer.produce(barnabas_topic, b"%d" % number, partition=number % 4)
    assert producer.flush(30) == 0
    first = commands.run("topic", "consume", barnabas_topic, "-g", "readers-cli", "-n", "15").stdout.split()
    rest = commands.run("topic", "consume", barnabas_topic, "-g", "readers-cli", "-e").stdout.split()
    assert (len(first), len(rest)) == (15, 25)
    assert sorted(map(int, first + rest)) == list(range(40)), "each record once"
    assert commands.json("group", "lag", "readers-cli")["groups"][0]["lag"] == 0

    other = Consumer(
        {
            "bootstrap.servers": barnabas_cluster.bootstrap_servers,
            "group.id": "readers-cli",
            "partition.assignment.strategy": "range",
        }
    )
    other.subscribe([barnabas_topic])
    deadline = time.monotonic() + 60
    while len(other.assignment()) < 4:
        other.poll(0.1)
        assert time.monotonic() < deadline
    command = [*BARNABAS, "topic", "consume", barnabas_topic, "-g", "readers-cli", "-o", "json"]
    process = subprocess.Popen(
        [*command, "--admin", barnabas_cluster.admin_addresses], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        while len(other.assignment()) != 2:
            other.poll(0.1)
            assert time.monotonic() < deadline and process.poll() is None
        mine = {partition.partition for partition in other.assignment()}
        for index in range(4):
            producer.produce(barnabas_topic, b"new", partition=index)
        producer.flush(30)
        assert process.stdout is not None
        records = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert {record["partition"] for record in records} == {0, 1, 2, 3} - mine
    finally:
        process.terminate()
        process.wait(30)
        other.close()
