"""The node's own small HTTP server: /metrics, /livez, /readyz, /healthz on metrics.listeners.

May touch:  sockets, through asyncio.      Must not touch: what the answers are made of (exporter.py, health).
Invariants: a request is at most REQUEST_BYTES_MAX and READ_TIMEOUT_S long; at most CONNECTIONS_MAX at a time, of which the one that
            has been silent for longest makes room: probes always come through; one request per connection; nothing that a
            client sends can reach another connection or stop the server; scrapes that wait together are rendered once.
Read next:  exporter.py.

Served: GET and HEAD, HTTP/1.0 and 1.1. 200 or 503 for /livez and /readyz, with the reason as text; 404, 405, 400, 431
otherwise. On loopback a Host that is neither an address nor localhost is refused (403): a page of another site would read this
through a browser of the host (DNS rebinding). /livez: the lanes turn. /readyz: this node can do its work now (never the state of
the whole cluster: a node must not be taken out of service because another one is down). /healthz: the state of the whole cluster as
this node sees it, for people and tools without gRPC: the reasons why it is not well, then `controller N`, the active one or -1.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Sequence

from barnabas_broker.network.host_address import hosts_to_bind

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 * 1024
READ_TIMEOUT_S = 5.0
WRITE_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 32

TEXT = "text/plain; charset=utf-8"

Reasons = Callable[[], Sequence[str]]
"""Why the node is not well; empty when it is."""
ClusterHealth = Callable[[], Awaitable[tuple[Sequence[str], int]]]
"""Why the cluster is not well, and its active controller."""


class HttpServer:
    """Serves one node's metrics and probes, on the lane where `run` is called.

    Args:
        addresses: (host, port) to bind; port 0 takes a free one.
        render: the /metrics body and its content type.
            It runs in a thread: thousands of series would block the lane.
        find_dead: reasons why the node is not alive.
        find_unready: reasons why the node cannot serve.
        find_health: asks how the cluster is.
    """

    def __init__(
        self,
        *,
        addresses: Sequence[tuple[str, int]],
        render: Callable[[], tuple[bytes, str]],
        find_dead: Reasons,
        find_unready: Reasons,
        find_health: ClusterHealth,
    ) -> None:
        self._addresses = tuple(addresses)
        self._render = render
        self._probes = {"/livez": find_dead, "/readyz": find_unready}
        self._find_health = find_health
        self._servers: list[asyncio.Server] = []
        self._open = 0
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Connections that have sent no whole request yet, the oldest first."""
        self._to_render: asyncio.Future[tuple[bytes, str]] | None = None
        """The next text, if somebody waits for it."""
        self._rendering = asyncio.Lock()

    async def start(self) -> None:
        """Bind and listen; raises OSError when an address is taken."""
        for host, port in self._addresses:
            hosts = hosts_to_bind(host, port, self._addresses)
            server = await asyncio.start_server(self._serve, hosts, port, limit=REQUEST_BYTES_MAX)
            self._servers.append(server)

    @property
    def ports(self) -> list[int]:
        """The ports really bound."""
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def close(self) -> None:
        """Stop listening; an answer on its way is given up."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: read one request, answer it, close. Streams own the task."""
        self._open += 1
        self._silent[writer] = None
        try:
            if self._open > CONNECTIONS_MAX:
                longest = next(iter(self._silent))
                self._silent.pop(longest)
                longest.transport.abort()
            async with asyncio.timeout(READ_TIMEOUT_S):
                answer = await self._read_and_answer(reader, writer)
            writer.write(answer)
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await writer.drain()
        except (asyncio.IncompleteReadError, TimeoutError, OSError) as error:
            logger.debug("metrics connection ended: %r", error)
        finally:
            self._open -= 1
            self._silent.pop(writer, None)
            writer.close()

    async def _read_and_answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large", b"the request is too large\n")
        self._silent.pop(writer, None)
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"this is not HTTP/1\n")
        if words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET and HEAD\n", extra="Allow: GET, HEAD\r\n")
        target = words[1].decode("latin-1")
        authority = None
        if target.lower().startswith(("http://", "https://")):  # as a proxy forwards it (RFC 9112 3.2.2)
            authority, slash, rest = target.partition("://")[2].partition("/")
            target = slash + rest
        if not _is_own_host(head, authority, writer):
            return _response("403 Forbidden", b"ask by an address or by localhost\n")
        return await self._answer(target.partition("?")[0], is_head=words[0] == b"HEAD")

    async def _answer(self, path: str, *, is_head: bool) -> bytes:
        if path == "/metrics":
            body, content_type = await self._render_once()
            return _response("200 OK", body, content_type=content_type, is_head=is_head)
        if path == "/healthz":
            reasons, controller_id = await self._find_health()
            body = "".join(f"{line}\n" for line in (*reasons, f"controller {controller_id}")).encode()
            return _response("503 Service Unavailable" if reasons else "200 OK", body, is_head=is_head)
        find_reasons = self._probes.get(path)
        if find_reasons is None:
            return _response("404 Not Found", b"see /metrics, /livez, /readyz, /healthz\n", is_head=is_head)
        reasons = find_reasons()
        if reasons:
            return _response("503 Service Unavailable", ("\n".join(reasons) + "\n").encode(), is_head=is_head)
        return _response("200 OK", b"ok\n", is_head=is_head)

    async def _render_once(self) -> tuple[bytes, str]:
        """A text that is made after this call; one at a time, for with many series each takes 0.2 s of CPU."""
        if self._to_render is None:
            self._to_render = asyncio.ensure_future(self._render_next())
        return await asyncio.shield(self._to_render)

    async def _render_next(self) -> tuple[bytes, str]:
        async with self._rendering:
            self._to_render = None  # a request from now on waits for another
            return await asyncio.to_thread(self._render)


def _is_own_host(head: bytes, authority: str | None, writer: asyncio.StreamWriter) -> bool:
    """Whether a request on loopback names an address or localhost, in its Host header and in the target's `authority` if it has
    one. Elsewhere scrapers come by names that only others know."""
    if not ipaddress.ip_address(writer.get_extra_info("sockname")[0]).is_loopback:
        return True
    named = re.search(rb"\r\nhost:[ \t]*([^\r\n]*?)[ \t]*\r\n", head, re.IGNORECASE)
    names = [] if named is None else [named[1].decode("latin-1")]
    return all(_is_address_or_localhost(name) for name in (*names, *([] if authority is None else [authority])))


def _is_address_or_localhost(name: str) -> bool:
    host = re.sub(r":\d+$", "", name).strip("[]")
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _response(status: str, body: bytes, *, content_type: str = TEXT, is_head: bool = False, extra: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\n{extra}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if is_head else body)
