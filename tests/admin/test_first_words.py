"""What newcomers and tools met on 1c3bcee, asked of this tree again: a table of point, before and after, which `pytest -s` prints."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console
from rich.table import Table

import barnabas
from barnabas_admin.local_ports import HOST, find_base_port
from barnabas_broker.metrics.http import HttpServer
from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.network.listener import KafkaServer, ListenAddress
from barnabas_broker.node.properties import read_properties
from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.records.batch import Record, build_batch, header_name, read_header
from tests.support.listener import make_services

confluent = pytest.importorskip("confluent_kafka")
confluent_admin = pytest.importorskip("confluent_kafka.admin")
ConfigResource = confluent_admin.ConfigResource
TOPIC, BROKER = ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER
YEAR_10000_MS = 253_402_300_800_000
WAIT_S = 20
CLI = Path(sys.executable).with_name("barnabas")


class World(NamedTuple):
    """What the points are asked of."""

    broker: barnabas.Broker
    path: Path

    def cli(self, *arguments: str, given: bytes = b"", **environment: str) -> str:
        """What `barnabas` prints, errors too."""
        command = [str(CLI), *arguments]
        own = {"BARNABAS_CONTEXT": str(self.path / "none"), "XDG_CONFIG_HOME": str(self.path), "COLUMNS": "200"}
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=60, env=os.environ | own | environment, check=False
        )
        return (done.stdout + done.stderr).decode(errors="replace")

    @property
    def client(self) -> contextlib.closing[BlockingCluster]:
        """Our own client, closed at the end of its block."""
        return contextlib.closing(BlockingCluster(self.broker.bootstrap_servers))

    def described(self, kind: Any, name: str, key: str, *changes: tuple[str, str]) -> str:
        """The value of a key after some changes (operation, value)."""
        admin = confluent_admin.AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        for operation, value in changes:
            how = confluent_admin.AlterConfigOpType[operation]
            entry = confluent_admin.ConfigEntry(key, value, incremental_operation=how)
            change = ConfigResource(kind, name, incremental_configs=[entry])
            admin.incremental_alter_configs([change])[change].result(WAIT_S)
        time.sleep(0.3 if changes else 0)  # until the broker has the metadata
        asked = ConfigResource(kind, name)
        return f"{key}={admin.describe_configs([asked])[asked].result(WAIT_S)[key].value}"


class Point(NamedTuple):
    """A line of the table."""

    what: str
    before: str
    """On 1c3bcee."""
    after: str
    """A pattern of what is said now."""
    ask: Callable[[World], str]


def taken_directory(world: World) -> str:
    directory = world.path / "taken"
    directory.mkdir()
    (directory / "notes.txt").touch()
    return world.cli("dev", "-n", "1", "--data", str(directory))


def tls_port(world: World) -> str:
    """A listener that answers what is no TLS with an alert, as OpenSSL does."""
    with socket.create_server((HOST, 0)) as server:
        where = f"{HOST}:{server.getsockname()[1]}"
        command = [str(CLI), "topic", "consume", "t", "-b", where, "--timeout", "5"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ) as asking:
            server.settimeout(0.2)
            while asking.poll() is None:
                with contextlib.suppress(TimeoutError, ConnectionError):
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(100)
                        connection.sendall(bytes.fromhex("15030100020246"))
            assert asking.stdout is not None
            return asking.stdout.read().decode()


def metadata_units(world: World) -> str:
    consumer = confluent.Consumer({"bootstrap.servers": world.broker.bootstrap_servers, "group.id": "units"})
    place = confluent.TopicPartition("small", 0, 1, metadata="é" * 3000)
    try:
        [kept] = consumer.commit(offsets=[place], asynchronous=False)
        return f"{len(kept.metadata)} characters of two bytes are kept"
    finally:
        consumer.close()


def java_properties(world: World) -> str:
    file = world.path / "java.properties"
    file.write_bytes(b"log.dirs : /a\nlisteners=A://a:1,\\\n   B://b:2\nk=\\u00fc\n")
    return json.dumps(read_properties(file), ensure_ascii=False)


def both_families(listeners: str, world: World) -> str:
    """PORT in listeners is one that is free."""
    port = str(find_base_port())
    properties = {"listeners": listeners.replace("PORT", port), "advertised.listeners": "auto"}
    if HOST in listeners:
        del properties["advertised.listeners"]
    with barnabas.broker(properties) as broker:
        for host in (HOST, "::1"):
            socket.create_connection((host, int(port)), WAIT_S).close()
        return f"127.0.0.1 and ::1 connect; advertised {broker.addresses}"


def odd_record(world: World) -> str:
    """A header's name that is no text, at a time beyond the year 9999."""
    record = Record(0, YEAR_10000_MS, b"key", b"odd value", ((header_name(b"\xff"), b"1"),))
    with world.client as client:
        client.metadata(["odd"], creates_topics=True)
        world.described(TOPIC, "odd", "message.timestamp.after.max.ms", ("SET", str(2**63 - 1)))
        client.produce(TopicPartition("odd", 0), build_batch([record]))
        place = client.list_offsets({TopicPartition("odd", 0): YEAR_10000_MS})
    where = world.broker.bootstrap_servers
    shown = world.cli("topic", "consume", "odd", "-b", where, "--offset", "start", "-n", "1", "-o", "json")
    return f"offset by time {next(iter(place.values()))}; {shown}"


def repeated_batch(world: World) -> str:
    """What an idempotent producer is told of one batch, twice, beside what the log has."""
    partition = TopicPartition("dated", 0)
    batch = build_batch([Record(0, 1, None, b"v")], producer_id=4711, producer_epoch=0, base_sequence=0)
    data = TopicProduceData(name=partition.topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    told = []
    with world.client as client:
        client.metadata([partition.topic], creates_topics=True)
        world.described(TOPIC, partition.topic, "message.timestamp.type", ("SET", "LogAppendTime"))
        for _ in range(2):
            request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
            answer = client.call(request, broker=client.leader(partition), version_max=12)
            told.append(answer.responses[0].partition_responses[0].log_append_time_ms)
            time.sleep(0.05)
        fetched = client.fetch(partition, Offset(0))
    kept = read_header(fetched.records, 0).max_timestamp_ms
    return f"told {[each - kept for each in told]} ms from the log's time"


def bad_string(world: World) -> str:
    host, _, port = world.broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as connection:
        body = bytes.fromhex("0003000000000001ffff" + "00000001" + "0002fffe")  # Metadata 0 of the topic ff fe
        connection.sendall(len(body).to_bytes(4, "big") + body)
        connection.settimeout(WAIT_S)
        answer = connection.recv(100)
    return f"closed: {not answer}; {world.broker.log.splitlines()[-1]}"


def moves_at_once(world: World) -> str:
    with world.client as client:
        answer = client.call(ListPartitionReassignmentsRequest(timeout_ms=0))
    return f"error {answer.error_code}, {len(answer.topics)} moves"


def kept_key(world: World) -> str:
    value = world.described(BROKER, "1", "log.cleaner.threads", ("SET", "2"))
    [warning] = [line for line in world.broker.log.splitlines() if "log.cleaner.threads=2" in line]
    return f"{value}; {warning}"


def missing_right(world: World) -> str:
    """Nobody but a super user has a right here."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with barnabas.broker({"authorizer.class.name": authorizer, "super.users": "User:admin"}) as closed:
        return world.cli("topic", "produce", "secret", "-b", closed.bootstrap_servers, given=b"x\n")


def dual_stack(_: World) -> str:
    """The families of what listeners and metrics.listeners bind; in-process brokers bind their sockets themselves."""

    async def bound() -> list[int]:
        port = find_base_port()
        kafka = KafkaServer(
            addresses=[ListenAddress("A", "::", port)], config=NetworkConfig(), services=make_services()
        )
        metrics = HttpServer(
            addresses=[("::", port + 1)],
            render=lambda: (b"", ""),
            find_dead=list,
            find_unready=list,
            find_health=lambda: asyncio.sleep(0, ([], 1)),
        )
        await kafka.start()
        await metrics.start()
        families = [each.family for server in (*kafka._servers, *metrics._servers) for each in server.sockets]
        for server in kafka._servers:
            server.close()
        await metrics.close()
        return sorted(4 if family == socket.AF_INET else 6 for family in families)

    return f"listeners of both kinds at IP versions {asyncio.run(bound())}"


def old_spark(_: World) -> str:
    """The last line of an import under Spark 3.5, which has no pyspark.sql.datasource."""
    program = """
import sys, types
for name in ("pyspark", "pyspark.sql"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["pyspark"].__version__ = "3.5.1"
import pyspark_barnabas
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    return done.stderr.decode().splitlines()[-1]


def first_line(world: World) -> str:
    """The first line of `dev`, and whether it is there before the cluster is."""
    shown = world.cli("dev", "-n", "1", "--ephemeral", "--exec", "true").splitlines()
    return shown[0]


def config(key: str, *changes: tuple[str, str]) -> Callable[[World], str]:
    return lambda world: world.described(TOPIC, "small", key, *changes)


def broker_config(key: str) -> Callable[[World], str]:
    return lambda world: world.described(BROKER, "1", key)


WORDS = [
    Point(
        "-b of a closed port",
        "this command asks the admin listeners, and -b names Kafka listeners",
        r"no broker answers at 127\.0\.0\.1:1: connection refused",
        lambda world: world.cli("topic", "list", "-b", f"{HOST}:1"),
    ),
    Point(
        "-b of a name that is none",
        "this command asks the admin listeners, and -b names Kafka listeners",
        r"no address is known for nosuch\.invalid:9092",
        lambda world: world.cli("topic", "list", "-b", "nosuch.invalid:9092"),
    ),
    Point(
        "no right to write",
        "CLUSTER_AUTHORIZATION_FAILED: asking for a producer id",
        r"TOPIC_AUTHORIZATION_FAILED: topic secret\nhint: .*acl create --allow",
        missing_right,
    ),
    Point(
        "Spark 3.5",
        "ModuleNotFoundError: No module named 'pyspark.sql.datasource'",
        r"needs Spark 4\.0 or later",
        old_spark,
    ),
    Point("a TLS port", "the connection was lost before the answer came", r"speaks TLS", tls_port),
    Point("`dev` says a line at once", "nothing until it is ready", r"^starting 1 node in ", first_line),
    Point(
        "`dev --data` of somebody's directory",
        "writes into it",
        r"is no directory of a cluster: it holds notes\.txt",
        taken_directory,
    ),
    Point(
        "no home directory",
        "KAFKA_STORAGE_ERROR: /nonexistent: Permission denied",
        r"error: KAFKA_STORAGE_ERROR: /proc/nonexistent: .*\nhint: name a directory .* --data, or .* --ephemeral",
        lambda world: world.cli("dev", "-n", "1", HOME="/proc/nonexistent", XDG_DATA_HOME=""),
    ),
]
SMALL = [
    Point(
        "a number is kept in its normal form", "kept as typed", "=60000$", config("retention.ms", ("SET", "+0060000"))
    ),
    Point("Java's booleans", "TRUE was refused", "=true$", config("unclean.leader.election.enable", ("SET", "TRUE"))),
    Point(
        "SUBTRACT takes one of equal parts",
        "took all of them",
        "=0:1$",
        config("leader.replication.throttled.replicas", ("SET", "0:1,0:1"), ("SUBTRACT", "0:1")),
    ),
    Point("metadata of a commit in UTF-16 units", "OFFSET_METADATA_TOO_LARGE: bytes counted", "^3000 ", metadata_units),
    Point(
        "Java's syntax in server.properties",
        "a colon, a continued line, an escape were taken as text",
        r'"log.dirs": "/a", "listeners": "A://a:1,B://b:2", "k": "ü"',
        java_properties,
    ),
    Point("[::] binds both families", "IPv6 alone", r"versions \[4, 4, 6, 6\]", dual_stack),
    Point(
        "one listener name on IPv4 and IPv6",
        "`check` passed, the controller refused the broker",
        r"connect; advertised \{'PLAINTEXT': '127",
        partial(both_families, f"PLAINTEXT://{HOST}:PORT,PLAINTEXT://[::1]:PORT"),
    ),
    Point(
        "a header's name is bytes, a time may be beyond 9999",
        "ListOffsets by time, `topic consume` failed; a traceback",
        r"(?s)^offset by time 0; .*odd value",
        odd_record,
    ),
    Point(
        "a repeat under LogAppendTime has the time in the log",
        "the time of the repeat",
        r"^told \[0, 0\] ms",
        repeated_batch,
    ),
    Point("a string that is no UTF-8", "closed without a log line", r"^closed: True; .*utf-8", bad_string),
    Point("Kafka's keys without a meaning here", "refused", r"=2; .*no effect", kept_key),
    Point("ListPartitionReassignments, time-out 0", "REQUEST_TIMED_OUT", "^error 0, 0 moves", moves_at_once),
    Point("describe: log.retention.hours", "not there", "=168$", broker_config("log.retention.hours")),
    Point(
        "describe: listener.security.protocol.map",
        "not there",
        "PLAINTEXT",
        broker_config("listener.security.protocol.map"),
    ),
    Point("describe: broker.id", "not there", "=1$", broker_config("broker.id")),
]


OF_BOTH_FAMILIES = [point.ask for point in SMALL if "IPv6" in point.before + point.what]


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with barnabas.broker({"offsets.topic.num.partitions": 1}) as broker:
        made = World(broker, tmp_path_factory.mktemp("world"))
        with made.client as client:
            client.metadata(["small"], creates_topics=True)
        yield made


@pytest.mark.parametrize(("title", "points"), [("First words", WORDS), ("Small differences", SMALL)])
def test_every_point_is_mended(world: World, title: str, points: list[Point]) -> None:
    table = Table("point", "before (1c3bcee)", "after", title=title)
    missed = []
    for point in points:
        if point.ask in OF_BOTH_FAMILIES and not has_ipv6():
            continue
        said = point.ask(world).strip()
        table.add_row(point.what, point.before, said)
        if not re.search(point.after, said):
            missed.append((point.what, said))
    Console(width=200).print(table)
    assert not missed
