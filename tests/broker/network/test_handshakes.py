"""Sockets before TLS stands: turns, limits, and clients that do not come to the point."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from barnabas_admin import pki
from barnabas_broker.network import handshakes
from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.network.handshakes import HandshakeTurns, TlsHandshake
from barnabas_broker.network.listener import KafkaServer
from barnabas_broker.security.listener_security import ListenerSecurity, load_listeners
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from tests.support.listener import LISTENER, RawClient, connected, make_services, running_server, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    pki.init(directory)
    pki.issue(directory, "node", hosts=["127.0.0.1"])
    return directory


@pytest.fixture
def security(authority: Path) -> ListenerSecurity:
    properties = {
        "listener.security.protocol.map": f"{LISTENER}:SSL",
        "ssl.keystore.location": str(authority / "node.pem"),
    }
    return load_listeners([LISTENER], properties)[LISTENER]


def trusting(authority: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority / "ca.pem"))


def count_is(server: KafkaServer, count: int) -> bool:
    return len(server.connections) == count


class Waiting:
    """Stands for a handshake that waits."""

    def __init__(self, client_host: str) -> None:
        self.client_host = client_host


def joined(turns: HandshakeTurns, *addresses: str) -> list[Waiting]:
    found = [Waiting(address) for address in addresses]
    for each in found:
        turns.join(cast(TlsHandshake, each))
    return found


def test_turns_come_at_the_rate_after_a_second_of_rest() -> None:
    turns = HandshakeTurns(10)
    joined(turns, *["a"] * 30)
    assert [turns.take(100.0) is not None for _ in range(12)] == [True] * 10 + [False] * 2
    assert turns.wait_s(100.0) == pytest.approx(0.1) and turns.take(100.05) is None
    assert turns.take(100.1001) is not None and turns.take(100.1001) is None
    assert [turns.take(200.0) is not None for _ in range(11)] == [True] * 10 + [False]


@pytest.mark.attack("A6", "addresses take turns to shake hands")
def test_addresses_take_turns_and_who_leaves_takes_none() -> None:
    turns = HandshakeTurns(10)
    greedy = joined(turns, *["greedy"] * 5)
    honest = joined(turns, "honest", "honest")
    turns.leave(cast(TlsHandshake, greedy[1]))
    turns.leave(cast(TlsHandshake, Waiting("nobody")))
    order = [turns.take(100.0) for _ in range(4)]
    assert order == [greedy[0], honest[0], greedy[2], honest[1]]


@pytest.mark.attack("A6", "silent sockets delay no honest TLS handshake")
async def test_silent_sockets_delay_no_handshake(
    security: ListenerSecurity, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They took turns: 260 a second from one address kept an honest client waiting for half a minute."""
    monkeypatch.setattr(handshakes, "SILENT_MAX", 20)
    config = NetworkConfig(tls_handshakes_per_second_max=2)
    async with running_server(make_services(), config=config, security=security) as server:
        silent = [await RawClient.connect(server) for _ in range(40)]
        async with asyncio.timeout(5):
            client = await RawClient.connect(server, tls=trusting(authority))
            assert (await client.call(MetadataRequest(topics=None), 12)).topics
        await until(lambda: server.stats.connections_closed["limit"] >= 20)
        assert len(server.handshakes) <= 20
        for each in silent:
            each.writer.close()
        await until(lambda: not server.handshakes)


async def test_who_comes_later_waits_and_is_served(security: ListenerSecurity, authority: Path) -> None:
    config = NetworkConfig(tls_handshakes_per_second_max=10)
    loop = asyncio.get_running_loop()
    async with running_server(make_services(), config=config, security=security) as server:
        started = loop.time()
        clients = [asyncio.create_task(RawClient.connect(server, tls=trusting(authority))) for _ in range(15)]
        for client in await asyncio.gather(*clients):
            assert (await client.call(MetadataRequest(topics=None), 12)).topics
        assert 0.4 < loop.time() - started < 5


async def test_who_would_wait_too_long_gets_no_handshake(
    security: ListenerSecurity, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_TIMEOUT_S", 0.7)
    config = NetworkConfig(tls_handshakes_per_second_max=2)
    async with running_server(make_services(), config=config, security=security) as server:
        for _ in range(6):  # begins a handshake and does not go on
            await (await RawClient.connect(server)).send(b"\x16\x03\x01")
        await until(lambda: server.stats.connections_closed["limit"] == 3)  # two at once, one after 0.5 s
        await until(lambda: server.stats.connections_closed["handshake"] == 3)
        assert not server.handshakes and not server.addresses


async def test_who_says_nothing_or_no_tls_is_closed(
    security: ListenerSecurity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_TIMEOUT_S", 0.3)
    async with running_server(make_services(), security=security) as server:
        silent = await RawClient.connect(server)
        plain = await RawClient.connect(server)
        await plain.send(b"GET / HTTP/1.1\r\n\r\n")
        for client in (silent, plain):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):  # an alert may come before the end
                await client.reader.readexactly(100)
        await until(lambda: server.stats.connections_closed["handshake"] == 2)
        assert not server.handshakes and not server.addresses and not server.connections


async def test_a_request_that_comes_with_the_handshake_is_answered(security: ListenerSecurity, authority: Path) -> None:
    """A client of TLS 1.3 may send it in one flight with its last message."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_tls = trusting(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    async with connected(make_services(), security=security) as (_, client):
        while True:
            try:
                client_tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await client.send(outgoing.read())
                incoming.write(await client.reader.read(65536))
        client_tls.write(client.frame(MetadataRequest(topics=None), 12)[1])
        await client.send(outgoing.read())  # both in one segment
        answer = b""
        while len(answer) < 8:
            try:
                answer += client_tls.read(65536)
            except ssl.SSLWantReadError:
                received = await asyncio.wait_for(client.reader.read(65536), 5)
                assert received, "the connection was closed"
                incoming.write(received)
        assert int.from_bytes(answer[:4], "big") + 4 == len(answer)


async def test_an_address_has_so_many_connections(security: ListenerSecurity, authority: Path) -> None:
    config = NetworkConfig(max_connections_per_ip=1, max_connections_per_ip_overrides=("127.0.0.1:3", "[::1]:7"))
    assert config.address_overrides() == {"127.0.0.1": 3, "::1": 7}
    for listener_security in (None, security):
        tls = None if listener_security is None else trusting(authority)
        async with running_server(make_services(), config=config, security=listener_security) as server:
            clients = [await RawClient.connect(server, tls=tls) for _ in range(3)]
            await until(partial(count_is, server, 3))
            one_more = await RawClient.connect(server)
            assert await one_more.reader.read(1) == b""
            assert server.stats.connections_closed["limit"] == 1
            clients.pop().writer.close()
            await until(partial(count_is, server, 2))
            assert (await (await RawClient.connect(server, tls=tls)).call(MetadataRequest(topics=None), 12)).topics


@pytest.mark.parametrize("entry", ["127.0.0.1", "localhost:1", "127.0.0.1:x", ":3"])
def test_an_override_that_cannot_be_read_does_not_start(entry: str) -> None:
    with pytest.raises(ValueError, match="ADDRESS:COUNT"):
        NetworkConfig(max_connections_per_ip_overrides=(entry,))
