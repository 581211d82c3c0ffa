"""Real clients over every protocol and mechanism: each produces a record and reads it back, and the audit log says who it was.

`make ecosystem` runs every client by every way; `make test` each way once and each client that needs no JVM.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

from barnabas_admin import pki
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_admin.main import cli
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.security import ClientSecurity, SaslLogin
from barnabas_wire.kafka.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_wire.kafka.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from tests.ecosystem.java import IS_FULL
from tests.ecosystem.secured_clients import CLIENTS, OAUTH, VALUE, Way
from tests.spark.jvm import Jvm
from tests.support.clusters import ForkedCluster

USER, PASSWORD = "ann", "a-secret-of-hers"
GUESS = "a-password-that-is-nobodys"
TOKENS_KEY = "the-key-of-all-delegation-tokens"
SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTH)
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SSL+CERT": "CERT", "SASL_PLAINTEXT": "LOGIN", "SASL_SSL": "BOTH"}
WAYS = [(protocol, "") for protocol in ("PLAINTEXT", "SSL", "SSL+CERT")]
WAYS += list(itertools.product(("SASL_PLAINTEXT", "SASL_SSL"), SASL))
LIGHT = [name for name in CLIENTS if name not in ("java", "spark")]
SHORT = [(LIGHT[place % len(LIGHT)], *way) for place, way in enumerate(WAYS) if way[1] != OAUTH]
SHORT += [("confluent-kafka", "SASL_SSL", OAUTH), ("aiokafka", "SASL_PLAINTEXT", OAUTH)]
ALL = [(name, *way) for name in CLIENTS for way in WAYS]
ISSUER = "https://login.example"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates, and a token."""
    directory = tmp_path_factory.mktemp("secured-clients")
    pki.init(directory)
    pki.issue(directory, "node", hosts=["127.0.0.1", "localhost"])
    pki.issue(directory, USER)
    key = rsa.generate_private_key(65537, 2048)
    known = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    (directory / "jwks.json").write_text(json.dumps({"keys": [{**known, "kid": "1", "use": "sig"}]}))
    now_s = int(time.time())
    claims = {"iss": ISSUER, "aud": "kafka", "sub": USER, "iat": now_s, "exp": now_s + 3600}
    token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": "1"})
    (directory / "token").write_text(f"{token} {now_s + 3600}")
    (directory / "jwt").write_text(token)
    return directory


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """By protocol."""
    sockets = {protocol: socket.create_server(("127.0.0.1", 0)) for protocol in LISTENERS}
    found = {protocol: each.getsockname()[1] for protocol, each in sockets.items()}
    for each in sockets.values():
        each.close()
    return found


@pytest.fixture(scope="module")
def everywhere(files: Path, ports: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node with a listener for each protocol."""
    directory = tmp_path_factory.mktemp("everywhere")
    base_port = find_base_port()
    listeners = ",".join(f"{name}://127.0.0.1:{ports[protocol]}" for protocol, name in LISTENERS.items())
    protocols = ",".join(f"{name}:{protocol.partition('+')[0]}" for protocol, name in LISTENERS.items())
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    overrides = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{base_port + 20}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(files / "node.pem"),
        "ssl.truststore.location": str(files / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
        "listener.name.cert.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(SASL),
        "sasl.oauthbearer.jwks.endpoint.url": (files / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "kafka",
        "group.initial.rebalance.delay.ms": "0",
        "audit.log.path": str(directory / "audit.log"),
        "delegation.token.secret.key": TOKENS_KEY,
    }
    for name in ("login", "both"):
        overrides[f"listener.name.{name}.plain.sasl.jaas.config"] = login
    with ForkedCluster(directory, nodes=1, base_port=base_port, overrides=overrides) as running:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports['PLAINTEXT']}"})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([credential])[USER].result(30)
        yield running


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Spark's, in the full form alone."""
    if not IS_FULL:
        yield None
        return
    jvm = Jvm(tmp_path_factory.mktemp("spark"))
    yield jvm.connect()
    jvm.stop()


@pytest.mark.parametrize(("name", "protocol", "mechanism"), ALL if IS_FULL else SHORT)
def test_a_record_makes_the_round_trip(
    name: str,
    protocol: str,
    mechanism: str,
    everywhere: LocalCluster,
    files: Path,
    ports: dict[str, int],
    session: Any,
) -> None:
    way = Way(f"127.0.0.1:{ports[protocol]}", protocol, mechanism, files, USER, PASSWORD)
    client = CLIENTS[name]
    reason = client.lacks(way)
    if reason is not None:
        pytest.skip(reason)
    topic = f"{name}-{protocol}-{mechanism}".replace("+", "-").rstrip("-")
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports['PLAINTEXT']}"})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    log = everywhere.directory / "audit.log.login"
    before = log.stat().st_size if log.exists() else 0
    assert client.round_trip(way, topic, session) == VALUE
    how = mechanism or ("certificate" if way.shows_certificate else "")
    if not how:
        return
    expected = {"kind": "login", "principal": f"User:{USER}", "listener": LISTENERS[protocol], "how": how}
    deadline = time.monotonic() + 10
    logins: list[dict[str, Any]] = []
    while not any(expected.items() <= login.items() for login in logins):
        assert time.monotonic() < deadline, (expected, logins)
        logins = [json.loads(line) for line in log.read_bytes()[before:].splitlines()]
        time.sleep(0.05)


def secrets_of(files: Path) -> dict[str, str]:
    """What nobody may be shown, by what it is."""
    found = {"password": PASSWORD, "password of a refused login": GUESS, "key of delegation tokens": TOKENS_KEY}
    for name in ("node", USER, "ca-key"):
        lines = (files / f"{name}.pem").read_text().splitlines()
        at = next(number for number, line in enumerate(lines) if "PRIVATE KEY" in line)
        found[f"private key of {name}"] = lines[at + 1]
    found["bearer token's signature"] = (files / "jwt").read_text().rpartition(".")[2]
    return found


async def kafka_calls(port: int) -> tuple[bytes, list[str]]:
    """A delegation token's HMAC, and all that the APIs of descriptions say, as `ann`."""
    login = SaslLogin("SCRAM-SHA-512", USER, PASSWORD)
    connection = await AioConnection.connect(
        "127.0.0.1", port, client_id="x", timeout_s=30, security=ClientSecurity(login=login)
    )
    said = []
    try:
        made = await connection.call(CreateDelegationTokenRequest(max_lifetime_ms=60_000), timeout_s=30)
        assert made.error_code == 0
        resources = [DescribeConfigsResource(resource_type=kind, resource_name="1") for kind in (4, 8)]
        for request in (
            DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True),
            DescribeUserScramCredentialsRequest(),
            MetadataRequest(),
        ):
            said.append(repr(await connection.call(request, timeout_s=30)))
    finally:
        await connection.close()
    return bytes(made.hmac), said


def test_no_view_of_the_node_shows_a_secret(everywhere: LocalCluster, files: Path, ports: dict[str, int]) -> None:
    """Logs, audit log, descriptions, metrics, commands and the texts of errors, after every kind of login, let in and refused."""
    heard: list[str] = []
    for protocol, mechanism in WAYS:
        if not mechanism or mechanism == OAUTH:
            continue
        way = Way(f"127.0.0.1:{ports[protocol]}", protocol, mechanism, files, USER, GUESS)
        refused = AdminClient(way.librdkafka() | {"log_level": 0, "error_cb": lambda error: heard.append(error.str())})
        with pytest.raises(KafkaException) as error:
            refused.list_topics(timeout=2)
        refused.poll(0)
        heard.append(str(error.value))
    assert any("user or password is wrong" in text for text in heard), heard
    hmac, views = asyncio.run(kafka_calls(ports["SASL_PLAINTEXT"]))
    node = everywhere.nodes[1]
    views += heard
    views += [
        file.read_text() for file in (node.stderr_file, node.stdout_file, *everywhere.directory.glob("audit.log*"))
    ]
    views.append(urllib.request.urlopen(everywhere.metrics_urls[0], timeout=30).read().decode())
    where = ["--admin", everywhere.admin_addresses, "-b", f"127.0.0.1:{ports['PLAINTEXT']}"]
    for words in (
        ["broker", "config", "get", "1", "-o", "json"],
        ["cluster", "config", "get", "-o", "json"],
        ["user", "list", "-o", "json"],
        ["broker", "list", "-o", "json"],
        ["broker", "config", "set", "1", f"delegation.token.secret.key={TOKENS_KEY[:-1]}x"],
    ):
        done = CliRunner().invoke(cli, [*words, *where])
        assert "set" in words or done.exit_code == 0, done.output
        views.append(done.output)
    assert "sasl.enabled.mechanisms" in "".join(views), "descriptions were asked"
    secrets = secrets_of(files) | {"HMAC of a delegation token": base64.b64encode(hmac).decode()}
    secrets["HMAC of a delegation token, as bytes"] = repr(hmac)
    shown = [(what, view[:60]) for what, secret in secrets.items() for view in views if secret in view]
    assert not shown
