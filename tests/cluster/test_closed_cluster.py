"""A cluster that is closed from its first second, through confluent-kafka, Kafka's kafka-acls and the command line."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_node import server_command
from barnabas_admin.local_ports import find_base_port
from barnabas_quorum.image.authorizer import STANDARD_AUTHORIZER
from tests.oracle import apache

DEADLINE_S = 60.0
MECHANISM = "SCRAM-SHA-512"
PASSWORDS = {"admin": "the-admins", "broker": "the-brokers", "ann": "anns"}
ACL_COMMAND = "org.apache.kafka.tools.AclCommand"


class Closed(NamedTuple):
    """Where it listens, and what it wrote."""

    directory: Path
    kafka: str
    admin: str

    def settings(self, user: str, password: str = "") -> dict[str, str]:
        return {
            "bootstrap.servers": self.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password or PASSWORDS[user],
        }


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    directory = tmp_path_factory.mktemp("closed")
    port = find_base_port()
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.jaas.config": f'{module} required username="broker" password="{PASSWORDS["broker"]}";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:broker",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port + 1}",
        "admin.listeners": f"127.0.0.1:{port + 2}",
        "metrics.listeners": f"127.0.0.1:{port + 3}",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    file.chmod(0o600)
    users = [f"--add-scram={MECHANISM}=[name={name},password={password}]" for name, password in PASSWORDS.items()]
    formatted = barnabas("storage", "format", "-c", str(file), "--standalone", *users)
    assert formatted.returncode == 0, formatted.stderr
    with (directory / "node.log").open("wb") as log:
        node = subprocess.Popen(server_command("-c", str(file)), stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_until_open(port, node)
        yield Closed(directory, f"127.0.0.1:{port}", f"127.0.0.1:{port + 2}")
    finally:
        node.terminate()
        node.wait(30)


def wait_until_open(port: int, node: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert node.poll() is None, "the node ended"
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    raise TimeoutError("the node does not listen")


def barnabas(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas_admin.main", *words], capture_output=True, text=True, timeout=DEADLINE_S
    )


def produced(closed: Closed, user: str, topic: str, value: bytes) -> KafkaError | None:
    producer = Producer({**closed.settings(user), "message.timeout.ms": "20000"})
    outcome: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(DEADLINE_S) == 0
    return outcome[0]


def consumed(closed: Closed, user: str, group: str, topic: str) -> bytes | KafkaError:
    consumer = Consumer({**closed.settings(user), "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                value = message.value()
                consumer.commit(offsets=[TopicPartition(topic, message.partition() or 0, 1)], asynchronous=False)
                assert value is not None
                return value
            return error
        raise TimeoutError("nothing came")
    finally:
        consumer.close()


def acls(closed: Closed, *words: str) -> str:
    config = closed.directory / "admin.properties"
    jaas = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="{PASSWORDS["admin"]}";'
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\nsasl.jaas.config={jaas}\n")
    done = apache.run_tool(
        ACL_COMMAND, "--bootstrap-server", closed.kafka, "--command-config", str(config), *words, timeout_s=DEADLINE_S
    )
    assert done.exit_code == 0, done
    return done.stdout


@pytest.mark.skipif(apache.missing() is not None, reason=apache.missing() or "")
def test_acls_of_kafkas_own_tool_decide_what_a_client_may(closed: Closed) -> None:
    admin = AdminClient(closed.settings("admin"))
    topics = [NewTopic("orders", 1, 1), NewTopic("wages", 1, 1)]
    for made in admin.create_topics(topics, operation_timeout=20).values():
        made.result(DEADLINE_S)
    refused = produced(closed, "ann", "orders", b"too early")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow = ("--add", "--allow-principal", "User:ann")
    acls(
        closed,
        *allow,
        "--operation",
        "Read",
        "--operation",
        "Write",
        "--topic",
        "ord",
        "--resource-pattern-type",
        "prefixed",
    )
    acls(closed, *allow, "--operation", "Read", "--group", "billing")
    listed = acls(closed, "--list", "--principal", "User:ann")
    assert "name=ord" in listed and "operation=WRITE" in listed and "name=billing" in listed
    assert produced(closed, "ann", "orders", b"1") is None
    assert consumed(closed, "ann", "billing", "orders") == b"1"
    other = consumed(closed, "ann", "audit", "orders")
    assert isinstance(other, KafkaError) and other.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    wages = produced(closed, "ann", "wages", b"1")
    assert wages is not None and wages.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    seen = AdminClient(closed.settings("ann")).list_topics(timeout=20).topics
    assert set(seen) == {"orders"}
    acls(closed, "--add", "--deny-principal", "User:ann", "--operation", "Write", "--topic", "orders")
    denied = produced(closed, "ann", "orders", b"2")
    assert denied is not None and denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    acls(closed, "--remove", "--force", "--deny-principal", "User:ann", "--operation", "Write", "--topic", "orders")
    assert produced(closed, "ann", "orders", b"2") is None


@pytest.mark.attack("A1", "nobody without a login gets into a hand-made closed cluster")
def test_nobody_else_gets_in(closed: Closed) -> None:
    for user, password in (("ann", "a-guess"), ("mallory", "mallorys")):
        with pytest.raises(KafkaException):
            AdminClient(closed.settings(user, password)).list_topics(timeout=3)
    refused = barnabas("topic", "list", "--admin", closed.admin)
    assert refused.returncode == 5 and "User:ANONYMOUS may not DESCRIBE the cluster" in refused.stderr, refused
    log = (closed.directory / "node.log").read_text()
    assert not [password for password in PASSWORDS.values() if password in log]
