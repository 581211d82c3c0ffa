"""An intruder at real processes: `barnabas dev --secure`, and three nodes by hand with an audit log and a user without rights."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scramp import ScramClient

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_quorum.image.authorizer import STANDARD_AUTHORIZER
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.security.secured_node import Client

MECHANISM = "SCRAM-SHA-512"
TIMEOUT_S = 60.0
HANDSHAKES = 515
GROUPS = 8_000


@dataclass
class Target:
    """A cluster under attack."""

    name: str
    brokers: list[tuple[str, int]]
    authority: Path
    config_file: Path
    """Of its administrator."""
    logs: list[Path]
    """Of its nodes."""
    audit: Path | None
    admin: list[str]
    """Options that name it to the command."""

    def barnabas(self, *words: str, stdin: str = "") -> str:
        """As the administrator."""
        command = [sys.executable, "-m", "barnabas_admin.main", *words, *self.admin]
        command += ["--client-config", str(self.config_file)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def connect(self, broker: int = 0) -> Client:
        """A connection of nobody yet."""
        host, port = self.brokers[broker]
        context = ssl.create_default_context(cafile=str(self.authority))
        return Client(*await asyncio.open_connection(host, port, ssl=context))

    async def begin(self, user: str, password: str, broker: int = 0) -> tuple[Client, ScramClient, str]:
        """A login up to the server's first word."""
        client, scram = await self.connect(broker), ScramClient([MECHANISM], user, password)
        assert (await client.call(SaslHandshakeRequest(mechanism=MECHANISM), 1)).error_code == 0
        answer = await client.call(SaslAuthenticateRequest(auth_bytes=scram.get_client_first().encode()), 2)
        return client, scram, bytes(answer.auth_bytes).decode()

    async def log_in(self, user: str, password: str) -> Client:
        client, scram, first = await self.begin(user, password)
        scram.set_server_first(first)
        answer = await client.call(SaslAuthenticateRequest(auth_bytes=scram.get_client_final().encode()), 2)
        assert answer.error_code == 0, answer.error_message
        return client


def setting(properties: Path, key: str) -> str:
    """Of a client's properties."""
    return next(line.partition("=")[2] for line in properties.read_text().splitlines() if line.startswith(f"{key}="))


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("by-hand")
    overrides = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:node-1;User:node-2;User:node-3",
        "audit.log.path": str(directory / "audit.log"),
        "audit.log.max.bytes": str(8 * 1024 * 1024),
    }
    with LocalCluster(directory, nodes=3, base_port=find_base_port(), is_secured=True, overrides=overrides) as running:
        security = running.security
        assert security is not None
        addresses = [each.rpartition(":") for each in running.bootstrap_servers.split(",")]
        target = Target(
            "three nodes",
            [(host, int(port)) for host, _, port in addresses],
            security.authority,
            security.client_file,
            [node.stderr_file for node in running.nodes.values()],
            directory / "audit.log",
            ["--admin", running.admin_addresses, "-b", running.bootstrap_servers],
        )
        target.barnabas("user", "create", "mallory", stdin="of-mallory\n")
        yield target


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("dev")
    words = ["dev", "-n", "1", "--secure", "--data", str(directory / "dev"), "--port", str(find_base_port())]
    environment = os.environ | {"BARNABAS_CONTEXT": str(directory / "context.json")}
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas_admin.main", *words, "-o", "json"], stdout=subprocess.PIPE, env=environment
    ) as running:
        try:
            assert running.stdout is not None
            ready: dict[str, Any] = json.loads(running.stdout.readline())
            host, _, port = ready["brokers"].rpartition(":")
            config = Path(ready["client_config"])
            yield Target(
                "dev --secure",
                [(host, int(port))],
                Path(setting(config, "ssl.truststore.location")),
                config,
                [Path(node["log"]) for node in ready["nodes"]],
                None,
                ["--admin", ready["admin"], "-b", ready["brokers"]],
            )
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(TIMEOUT_S)


@pytest.fixture(params=["dev", "by_hand"])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found


@pytest.mark.attack("A8", "real brokers show of unknown users what they show of the administrator")
async def test_nobody_learns_who_exists(target: Target) -> None:
    shown: dict[str, set[tuple[int, bytes]]] = {}
    for user in ("admin", "nobody", "no-one"):
        for broker in range(len(target.brokers)):
            client, _, first = await target.begin(user, "guess", broker)
            _, salt, iterations = first.split(",")
            shown.setdefault(user, set()).add((int(iterations[2:]), base64.b64decode(salt[2:])))
            await client.close()
    assert all(len(each) == 1 for each in shown.values()), "the same at every broker"
    looks = {(iterations, len(salt)) for each in shown.values() for iterations, salt in each}
    assert len(looks) == 1 and len({salt for each in shown.values() for _, salt in each}) == 3


@pytest.mark.attack("A4", "515 handshakes of a stranger push nothing out of real nodes' logs and audit trail")
async def test_handshakes_of_a_stranger(target: Target) -> None:
    await asyncio.to_thread(target.barnabas, "cluster", "config", "set", "log.retention.ms=777000")
    before = sum(log.stat().st_size for log in target.logs)

    async def one(number: int) -> None:
        client = await target.connect(number % len(target.brokers))
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            answer = await client.call(SaslHandshakeRequest(mechanism=f"\n{number}\x1b[2J" + "\x01" * 32_000), 1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        await client.close()

    for first in range(0, HANDSHAKES, 20):
        await asyncio.gather(*(one(number) for number in range(first, min(first + 20, HANDSHAKES))))
    written = b"".join(log.read_bytes() for log in target.logs)
    assert len(written) - before < HANDSHAKES * 600
    assert b"\x1b" not in written and b"\x01" not in written
    if target.audit is not None:
        kept = target.audit.read_text()
        assert '"777000"' in kept and kept.count("\n") < HANDSHAKES
        assert all(file.stat().st_size < 2_000_000 for file in target.audit.parent.glob("audit.log*"))


@pytest.mark.attack("A4", "a change after 16,000 denials of a user without rights is in the audit trail")
async def test_denials_hide_no_change(by_hand: Target) -> None:
    assert by_hand.audit is not None
    client = await by_hand.log_in("mallory", "of-mallory")
    for turn in range(2):
        names = [f"{turn}-{number}" for number in range(GROUPS)]
        answer = await client.call(DescribeGroupsRequest(groups=names), 5)
        assert {each.error_code for each in answer.groups} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    await asyncio.to_thread(by_hand.barnabas, "topic", "create", "after-the-noise", "-p", "1", "-r", "1")
    await client.close()
    async with asyncio.timeout(TIMEOUT_S):
        while "after-the-noise" not in by_hand.audit.read_text():
            await asyncio.sleep(0.1)


@pytest.mark.attack("A8", "a real broker gives no topic's name to a user who may not see it")
async def test_an_id_gives_no_name(by_hand: Target) -> None:
    await asyncio.to_thread(by_hand.barnabas, "topic", "create", "payroll-of-may", "-p", "1", "-r", "3")
    password = setting(by_hand.config_file, "sasl.password")
    admin, mallory = await by_hand.log_in("admin", password), await by_hand.log_in("mallory", "of-mallory")
    described = await admin.call(MetadataRequest(topics=None), 12)
    (topic_id,) = [each.topic_id for each in described.topics if each.name == "payroll-of-may"]
    data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=b"")])
    answer = await mallory.call(ProduceRequest(acks=1, topic_data=[data]), 13)
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID and "payroll" not in repr(answer)
    for client in (admin, mallory):
        await client.close()


@pytest.mark.attack("A7", "a real broker lets nobody in with a password that changed during the login")
async def test_a_login_outlives_no_password(target: Target) -> None:
    await asyncio.to_thread(target.barnabas, "user", "create", "late", stdin="first\n")
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(AssertionError):
                await (await target.log_in("late", "first")).close()
                break
            await asyncio.sleep(0.2)
    client, scram, first = await target.begin("late", "first")
    await asyncio.to_thread(target.barnabas, "user", "create", "late", stdin="second\n")
    async with asyncio.timeout(5):  # less than a login may take
        while True:
            with contextlib.suppress(AssertionError):
                await (await target.log_in("late", "second")).close()
                break
            await asyncio.sleep(0.1)
    scram.set_server_first(first)
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=scram.get_client_final().encode()), 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await client.close()
