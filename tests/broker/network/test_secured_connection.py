"""Connections of secured listeners: what is served before a login, TLS in both directions, names from certificates."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import struct
from pathlib import Path

import pytest

from barnabas_admin import pki
from barnabas_broker.api import sasl as sasl_api
from barnabas_broker.network import connection as connection_module
from barnabas_broker.network import tls_output
from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.security.access import AccessControl
from barnabas_broker.security.audit import AuditLog
from barnabas_broker.security.audit_config import AuditConfig
from barnabas_broker.security.listener_security import ListenerSecurity, load_listeners
from barnabas_log.disk import File, RealDisk
from barnabas_quorum.image.acls import EMPTY_ACLS
from barnabas_quorum.image.authorizer import Authorizer
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.properties import client_security
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.listener import (
    LISTENER,
    TOPIC,
    RawClient,
    RememberingReplicas,
    connected,
    make_services,
    running_server,
    until,
)

LINE = 'x.PlainLoginModule required user_alice="hers";'
RIGHT = b"\0alice\0hers"


def sasl_security(**more: str) -> ListenerSecurity:
    return secured("SASL_PLAINTEXT", **more)


def secured(protocol: str, **more: str) -> ListenerSecurity:
    properties = {
        "listener.security.protocol.map": f"{LISTENER}:{protocol}",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": LINE,
        **more,
    }
    return load_listeners([LISTENER], properties)[LISTENER]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    pki.init(directory)
    pki.issue(directory, "node", hosts=["127.0.0.1"])
    pki.issue(directory, "alice")
    other = tmp_path_factory.mktemp("other")
    pki.init(other)
    pki.issue(other, "mallory")
    (other / "mallory.pem").rename(directory / "mallory.pem")
    return directory


def files(authority: Path) -> dict[str, str]:
    return {"ssl.keystore.location": str(authority / "node.pem"), "ssl.truststore.location": str(authority / "ca.pem")}


def trusting(authority: Path, user: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    if user:
        context.load_cert_chain(authority / f"{user}.pem")
    return context


async def is_closed(client: RawClient) -> bool:
    try:
        return await client.reader.read(1) == b""
    except ConnectionError:
        return True


async def test_nothing_but_a_login_is_served_before_it() -> None:
    async with running_server(make_services(), security=sasl_security()) as server:
        for request, version in ((MetadataRequest(topics=None), 12), (FetchRequest(), 12)):
            client = await RawClient.connect(server)
            assert (await client.call(ApiVersionsRequest(), 3)).error_code == 0
            await client.send(client.frame(request, version)[1])
            assert await is_closed(client)
        assert server.stats.connections_closed["authentication"] == 2


async def test_a_client_that_logged_in_is_served_and_named() -> None:
    async with connected(make_services(), security=sasl_security()) as (server, client):
        handshake = await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (handshake.error_code, handshake.mechanisms) == (0, ["PLAIN"])
        assert (await client.call(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)).error_code == 0
        assert len((await client.call(MetadataRequest(topics=None), 12)).topics) == 1
        assert [each.principal for each in server.connections] == ["User:alice"]


@pytest.mark.attack("A6", "the connections kept for brokers serve followers that log in")
async def test_when_clients_have_all_connections_a_follower_that_logs_in_still_gets_one() -> None:
    config = NetworkConfig(max_connections=1, inter_broker_connections_reserved=1)
    request = fetch_of_one()
    request.replica_id, request.replica_state = 2, ReplicaState(replica_id=2, replica_epoch=1)
    access = AccessControl(Authorizer(super_users=["User:alice"]), acls=lambda: EMPTY_ACLS)
    users = sasl_security(**{"plain.sasl.jaas.config": LINE.replace(";", ' user_bob="his";')})
    async with running_server(make_services(access=access), config, security=users) as server:
        stranger = await RawClient.connect(server)
        await until(lambda: len(server.connections) == 1)
        for name, token, is_let_in in (("bob", b"\0bob\0his", False), ("alice", RIGHT, True)):
            follower = await RawClient.connect(server)
            await follower.call(ApiVersionsRequest(), 3)
            await follower.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert (await follower.call(SaslAuthenticateRequest(auth_bytes=token), 2)).error_code == 0
            if is_let_in:
                assert (await follower.call(request, 17)).error_code == 0, name
            else:
                await follower.send(follower.frame(request, 17)[1])
                assert await is_closed(follower), name
        stranger.writer.close()


@pytest.mark.parametrize(
    ("mechanism", "token", "code"),
    [
        ("PLAIN", b"\0alice\0his", ErrorCode.SASL_AUTHENTICATION_FAILED),
        ("SCRAM-SHA-512", b"", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_a_refused_client_gets_the_reason_and_is_closed(
    mechanism: str, token: bytes, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl_api, "REFUSAL_DELAY_S", 0.0)
    async with connected(make_services(), security=sasl_security()) as (_, client):
        answer = await client.call(SaslHandshakeRequest(mechanism=mechanism), 1)
        if not answer.error_code:
            answer = await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == code
        assert await is_closed(client)


async def test_who_does_not_log_in_in_time_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "LOGIN_TIMEOUT_S", 0.05)
    async with running_server(make_services(), security=sasl_security()) as server:
        assert await is_closed(await RawClient.connect(server))


async def test_a_frame_larger_than_a_login_closes_before_it_is_read() -> None:
    async with connected(make_services(), security=sasl_security()) as (server, client):
        await client.send(struct.pack(">ihhih", 50_000_000, ApiKey.PRODUCE, 9, 1, -1))
        assert await is_closed(client)
        assert server.stats.connections_closed["oversized"] == 1


async def test_a_login_that_has_expired_closes_at_the_next_request() -> None:
    now = [1_000]
    services = make_services(clock_ms=lambda: now[0])
    async with connected(services, security=sasl_security(**{"connections.max.reauth.ms": "500"})) as (_, client):
        for _ in range(2):
            await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            answer = await client.call(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 500)
            now[0] += 400
            await client.call(MetadataRequest(topics=None), 12)
        now[0] += 100
        await client.send(client.frame(MetadataRequest(topics=None), 12)[1])
        assert await is_closed(client)


async def test_without_sasl_a_handshake_is_out_of_place() -> None:
    async with connected(make_services()) as (_, client):
        answer = await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("cold", ["", "cold"])
async def test_ranges_of_files_go_through_tls_as_they_are(
    authority: Path, tmp_path: Path, cold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cold:
        monkeypatch.setattr(tls_output, "is_cached", lambda descriptor, position: False)
    content = random.Random(6).randbytes(9_000_000)
    (tmp_path / "log").write_bytes(content)
    replicas = RememberingReplicas()
    file: File = RealDisk().open(str(tmp_path / "log"))
    replicas.file = file
    replicas.ranges = [(100, 5_000_000), (7_000_000, 10), (5_500_000, 1_000_001)]
    expected = b"".join(content[at : at + size] for at, size in replicas.ranges)
    async with running_server(
        make_services(replica_manager=replicas), security=secured("SSL", **files(authority))
    ) as server:
        client = await RawClient.connect(server, tls=trusting(authority))
        frames = [client.frame(fetch_of_one(), 12) for _ in range(5)]
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _, frame in frames:
            await client.send(frame)
        await asyncio.sleep(0.2)
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        for correlation_id, _ in frames:
            answer = client.decode(ApiKey.FETCH, 12, correlation_id, await client.read_frame())
            assert bytes(answer.responses[0].partitions[0].records) == expected
        assert bool(server.stats.cold_reads) == bool(cold)
        await until(lambda: file._holders == 1)  # type: ignore[attr-defined]


async def test_a_client_that_never_reads_costs_a_bounded_amount_over_tls(authority: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(2_000_000))
    replicas = RememberingReplicas()
    file: File = RealDisk().open(str(tmp_path / "log"))
    replicas.file = file
    replicas.ranges = [(0, 2_000_000)]
    config = NetworkConfig(queued_response_bytes_max=3_000_000)
    services = make_services(replica_manager=replicas)
    async with running_server(services, config, security=secured("SSL", **files(authority))) as server:
        client = await RawClient.connect(server, tls=trusting(authority))
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(60):
            client.writer.write(client.frame(fetch_of_one(), 12)[1])
        await asyncio.sleep(0.5)
        (connection,) = server.connections
        assert connection._output.queued_bytes <= 5_100_000
        assert len(replicas.fetched) < 20
        client.writer.transport.abort()
        await until(lambda: not server.connections)
        await until(lambda: file._holders == 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("auth", "user", "principal"),
    [
        ("none", "alice", ANONYMOUS),
        ("requested", "", ANONYMOUS),
        ("requested", "alice", "User:alice"),
        ("required", "alice", "User:alice"),
        ("required", "node", None),
    ],
)
async def test_a_certificate_names_its_owner(authority: Path, auth: str, user: str, principal: str | None) -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(al[^,]*)$/$1/"}
    security = secured("SSL", **files(authority), **{"ssl.client.auth": auth}, **rules)
    async with running_server(make_services(), security=security) as server:
        client = await RawClient.connect(server, tls=trusting(authority, user))
        if principal is None:  # no rule takes it
            assert await is_closed(client)
            return
        assert (await client.call(ApiVersionsRequest(), 3)).error_code == 0
        assert [each.principal for each in server.connections] == [principal]


@pytest.mark.parametrize("user", ["", "mallory"], ids=["no certificate", "of another authority"])
@pytest.mark.attack("A4", "a certificate of a wrong authority is audited")
async def test_without_a_certificate_of_the_authority_nobody_gets_in(
    authority: Path, user: str, tmp_path: Path
) -> None:
    security = secured("SSL", **files(authority), **{"ssl.client.auth": "required"})
    path = tmp_path / "audit.log"
    audit = AuditLog(AuditConfig(audit_log_path=str(path)), node_id=1, clock_ms=lambda: 0)
    audit.start()
    async with running_server(make_services(audit=audit), security=security) as server:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            client = await RawClient.connect(server, tls=trusting(authority, user))
            await client.call(ApiVersionsRequest(), 3)
        assert not server.stats.requests
        await until(lambda: server.stats.connections_closed["handshake"])
    audit.close()
    (refused,) = [json.loads(line) for line in path.with_name("audit.log.login-refused").read_text().splitlines()]
    assert (refused["how"], refused["host"], refused["listener"]) == ("certificate", "127.0.0.1", LISTENER)


@pytest.mark.parametrize("password", ["hers", "his"])
async def test_our_own_client_gets_in_by_kafkas_properties(authority: Path, password: str) -> None:
    async with running_server(make_services(), security=secured("SASL_SSL", **files(authority))) as server:
        properties = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(authority / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": password,
        }
        host, port = server.bound[LISTENER]
        connecting = AioConnection.connect(host, port, client_id="c", timeout_s=5, security=client_security(properties))
        if password == "his":
            with pytest.raises(KafkaError, match="user or password is wrong"):
                await connecting
            return
        connection = await connecting
        assert len((await connection.call(MetadataRequest(topics=None), timeout_s=5)).topics) == 1
        await connection.close()


def fetch_of_one() -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=100_000_000,
        topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, partition_max_bytes=100_000_000)])],
    )
