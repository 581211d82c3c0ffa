"""Laws of the metrics listener: what it answers, and that no client can hold it up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from barnabas_broker.metrics import http
from barnabas_broker.metrics.http import CONNECTIONS_MAX, REQUEST_BYTES_MAX, HttpServer


class Node:
    """What the server asks."""

    def __init__(self) -> None:
        self.dead: list[str] = []
        self.unready: list[str] = []
        self.amiss: list[str] = []
        self.port = 0
        self.renders = 0
        self.is_held = threading.Event()
        self.is_held.set()

    async def find_health(self) -> tuple[list[str], int]:
        return self.amiss, 3

    def render(self) -> tuple[bytes, str]:
        self.renders += 1
        self.is_held.wait(10)
        return b"barnabas_up 1\n", "text/plain; version=0.0.4"


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    found = Node()
    server = HttpServer(
        addresses=[("127.0.0.1", 0)],
        render=found.render,
        find_dead=lambda: found.dead,
        find_unready=lambda: found.unready,
        find_health=found.find_health,
    )
    await server.start()
    (found.port,) = server.ports
    yield found
    await server.close()


async def send(node: Node, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def get(node: Node, path: str, method: str = "GET") -> tuple[int, bytes, bytes]:
    answer = await send(node, f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:9404\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head, body


async def test_metrics_come_with_their_content_type_and_length(node: Node) -> None:
    status, head, body = await get(node, "/metrics")
    assert (status, body) == (200, b"barnabas_up 1\n")
    assert b"Content-Type: text/plain; version=0.0.4" in head
    assert b"Content-Length: 14" in head


async def test_a_query_does_not_change_the_path(node: Node) -> None:
    assert (await get(node, "/metrics?name[]=x"))[0] == 200


async def test_head_has_no_body(node: Node) -> None:
    status, head, body = await get(node, "/metrics", "HEAD")
    assert (status, body) == (200, b"")
    assert b"Content-Length: 14" in head


async def test_who_has_no_grpc_hears_how_the_cluster_is(node: Node) -> None:
    assert (await get(node, "/healthz"))[::2] == (200, b"controller 3\n")
    node.amiss = ["leaderless", "broker_down"]
    assert (await get(node, "/healthz"))[::2] == (503, b"leaderless\nbroker_down\ncontroller 3\n")


@pytest.mark.parametrize(("path", "attribute"), [("/livez", "dead"), ("/readyz", "unready")])
async def test_a_probe_fails_with_its_reasons(node: Node, path: str, attribute: str) -> None:
    assert (await get(node, path))[::2] == (200, b"ok\n")
    setattr(node, attribute, ["first reason", "second reason"])
    assert (await get(node, path))[::2] == (503, b"first reason\nsecond reason\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"\x00\x01\x02\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * (2 * REQUEST_BYTES_MAX), b"431"),
    ],
)
async def test_what_is_no_good_request_is_refused(node: Node, request_bytes: bytes, status: bytes) -> None:
    assert (await send(node, request_bytes)).split(b" ")[1] == status
    assert (await get(node, "/livez"))[0] == 200


async def test_a_slow_client_is_dropped(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "READ_TIMEOUT_S", 0.05)
    assert await send(node, b"GET /metrics HTTP/1.1\r\n") == b""


@pytest.mark.attack("A6", "silent connections to the metrics port fail no probe")
async def test_probes_come_through_whoever_stays_silent(node: Node) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(CONNECTIONS_MAX)]
    assert (await get(node, "/livez"))[0] == 200
    assert await idle[0][0].read() == b"", "the one that was silent for longest made room"
    for reader, writer in idle[1:]:
        assert not reader.at_eof()
        writer.close()


@pytest.mark.attack("A9", "no rebound name reads the metrics on loopback")
async def test_no_name_of_another_site_reads_what_is_on_loopback(node: Node) -> None:
    for host, status in [
        ("evil.example", b"403"),
        ("localhost.evil.example:9404", b"403"),
        ("", b"403"),
        ("LOCALHOST:1", b"200"),
        ("[::1]:9404", b"200"),
        ("10.0.0.1", b"200"),
    ]:
        answer = await send(node, f"GET /metrics HTTP/1.1\r\nhost:{host}\r\n\r\n".encode())
        assert answer.split(b" ")[1] == status, host


@pytest.mark.parametrize("scheme", ["http", "HTTP", "https"])
async def test_a_target_in_absolute_form_is_its_path(node: Node, scheme: str) -> None:
    """As a proxy forwards it (RFC 9112 3.2.2); its authority is asked for as the Host header is."""

    async def ask(target: str, host: str = "localhost") -> tuple[bytes, bytes]:
        answer = await send(node, f"GET {scheme}://{target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return answer.split(b" ")[1], answer.partition(b"\r\n\r\n")[2]

    assert await ask("127.0.0.1:9404/metrics?x=y") == (b"200", b"barnabas_up 1\n")
    assert (await ask("localhost/livez"))[0] == b"200"
    assert (await ask("localhost"))[0] == b"404"
    assert (await ask("evil.example/metrics"))[0] == b"403"
    assert (await ask("evil.example@127.0.0.1/metrics"))[0] == b"403"
    assert (await ask("127.0.0.1/metrics", "evil.example"))[0] == b"403"


async def test_scrapes_that_wait_together_are_rendered_once(node: Node) -> None:
    node.is_held.clear()
    first = asyncio.create_task(get(node, "/metrics"))
    while not node.renders:
        await asyncio.sleep(0.001)
    others = [asyncio.create_task(get(node, "/metrics")) for _ in range(8)]
    assert (await get(node, "/livez"))[0] == 200  # they have come by then
    node.is_held.set()
    assert [answer[0] for answer in await asyncio.gather(first, *others)] == [200] * 9 and node.renders == 2
