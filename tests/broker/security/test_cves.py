"""What went wrong elsewhere and must not here: one test for each entry of the list that we keep, named by it.

Entries of one cause have one test with all their numbers. Where the whole of a defence has tests of its own the docstring names them,
and what is here is the defect itself, as it was.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import gc
import hashlib
import hmac
import json
import re
import ssl
import struct
import sys
import time
import tomllib
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import click
import grpc.aio
import jwt
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec
from scramp import ScramClient, ScramMechanism

from barnabas_admin import pki
from barnabas_admin.main import cli
from barnabas_broker.api.produce import _may_write_transaction
from barnabas_broker.api.registry import by_kind, load_handlers
from barnabas_broker.config.keys import ConfigError, format_value
from barnabas_broker.metrics.http import HttpServer
from barnabas_broker.node.properties import NodeConfig, known_keys, node_config, read_properties
from barnabas_broker.security.access import Access, AccessControl
from barnabas_broker.security.jwks import JwksSource, parse_jwks
from barnabas_broker.security.listener_security import load_listeners
from barnabas_broker.security.principal_mapping import map_subject, parse_rules
from barnabas_broker.security.sasl.mechanism import LoginRefused
from barnabas_broker.security.sasl.oauthbearer import TokenRules, verify_token
from barnabas_broker.security.sasl.plain import Plain
from barnabas_broker.security.sasl.scram import Scram, Verifier
from barnabas_broker.security.sasl.session import SaslSession
from barnabas_broker.security.unknown_users import Likeness
from barnabas_log.errors import NotOneBatch
from barnabas_log.tail.validator import check_is_one_batch
from barnabas_quorum.driver.grpc_transport import QuorumServicer
from barnabas_quorum.image.acls import AclsImage
from barnabas_quorum.image.authorizer import Authorizer
from barnabas_quorum.image.rights import KAFKA_RIGHTS, RPC_RIGHTS
from barnabas_quorum.records_security import AclOperation, AclPatternType, AclPermission, AclResourceType
from barnabas_wire.client import jaas
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.connection import RESPONSE_BYTES_MAX
from barnabas_wire.client.properties import read_client_properties
from barnabas_wire.client.security import ITERATIONS_MAX, SaslLogin, login_steps
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_wire.records.batch import TRANSACTIONAL_FLAG, sealed_batch
from barnabas_wire.records.compression import CompressionType, decompress
from barnabas_wire.rpc import (
    admin_pb2,
    bootstrap_pb2,
    controller_pb2,
    explain_pb2,
    inspection_pb2,
    login_pb2,
    quorum_pb2,
    quorum_pb2_grpc,
)
from tests.metadata_quorum.test_authorizer import entry
from tests.support.listener import (
    LISTENER,
    TOPIC,
    TOPIC_ID,
    RawClient,
    RememberingReplicas,
    connected,
    make_services,
    running_server,
)

ROOT = Path(__file__).resolve().parents[3]
MEMORY_BYTES_MAX = 1 << 20
SIGNING_KEY = ec.generate_private_key(ec.SECP256R1())
SECRETS = ("the key's password", "alice's own", "of all tokens")
SASL = {
    "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "plain.sasl.jaas.config": f'x.PlainLoginModule required user_alice="{SECRETS[1]}";',
}


def broker_properties(**more: str) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "node.id": "1",
        "log.dirs": "/tmp/nothing-is-written",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    } | {key.replace("_", "."): value for key, value in more.items()}


@contextlib.contextmanager
def bounded_memory(bytes_max: int = MEMORY_BYTES_MAX) -> Any:
    """What is done here allocates no more at any time."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= bytes_max
    finally:
        tracemalloc.stop()


# -- Kafka -------------------------------------------------------------------------------------------------------------


def test_cve_2019_12399_secrets_are_shown_by_no_view_of_the_configuration() -> None:
    """Connect's REST API showed them. Here: reprs of configs, the values that describe shows, errors of keys beside them."""
    config = node_config(
        broker_properties(
            ssl_key_password=SECRETS[0],
            delegation_token_secret_key=SECRETS[2],
            listeners=f"{LISTENER}://127.0.0.1:9092",
        )
        | SASL
        | {
            f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": 'x.PlainLoginModule required username="b" '
            f'password="{SECRETS[1]}" user_b="{SECRETS[1]}";',
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
        }
    )
    shown = [repr(getattr(config, field)) for field in NodeConfig.__slots__ if field != "static_properties"]
    shown += [format_value(value) for key, value in config.values() if not key.is_sensitive]
    assert not [secret for secret in SECRETS if secret in "\n".join(shown)]
    hidden = {key.name for key in known_keys() if key.is_sensitive}
    assert hidden == {"ssl.keystore.key", "ssl.key.password", "delegation.token.secret.key"}


def test_cve_2021_38153_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mechanism and the tokens. scramp's own comparison is looked at too, since proofs are compared there."""
    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def compare(a: Any, b: Any) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for password in ("guessed", "right", ""):
        with contextlib.suppress(LoginRefused):
            Plain({"alice": "right"}).step(f"\0alice\0{password}".encode())
    assert len(compared) == 2, "an empty password is refused by its form, any other by the comparison"
    scramp = Path(sys.modules["scramp"].__file__ or "").parent / "core.py"
    assert "compare_digest" in scramp.read_text()
    tokens = (ROOT / "metadata_quorum/barnabas_quorum/controller/tokens.py").read_text()
    assert "compare_digest(token_hmac(" in tokens


def test_cve_2021_44228_2021_4104_and_2022_23302_23305_23307_dependencies_are_few_and_pinned() -> None:
    """A logging library ran what it was given to log. Ours is the standard library's, and every dependency has a tested version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=\[; ]", text)[0].lower() for text in project["dependencies"]}
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert names <= pinned
    assert len(names) <= 15
    assert not names & {"structlog", "loguru", "python-json-logger", "pyyaml", "dill", "cloudpickle"}


def test_cve_2021_44228_nothing_that_arrives_is_run() -> None:
    """No pickle and no yaml; what makes code or imports by name does so at import, from what stands in this repository."""
    makers = {
        ("exec", "barnabas_quorum/message_mapping.py"),  # mappings, compiled from declarations
        ("exec", "kafka/schema.py"),  # codecs, compiled from declarations
        ("import_module", "kafka/schema.py"),  # a message's own module, by its ApiKey
        ("import_module", "api/registry.py"),  # the handlers
        ("import_module", "barnabas_broker/main.py"),  # verbs of a fixed table
        ("import_module", "node/fork_server.py"),  # what a node imports, by a fixed list, before the first fork
        ("import_module", "host/starting.py"),  # likewise, of the brokers of a host
    }
    found = set()
    for room in ("broker", "log", "metadata_quorum", "proto", "replication"):
        for file in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                library = getattr(getattr(node.func, "value", None), "id", "")
                is_method = isinstance(node.func, ast.Attribute) and name in ("eval", "exec")
                if (name in ("eval", "exec", "__import__", "import_module") and not is_method) or (
                    library in ("pickle", "marshal", "yaml", "shelve") and name.startswith("load")
                ):
                    found.add((name, "/".join(file.parts[-2:])))
    assert found == makers


async def test_cve_2022_34917_before_a_login_a_frame_has_room_for_a_login_only() -> None:
    """Unauthenticated clients could have the broker allocate what they claimed."""
    async with running_server(make_services(), security=load_listeners([LISTENER], SASL)[LISTENER]) as server:
        with bounded_memory():
            for api_key in (ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.PRODUCE):
                client = await RawClient.connect(server)
                await client.send(struct.pack(">ihhih", 90 << 20, api_key, 0, 1, -1) + bytes(1000))
                with contextlib.suppress(ConnectionError):
                    assert await client.reader.read(1) == b""
        assert not server.connections


@pytest.mark.parametrize("module", ["com.sun.security.auth.module.JndiLoginModule", "os.system", "x.LdapLoginModule"])
def test_cve_2023_25194_and_2025_27818_27819_a_login_module_is_a_word_and_never_run(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_imports(*_: Any, **__: Any) -> None:
        raise AssertionError("a module was loaded by a name from a file")

    line = jaas.parse("k", f'{module} required user.provider.url="ldap://evil/x" username="a" password="b" user_a="c";')
    monkeypatch.setattr("importlib.import_module", no_imports)
    assert line.module == module.rpartition(".")[2]
    with pytest.raises(ConfigError, match="PLAIN has PlainLoginModule"):
        load_listeners([LISTENER], SASL | {"plain.sasl.jaas.config": f'{module} required user_a="c";'})


@pytest.mark.parametrize(
    "kind", [CompressionType.SNAPPY, CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_cve_2023_34455_a_length_that_lies_allocates_nothing(kind: CompressionType) -> None:
    """A snappy block began with a length of 2 GiB. The whole of it: tests/proto/test_compression.py."""
    lies = [
        b"\xff\xff\xff\xff\x07" + bytes(20),
        b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 0x7FFFFFFF) + b"\xff\xff\xff\xff\x07" + bytes(20),
        b"\x04\x22\x4d\x18\x4c\x40" + struct.pack("<Q", 1 << 40) + b"\x00" + struct.pack("<I", 0x7FFFFFFF) + bytes(20),
        b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + bytes(20),
    ]
    with bounded_memory():
        for lie in lies:
            with pytest.raises(KafkaError):
                decompress(kind, lie, bytes_max=64 * 1024)


def test_cve_2024_27309_a_deny_outlives_the_removal_of_its_neighbour() -> None:
    """While two entries were of one resource, the removal of one had the other forgotten. Model: test_authorizer.py."""
    allow = entry("User:*", AclOperation.READ)
    deny = entry("User:ann", AclOperation.READ, permission=AclPermission.DENY)
    other = entry("User:ann", AclOperation.WRITE)
    ids = [Uuid(bytes([number]) * 16) for number in (1, 2, 3)]
    authorizer = Authorizer()
    for entries in (
        dict(zip(ids, (allow, deny, other), strict=True)),
        {ids[0]: allow, ids[1]: deny},
        {ids[1]: deny, ids[0]: allow},
    ):
        authorizer.follow(entries)
        verdict = authorizer.authorize("User:ann", "10.0.0.1", AclOperation.READ, AclResourceType.TOPIC, "a")
        assert not verdict.is_allowed


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest/meta-data", "file://evil/share", "ldap://x/y", "gopher://x", "jar:https://x!/y"],
)
def test_cve_2024_31141_and_2025_27817_no_file_and_no_address_is_read_for_a_configuration(
    url: str, tmp_path: Path
) -> None:
    """Clients read files and URLs that their configuration named."""
    with pytest.raises(ConfigError):
        JwksSource(url, refresh_ms=1000)
    with pytest.raises(ConfigError, match="values are taken as they stand"):
        node_config(broker_properties(config_providers="file"))
    secret, client = tmp_path / "secret", tmp_path / "client.properties"
    secret.write_text("hidden")
    client.write_text(f"config.providers=file\nsasl.username=${{file:{secret}:x}}\n")
    assert "hidden" not in str(read_client_properties(client))


def scram(password: str = "hers") -> Scram:
    salt, stored_key, server_key, iterations = ScramMechanism("SCRAM-SHA-256").make_auth_info(password)
    return Scram(
        "SCRAM-SHA-256",
        {"alice": Verifier(salt, stored_key, server_key, iterations)}.get,
        unknown=lambda: Likeness(b"k"),
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda final, nonce: final.replace(f"r={nonce}", "r=other"),
        lambda final, nonce: final.replace(f"r={nonce}", f"r={nonce}x"),
        lambda final, nonce: final.replace(f"r={nonce}", f"r={nonce[:-1]}"),
        lambda final, nonce: final.replace(f"r={nonce}", f"r=x{nonce}"),
        lambda final, nonce: final.replace(f"r={nonce}", f"r={nonce}{nonce}"),
    ],
)
def test_cve_2024_56128_the_last_message_repeats_the_whole_nonce(change: Callable[[str, str], str]) -> None:
    """The proof is right for the changed message too: a server that does not compare the nonce lets it in."""
    server, client = scram(), ScramClient(["SCRAM-SHA-256"], "alice", "hers")
    first = server.step(client.get_client_first().encode()).decode()
    nonce = first.partition("r=")[2].partition(",")[0]
    client.set_server_first(first)
    honest = client.get_client_final()
    forged = change(honest, nonce)
    assert forged != honest
    bare, _, _ = forged.partition(",p=")
    auth_message = f"{client.client_first_bare},{first},{bare}".encode()
    salt = base64.b64decode(first.partition("s=")[2].partition(",")[0])
    password = hashlib.pbkdf2_hmac("sha256", b"hers", salt, int(first.partition("i=")[2]))
    client_key = hmac.digest(password, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), auth_message, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    with pytest.raises(LoginRefused):
        server.step(f"{bare},p={proof}".encode())
    assert server.user is None


def test_cve_2026_33557_and_pulsar_2021_22160_no_token_is_believed_unsigned() -> None:
    """The default validator took any. All kinds: test_oauthbearer.py."""
    rules = TokenRules(algorithms=("ES256",), issuer="i", audiences=("a",))
    claims = {"iss": "i", "aud": "a", "sub": "admin", "exp": int(time.time()) + 3600}
    unsigned = jwt.encode(claims, "", algorithm="none")
    for token in (unsigned, unsigned + "AAAA", jwt.encode(claims, "k" * 64, algorithm="HS512")):
        with pytest.raises(LoginRefused):
            verify_token(token, rules=rules, find_key=lambda kid: None)


def test_cve_2026_35554_a_batch_is_a_copy_of_what_the_caller_gave() -> None:
    """A buffer was given back to the pool while it was still to be sent: its records went to another topic."""
    payload = bytearray(b"\x10\x00\x00\x00\x01\x04hi\x00")
    batch = bytes(
        sealed_batch(
            payload,
            attributes=0,
            last_offset_delta=0,
            base_timestamp_ms=0,
            max_timestamp_ms=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=1,
        )
    )
    assert batch[61:] == payload
    kept = bytes(payload)
    payload[:] = b"x" * len(payload)
    assert batch[61:] == kept


@contextlib.asynccontextmanager
async def quorum_listener() -> AsyncIterator[tuple[grpc.aio.Channel, int]]:
    """A controller's quorum service, whose handler must not be reached."""

    async def handle(request: Any) -> Any:
        raise AssertionError(f"{request} came through")

    server = grpc.aio.server()
    QuorumServicer(cluster_id="c", handle=handle).add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel, port
    await server.stop(None)


async def test_cve_2026_83525_an_empty_fetch_snapshot_costs_its_caller_alone() -> None:
    """It ended the controller. Here: every call of the peers' listener, empty and with the least that passes the first check."""
    calls: dict[str, Any] = {
        "Vote": quorum_pb2.VoteCall,
        "BeginQuorumEpoch": quorum_pb2.BeginQuorumEpochCall,
        "EndQuorumEpoch": quorum_pb2.EndQuorumEpochCall,
        "Fetch": quorum_pb2.FetchCall,
        "FetchSnapshot": quorum_pb2.FetchSnapshotCall,
        "DescribeReplica": quorum_pb2.DescribeReplicaCall,
        "ChangeVoters": quorum_pb2.ChangeVotersCall,
    }
    async with quorum_listener() as (channel, _):
        stub = quorum_pb2_grpc.QuorumStub(channel)
        for name, type_ in calls.items():
            least = (
                type_(cluster_id="c")
                if "cluster_id" in type_.DESCRIPTOR.fields_by_name
                else type_(header=quorum_pb2.CallHeader(cluster_id="c"))
            )
            for message in (type_(), least):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await getattr(stub, name)(message, timeout=5)
                assert refused.value.code() in (
                    grpc.StatusCode.FAILED_PRECONDITION,
                    grpc.StatusCode.INVALID_ARGUMENT,
                    grpc.StatusCode.UNIMPLEMENTED,
                ), (name, refused.value)


def test_cve_2026_110985_without_keys_a_listener_with_tokens_does_not_start() -> None:
    """Without the URL of keys the signature was not checked."""
    settings = SASL | {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.expected.issuer": "i",
        "sasl.oauthbearer.expected.audience": "a",
    }
    for url in ({}, {"sasl.oauthbearer.jwks.endpoint.url": ""}):
        with pytest.raises(ConfigError, match=r"set sasl\.oauthbearer\.jwks\.endpoint\.url"):
            load_listeners([LISTENER], settings | url)


async def test_cve_2026_111073_telemetry_is_not_taken_at_all() -> None:
    """PushTelemetry, open to everybody, decompressed without a bound."""
    async with connected(make_services()) as (_, client):
        offered = {api.api_key for api in (await client.call(ApiVersionsRequest(), 3)).api_keys}
        assert not offered & {71, 72}
        await client.send(struct.pack(">ihhih", 12, 72, 0, 1, -1) + bytes(2))
        assert await client.reader.read(1) == b""


async def test_cve_2026_111108_and_111115_counts_are_checked_before_anything_is_made() -> None:
    """An array's count, and before any login that of tagged fields, had millions of objects made."""
    many = b"\xff\xff\xff\xff\x0f"
    bodies = {
        "tagged fields of the header": struct.pack(">hhih", 18, 3, 1, -1) + b"\x80\xad\xe2\x04" + bytes(40_000),
        "a compact array": struct.pack(">hhih", 3, 12, 1, -1) + b"\x00" + many,
        "an array": struct.pack(">hhihi", 3, 4, 1, -1, 0x7FFFFFFF),
        "an array of as many as there are bytes": struct.pack(">hhihi", 3, 4, 1, -1, 40_000) + bytes(40_000),
    }
    async with running_server(make_services()) as server:
        for name, body in bodies.items():
            client = await RawClient.connect(server)
            with bounded_memory(16 * len(body) + 64 * 1024 + (1 << 18)):  # the test's own streams too
                await client.send(struct.pack(">i", len(body)) + body)
                with contextlib.suppress(ConnectionError):
                    assert await client.reader.read(1) == b"", name
        assert server.stats.connections_closed["bug"] == 0


def test_cve_2018_17196_a_batch_is_judged_by_what_it_says_and_not_by_its_request() -> None:
    """A produce request without a transactional id, with a batch that is of a transaction, was not checked for the id."""

    def batch(attributes: int) -> bytes:
        return bytes(
            sealed_batch(
                b"\x10\x00\x00\x00\x01\x04hi\x00",
                attributes=attributes,
                last_offset_delta=0,
                base_timestamp_ms=0,
                max_timestamp_ms=0,
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                record_count=1,
            )
        )

    nobody = Access("User:nobody", "10.0.0.1")
    assert _may_write_transaction(nobody, None, [("t", 0, memoryview(batch(0)))])
    assert not _may_write_transaction(nobody, None, [("t", 0, memoryview(batch(TRANSACTIONAL_FLAG)))])
    with pytest.raises(NotOneBatch):  # so that no other one hides behind it
        check_is_one_batch(memoryview(batch(0) + batch(TRANSACTIONAL_FLAG)))


def test_cve_2026_41115_2023_50976_and_nats_2025_30215_every_door_has_its_row_in_the_one_table() -> None:
    """APIs had no check, or another than the documentation said. What they do: test_authorization_matrix.py."""
    load_handlers()
    page = (ROOT / "docs/generated/rights.md").read_text()
    served = {kind >> 16 for kind in by_kind()}
    assert served <= {int(key) for key in KAFKA_RIGHTS} and len(served) > 40
    for module in (admin_pb2, controller_pb2, quorum_pb2, explain_pb2, inspection_pb2, bootstrap_pb2, login_pb2):
        for name, service in module.DESCRIPTOR.services_by_name.items():
            for method in service.methods:
                assert f"{name}/{method.name}" in RPC_RIGHTS
                assert method.name in page
    assert all(ApiKey(key).name.replace("_", "").lower() in page.replace("_", "").lower() for key in served)


# -- Redpanda ----------------------------------------------------------------------------------------------------------


def test_cve_2023_24619_credentials_come_by_file_or_prompt_and_are_printed_nowhere() -> None:
    """A tool printed them. No option of ours takes a password; what `dev --secure` prints: test_secured_grpc.py."""

    def options(command: Any, path: str) -> list[tuple[str, str]]:
        found = [(path, name) for option in command.params for name in option.opts]
        if hasattr(command, "list_commands"):
            context = click.Context(command)
            for name in command.list_commands(context):
                found += options(command.get_command(context, name), f"{path} {name}")
        return found

    names = options(cli, "barnabas")
    assert len(names) > 100
    assert not [each for each in names if re.search(r"password|secret|credential|token", each[1])]


@pytest.mark.parametrize(
    "change",
    [
        {"ssl.keystore.location": "/nowhere.pem"},
        {"ssl.truststore.location": ""},
        {"ssl.enabled.protocols": "TLSv1.1"},
        {"ssl.keystore.type": "JKS"},
        {"ssl.enabled.protocols": "TLSv1.3"},
    ],
)
def test_cve_2023_30450_tls_that_cannot_be_applied_stops_the_start(change: dict[str, str]) -> None:
    """A setting was ignored, and what was to be encrypted was not. All of them: test_grpc_security.py, test_listener_security.py."""
    properties = broker_properties() | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
        "ssl.keystore.location": __file__,
        "ssl.truststore.location": __file__,
    }
    with pytest.raises(ConfigError, match=r"ssl\."):
        node_config(properties | change)


@pytest.mark.parametrize("address", ["0.0.0.0:9190", "[::]:9190", "10.1.2.3:9190", "example:9190"])
def test_cve_2026_82266_an_admin_listener_is_not_open_by_default(address: str) -> None:
    """Whoever reached it administered the cluster."""
    with pytest.raises(ConfigError, match=r"admin\.listeners\.allow\.remote"):
        node_config(broker_properties(admin_listeners=address))
    assert all(text.startswith("127.0.0.1:") for text in node_config(broker_properties()).server.admin_listeners)


async def test_cve_2026_123270_no_http_door_takes_a_thing_from_strangers() -> None:
    """An HTTP API without a login ran pipelines, and with them programs. Ours: metrics, to be read alone, and the console."""

    async def well() -> tuple[list[str], int]:
        return [], 1

    server = HttpServer(
        addresses=[("127.0.0.1", 0)],
        render=lambda: (b"m 1\n", "text/plain"),
        find_dead=list,
        find_unready=list,
        find_health=well,
    )
    await server.start()
    for method in ("POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"):
        for path in ("/metrics", "/", "/streams/x", "/../../etc/passwd"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            assert (await reader.read()).split(b" ")[1] in (b"405", b"404", b"400"), (method, path)
            writer.close()
    await server.close()
    refused = CliRunner().invoke(cli, ["console", "--host", "0.0.0.0", "--port", "0", "-b", "127.0.0.1:1"])
    assert refused.exit_code != 0 and "nobody signs in to the console" in refused.output


# -- NATS --------------------------------------------------------------------------------------------------------------


class _Ending:
    """A mechanism whose credential ends."""

    user: str | None = None
    claimed = ""
    expires_ms: int | None = 5_000
    is_by_delegation_token = False

    def __init__(self, user: str = "alice") -> None:
        self._user = user

    def step(self, token: bytes) -> bytes:
        """Lets in."""
        self.user = self._user
        return b""


def test_cve_2020_26892_expired_credentials_are_not_honoured() -> None:
    session = SaslSession({"M": _Ending})
    session.choose("M", 1)
    assert session.authenticate(b"", 1_000) == (b"", 4_000)
    assert session.admits(ApiKey.FETCH, 4_999) and not session.admits(ApiKey.FETCH, 5_000)


def test_cve_2022_24450_nobody_becomes_somebody_else() -> None:
    """A dynamic account could become another. Here a connection keeps its principal, also through a new login."""
    users = iter(["alice", "admin"])
    session = SaslSession({"M": lambda: _Ending(next(users))})
    session.choose("M", 1)
    session.authenticate(b"", 0)
    session.choose("M", 1)
    with pytest.raises(KafkaError, match="cannot become another"):
        session.authenticate(b"", 0)
    assert not session.admits(ApiKey.METADATA, 0)


@pytest.mark.parametrize("part", ["header", "claims", "keys"])
def test_cve_2020_28466_what_refers_to_itself_without_end_is_refused(part: str) -> None:
    """Accounts that imported from each other ended the process by a stack without end. What strangers can nest here: JSON of tokens."""
    deep = b"[" * 50_000
    if part == "keys":
        with pytest.raises(ValueError, match="not a JWKS"):
            parse_jwks(b'{"keys":' + deep)
        return
    key = jwt.PyJWK(json.loads(jwt.algorithms.ECAlgorithm.to_jwk(SIGNING_KEY.public_key())) | {"alg": "ES256"})
    header = deep if part == "header" else json.dumps({"alg": "ES256", "typ": "JWT"}).encode()
    signed = b".".join(base64.urlsafe_b64encode(each).rstrip(b"=") for each in (header, deep))
    signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(signed, SIGNING_KEY)
    token = (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()
    with pytest.raises(LoginRefused, match="not valid"):
        verify_token(
            token, rules=TokenRules(algorithms=("ES256",), issuer="i", audiences=("a",)), find_key=lambda _: key
        )


def test_go_2024_2850_one_setting_of_tls_drops_no_other(tmp_path: Path) -> None:
    """An option on the command line for one part of TLS dropped the cipher suites of the file. Ours: keys of one listener beside all's."""
    pki.init(tmp_path)
    pki.issue(tmp_path, "node", hosts=["localhost"])
    everywhere = {
        "listener.security.protocol.map": f"{LISTENER}:SSL",
        "ssl.keystore.location": str(tmp_path / "node.pem"),
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.cipher.suites": "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ssl.enabled.protocols": "TLSv1.2",
        "ssl.client.auth": "required",
    }
    prefix = f"listener.name.{LISTENER.lower()}."
    for own in (
        {},
        {"ssl.keystore.location": everywhere["ssl.keystore.location"]},
        {"ssl.principal.mapping.rules": "DEFAULT"},
    ):
        tls = load_listeners([LISTENER], everywhere | {prefix + key: value for key, value in own.items()})[LISTENER].tls
        assert tls is not None
        names = {each["name"] for each in tls.context.get_ciphers() if each["protocol"] != "TLSv1.3"}
        assert names == {"ECDHE-ECDSA-AES256-GCM-SHA384"}
        assert tls.context.maximum_version is ssl.TLSVersion.TLSv1_2 and tls.context.verify_mode is ssl.CERT_REQUIRED


class _Denied:
    """A server on which everybody may read a topic until it is denied."""

    def __init__(self) -> None:
        self._acls = AclsImage(entries={Uuid(b"\1" * 16): entry("User:*", AclOperation.READ, TOPIC)})
        control = AccessControl(Authorizer(), acls=lambda: self._acls)
        self.services = make_services(access=control, replica_manager=RememberingReplicas())

    def deny(self, pattern: AclPatternType) -> None:
        """Beside what is allowed."""
        name = TOPIC if pattern is AclPatternType.LITERAL else TOPIC[:2]
        denied = entry("User:*", AclOperation.READ, name, pattern=pattern, permission=AclPermission.DENY)
        self._acls = AclsImage(entries={**self._acls.entries, Uuid(b"\2" * 16): denied})

    @staticmethod
    async def fetch(client: RawClient, version: int) -> ErrorCode:
        """The same bytes each time, as a consumer polls."""
        asked = FetchTopic(
            topic=TOPIC, topic_id=TOPIC_ID, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)]
        )
        answer = await client.call(FetchRequest(max_wait_ms=0, topics=[asked]), version)
        return ErrorCode(answer.responses[0].partitions[0].error_code)


@pytest.mark.parametrize("pattern", [AclPatternType.LITERAL, AclPatternType.PREFIXED])
@pytest.mark.parametrize("version", [4, 11, 12, 13, 16])
async def test_cve_2026_33217_and_58214_a_denial_holds_by_whatever_name(version: int, pattern: AclPatternType) -> None:
    """Rights were checked for one way to name a thing and not for another, and after the first fix for a third. Ours: name and id."""
    denied = _Denied()
    async with connected(denied.services) as (_, client):
        assert await denied.fetch(client, version) is ErrorCode.NONE
        denied.deny(pattern)
        assert await denied.fetch(client, version) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_nats_advisory_2026_18_and_cve_2026_58209_a_denial_counts_on_every_way_to_a_record() -> None:
    """Denied subjects came by a queue, and again by a replay. Ours: a poll that is known by its bytes, and one that waits."""
    denied = _Denied()
    async with connected(denied.services) as (server, client):
        for _ in range(3):  # from the second on it is recognised
            assert await denied.fetch(client, 12) is ErrorCode.NONE
        other = await RawClient.connect(server)
        denied.deny(AclPatternType.LITERAL)
        assert await denied.fetch(client, 12) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await denied.fetch(other, 12) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        session = await other.call(FetchRequest(session_id=7, session_epoch=1), 12)
        assert ErrorCode(session.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (
            "no session remembers what was allowed"
        )


async def test_cve_2026_27571_nothing_is_decompressed_before_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed bomb came in over a WebSocket."""

    def no_decompression(*_: Any, **__: Any) -> bytes:
        raise AssertionError("a stranger had something decompressed")

    monkeypatch.setattr("barnabas_wire.records.compression.decompress", no_decompression)
    async with running_server(make_services(), security=load_listeners([LISTENER], SASL)[LISTENER]) as server:
        for api_key in ApiKey:
            if api_key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
                continue
            client = await RawClient.connect(server)
            await client.send(struct.pack(">ihhih", 1010, api_key, 0, 1, -1) + bytes(1000))
            with contextlib.suppress(ConnectionError):
                assert await client.reader.read(1) == b"", api_key
        assert server.stats.connections_closed["bug"] == 0


def test_cve_2026_33216_and_33247_files_with_secrets_are_their_owners_alone(tmp_path: Path) -> None:
    """Passwords stood in plain text in what was monitored. Logs and metrics: test_secured_grpc.py."""
    file = tmp_path / "server.properties"
    for line in (
        "delegation.token.secret.key=of all tokens",
        "ssl.key.password=the key's password",
        "listener.name.clients.scram-sha-512.sasl.jaas.config=x.ScramLoginModule required;",
    ):
        file.write_text(f"{line}\n")
        file.chmod(0o640)
        with pytest.raises(ConfigError, match="chmod 600") as refused:
            read_properties(file)
        assert line.partition("=")[2] not in refused.value.message
        file.chmod(0o600)
        assert read_properties(file)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=alice,OU=people", "alice"),
        ("OU=people,CN=alice", None),
        ("CN=alice\\,OU=admins,OU=people", None),
        ("CN=admin+CN=alice,OU=people", None),
        ("CN=alice,OU=people,CN=admin", None),
        ("CN=alice,OU=people\nCN=admin", None),
    ],
)
def test_cve_2026_33248_a_mapping_takes_the_whole_subject(subject: str, name: str | None) -> None:
    """Distinguished names of another order or with a repeated part were taken for somebody else's."""
    assert map_subject(parse_rules(r"RULE:^CN=([a-z]+),OU=people$/$1/"), subject) == name


async def test_cve_2026_33218_and_58250_garbage_at_the_peers_door_costs_its_connection_alone() -> None:
    """Before any login a peer listener could be made to crash."""
    async with quorum_listener() as (channel, port):
        stub = quorum_pb2_grpc.QuorumStub(channel)
        for garbage in (
            b"",
            b"\x00" * 4096,
            b"GET / HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096,
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.close()
        for raw in (b"\xff" * 64, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x00" * 10_000):
            call: Any = channel.unary_unary("/barnabas.quorum.v1.Quorum/FetchSnapshot")
            with pytest.raises(grpc.aio.AioRpcError):
                await call(raw, timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as alive:
            await stub.Vote(quorum_pb2.VoteCall(), timeout=5)
        assert alive.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_nats_advisory_2026_16_a_request_of_brokers_needs_a_login_too() -> None:
    """On a connection between servers a client's fast path was taken before it had authenticated."""
    async with connected(make_services(), security=load_listeners([LISTENER], SASL)[LISTENER]) as (server, client):
        await client.send(client.frame(FetchRequest(replica_id=1), 12)[1])
        assert await client.reader.read(1) == b""
        assert server.stats.connections_closed["authentication"] == 1


# -- kafka-python ------------------------------------------------------------------------------------------------------


async def test_cve_2026_10142_our_client_bounds_the_frames_of_a_broker() -> None:
    """Our inter-broker connections are clients too."""

    async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(struct.pack(">i", 0x7FFFFFFF) + bytes(64))
        await writer.drain()
        await reader.read()

    liar = await asyncio.start_server(lie, "127.0.0.1", 0)
    port = liar.sockets[0].getsockname()[1]
    assert RESPONSE_BYTES_MAX < 0x7FFFFFFF
    with bounded_memory(), pytest.raises((KafkaError, ConnectionError)):
        await AioConnection.connect("127.0.0.1", port, client_id="c", timeout_s=5)
    liar.close()


@pytest.mark.parametrize("iterations", [ITERATIONS_MAX * 2000, ITERATIONS_MAX * 10 - 1, ITERATIONS_MAX + 1])
@pytest.mark.attack("A8", "our SCRAM client bounds a broker's iterations")
def test_cve_2026_10143_our_client_bounds_the_iterations_of_a_broker(iterations: int) -> None:
    """A broker that asks for 2 billion keeps the client busy for an hour."""
    steps = login_steps(SaslLogin("SCRAM-SHA-256", "alice", "hers"))
    assert isinstance(next(steps), SaslHandshakeRequest)
    first = steps.send(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
    assert isinstance(first, SaslAuthenticateRequest)
    nonce = bytes(first.auth_bytes).decode().partition("r=")[2]
    answer = f"r={nonce}server,s=c2FsdHNhbHQ=,i={iterations}"
    started = time.monotonic()
    with pytest.raises(KafkaError, match="more iterations") as refused:
        steps.send(SaslAuthenticateResponse(auth_bytes=answer.encode()))
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED and time.monotonic() - started < 1
