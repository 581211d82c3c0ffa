"""kcat, as Debian packages it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest

from tests.compat.samples import COMPRESSIONS, DEADLINE_S

KCAT = shutil.which("kcat")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.tools,
    pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian package kcat)"),
]


def kcat(bootstrap: str, *arguments: str, given: bytes = b"") -> bytes:
    """Run kcat to its end and return what it printed; fails when it does."""
    assert KCAT is not None
    done = subprocess.run(
        [KCAT, "-b", bootstrap, *arguments], input=given, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_the_cluster_is_listed(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(3)
    listing = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    assert sorted(broker["name"] for broker in listing["brokers"]) == sorted(bootstrap.split(","))
    (listed,) = listing["topics"]
    assert [partition["partition"] for partition in listed["partitions"]] == [0, 1, 2]
    ids = {broker["id"] for broker in listing["brokers"]}
    for partition in listed["partitions"]:
        assert partition["leader"] in ids
        assert {replica["id"] for replica in partition["replicas"]} == ids


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_make_the_round_trip(bootstrap: str, make_topic: Callable[..., str], compression: str) -> None:
    topic = make_topic()
    lines = [f"key-{n}:value {n} {'x' * 200}" for n in range(500)]
    produce = ("-P", "-t", topic, "-K", ":", "-H", "origin=kcat", "-z", compression, "-X", "acks=all")
    kcat(bootstrap, *produce, given="\n".join(lines).encode())
    read = kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o|%k:%s|%h\n").decode()
    assert read.splitlines() == [f"{offset}|{line}|origin=kcat" for offset, line in enumerate(lines)]


def test_null_keys_and_values_make_the_round_trip(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    kcat(bootstrap, "-P", "-t", topic, "-K", ":", "-Z", given=b":no key\nno value:\n")
    read = kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J").decode()
    records = [json.loads(line) for line in read.splitlines()]
    assert [(record["key"], record["payload"]) for record in records] == [(None, "no key"), ("no value", None)]


def test_a_group_reads_everything_once_and_then_nothing(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(4)
    lines = [f"line {n}" for n in range(400)]
    kcat(bootstrap, "-P", "-t", topic, given="\n".join(lines).encode())
    settings = ("-X", "auto.offset.reset=earliest", "-e", "-q", "-f", "%s\n")
    first = kcat(bootstrap, *settings, "-G", group, topic).decode().splitlines()
    assert Counter(first) == Counter(lines)
    assert kcat(bootstrap, *settings, "-G", group, topic) == b""


def test_an_offset_is_found_by_time(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    kcat(bootstrap, "-P", "-t", topic, given=b"one\ntwo\nthree")
    answer = kcat(bootstrap, "-Q", "-t", f"{topic}:0:0").decode()
    assert answer.strip() == f"{topic} [0] offset 0"
