"""The listeners of a node: bind, accept, bound the number of connections, flush their answers together, close the idle.

May touch:  sockets.                  Must not touch: frames (connection.py), handlers (api).
Invariants: every connection belongs to one listener and is in its server's set; a handler task belongs to the
            server's task group; a broken invariant found by a handler ends `run`, and with it the node; no request is taken
            up once `run` ends.
Read next:  connection.py.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas_broker.api.registry import REQUEST_BYTES_MAX, Api, api_of, by_kind, kinds_of
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.network.client_quotas import ClientQuotas
from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.network.connection import Connection
from barnabas_broker.network.handshakes import HandshakeTurns, TlsHandshake
from barnabas_broker.network.host_address import hosts_to_bind
from barnabas_broker.network.phases import measuring
from barnabas_broker.network.receive_buffers import ReceiveBuffers
from barnabas_broker.network.request_log import RequestLog
from barnabas_broker.network.request_memory import RELIEF_S, RequestMemory
from barnabas_broker.network.socket_calls import accept_unpaced
from barnabas_broker.network.stats import NetworkStats
from barnabas_broker.quota import QuotaConfig
from barnabas_broker.security.listener_security import ListenerSecurity
from barnabas_broker.security.logins import Logins
from barnabas_broker.security.principal_mapping import map_subject
from barnabas_broker.security.sasl.session import USER, SaslSession
from barnabas_broker.security.tls import ClientTls, ServerTls, subject_of
from barnabas_quorum.controller.tokens import token_hmac
from barnabas_quorum.image.quotas import QuotasImage
from barnabas_wire.kafka.errors import InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS

if TYPE_CHECKING:
    from barnabas_broker.security.sasl.scram import TokenVerifier

logger = logging.getLogger(__name__)

IDLE_SCAN_S_MAX = 10.0
CERTIFICATES_SCAN_S = 10.0
"""The time between two checks whether a certificate was renewed."""
KEYS_SCAN_S = 1.0
"""The time between two checks whether keys of tokens are to be fetched or read again."""
PROBATION_S = 5.0
"""How long a connection may take of the brokers' reserve without a request that only brokers send."""
CUT_OFF = "cut_off"
"""Why clients' connections are closed while this broker is cut off."""
REFUSED_LINE_INTERVAL_S = 60.0
"""The time between two lines about requests of one API that closed their connections: a client may send them as fast as
it can connect."""
ACCEPTED_AT_ONCE = 16
"""Connections that one listener accepts in a turn of the loop. asyncio takes as many as the backlog that it is given, and each is an
open descriptor before anybody can refuse it."""


class ListenAddress(NamedTuple):
    """Where one listener binds; port 0 takes a free one."""

    name: str
    host: str
    port: int
    security: ListenerSecurity | None = None
    """None: plain text."""
    bound: socket.socket | None = None
    """A socket that is bound there already; None: the server binds one when it starts."""


def stopwatch_ms() -> float:
    """Time since some moment of this process; never jumps."""
    return perf_counter() * 1000


class KafkaServer:
    """All Kafka listeners of one node, on the data loop."""

    def __init__(
        self,
        *,
        addresses: Sequence[ListenAddress],
        config: NetworkConfig,
        services: BrokerServices,
        stats: NetworkStats | None = None,
        quota_config: QuotaConfig | None = None,
        client_tls: ClientTls | None = None,
        wrap: Callable[[Api], Api] | None = None,
        now_ms: Callable[[], float] = stopwatch_ms,
    ) -> None:
        """`client_tls`: of the node's own connections to others, renewed beside the listeners' certificates. now_ms: the clock of
        quotas, which never jumps.

        wrap: what replaces each API, to watch its handler; None: nothing does.
        """
        self.config = config
        self.services = services
        self.stats = stats if stats is not None else NetworkStats()
        self.memory = RequestMemory(config.queued_max_request_bytes)
        self.stats.request_memory_bytes = lambda: self.memory.used
        self.buffers = ReceiveBuffers(self.memory)
        every = config.request_log_sample_every
        self.request_log = RequestLog(every) if every else None
        self.quotas = ClientQuotas(quota_config or QuotaConfig(), now_ms=now_ms)
        self.connections: dict[Connection, None] = {}
        """The open connections in the order in which they came, and so in one order in every run of a seed."""
        self.handshakes: dict[TlsHandshake, None] = {}
        """Sockets that are no connections yet."""
        self.addresses: Counter[str] = Counter()
        """Connections and handshakes by the address that they come from."""
        self.is_for_brokers_only = False
        """Set by `serve_clients`."""
        self.bound: dict[str, tuple[str, int]] = {}
        """Listener name -> (host, port) really bound; filled by start."""
        self._client_tls = client_tls
        self.wrap = wrap
        self._addresses = tuple(addresses)
        self._address_overrides = config.address_overrides()
        self._servers: list[asyncio.Server] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._failure: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Bind every listener; raises OSError naming an address that is taken. Connections are refused until `listen`."""
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        for address in self._addresses:
            listener = KafkaListener(self, address.name, loop, address.security)
            tls = address.security.tls if address.security is not None else None
            made = partial(Connection if tls is None else TlsHandshake, listener)
            if address.bound is not None:
                server = await loop.create_server(
                    made, sock=address.bound, backlog=ACCEPTED_AT_ONCE, start_serving=False
                )
            else:
                server = await loop.create_server(
                    made,
                    hosts_to_bind(address.host, address.port, [(each.host, each.port) for each in self._addresses]),
                    address.port,
                    reuse_address=True,
                    backlog=ACCEPTED_AT_ONCE,
                    start_serving=False,
                )
            self._servers.append(server)
            for listening in server.sockets:
                listener.congestion_control = accept_unpaced(listening)
            host, port = server.sockets[0].getsockname()[:2]
            self.bound.setdefault(address.name, (host, port))
            logger.info("listener %s on %s:%d", address.name, host, port)

    def listen(self) -> None:
        """Let connections wait in the kernel, `socket.listen.backlog.size` of them, until `run` accepts them."""
        for server in self._servers:
            for listening in server.sockets:
                with listening.dup() as twin:
                    twin.listen(self.config.socket_listen_backlog_size)

    async def run(self, *, wait_open: Callable[[], Awaitable[None]] | None = None) -> None:
        """Serve until cancelled or until a handler finds a broken invariant, which is raised.

        Args:
            wait_open: returns when clients may be served; None = at once.
        """
        assert self._failure is not None, "start() comes first"
        try:
            if wait_open is not None:
                await wait_open()
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for server in self._servers:
                    await server.start_serving()
                self.listen()  # start_serving has set the backlog that asyncio accepts at once
                idle = tasks.create_task(self._close_idle(), name="kafka-idle")
                renewal = tasks.create_task(self._renew_certificates(), name="kafka-certificates")
                keys = tasks.create_task(self._refresh_keys(), name="kafka-jwks")
                relief = tasks.create_task(self._relieve_memory(), name="kafka-memory")
                try:
                    await self._failure
                finally:
                    idle.cancel()
                    renewal.cancel()
                    keys.cancel()
                    relief.cancel()
                    await self.close()  # before the group ends: it would refuse the waiting part of a request
        finally:
            self._tasks = None
            await self.close()
            self.buffers.close()

    @property
    def is_accepting(self) -> bool:
        """Whether clients can connect on every listener."""
        return bool(self._servers) and all(server.is_serving() for server in self._servers)

    def serve_clients(self, is_wanted: bool) -> None:
        """Close what is not another broker's connection, and from now on take only brokers'; or take clients again.

        A new connection is accepted first, for a broker shows itself by its requests: it is closed at a client's first one
        after ApiVersions. librdkafka would take one that is closed before that for a Kafka of ten years ago.
        """
        self.is_for_brokers_only = not is_wanted
        if is_wanted:
            if len(self.connections) <= self.config.max_connections:
                for connection in self.connections:
                    connection.is_on_probation = False
            return
        for connection in tuple(self.connections):
            if not connection.is_of_broker:
                connection.close(CUT_OFF)

    def apply_quotas(self, image: QuotasImage) -> None:
        """Throttle clients by these quotas from now on, on open connections too."""
        self.quotas.follow(image)
        for connection in self.connections:
            connection.quota = self.quotas.of(connection.principal)

    async def close(self) -> None:
        """Stop accepting and close every connection."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for handshake in tuple(self.handshakes):
            handshake.cancel()
        for connection in tuple(self.connections):
            connection.close("shutdown")
        await asyncio.sleep(0)  # connection_lost of each runs in the next turn of the loop

    def address_max(self, address: str) -> int:
        """How many connections may come from an address."""
        return self._address_overrides.get(address, self.config.max_connections_per_ip)

    def leave(self, address: str) -> None:
        """One connection less from an address."""
        self.addresses[address] -= 1
        if self.addresses[address] <= 0:
            del self.addresses[address]

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a handler's waiting part; it is cancelled when the server stops."""
        assert self._tasks is not None, "no request is taken up outside run()"
        return self._tasks.create_task(work)

    def fail(self, error: InvariantViolated) -> None:
        """End `run` with a broken invariant."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _close_idle(self) -> None:
        idle_s = self.config.connections_max_idle_ms / 1000
        while True:
            await asyncio.sleep(min(IDLE_SCAN_S_MAX, idle_s / 4))
            deadline = perf_counter() - idle_s
            for connection in tuple(self.connections):
                if connection.last_active < deadline and not connection.is_waited_for:
                    connection.close("idle")

    async def _relieve_memory(self) -> None:
        """While requests take too much memory: close who makes no progress, let on who waits."""
        memory = self.memory
        pressed = asyncio.Event()
        memory.on_pressed = pressed.set
        while True:
            await pressed.wait()
            pressed.clear()
            logger.warning(
                "requests and unread answers of clients take %d MiB, more than half of queued.max.request.bytes: clients that make no "
                "progress are closed",
                memory.used >> 20,
            )
            closed = 0
            while memory.is_pressed:
                await asyncio.sleep(RELIEF_S)
                stuck = memory.stuck(self.connections)
                for connection in stuck:
                    connection.close("memory")
                closed += len(stuck)
                await asyncio.sleep(0)  # connection_lost gives back
                memory.let_on(is_first_forced=not stuck)
            logger.info("there is memory for requests again; %d clients that made no progress were closed", closed)

    async def _refresh_keys(self) -> None:
        """Keep the keys of OAUTHBEARER's tokens fresh. No client logs in with a token before they are there."""
        sources = [
            address.security.jwks
            for address in self._addresses
            if address.security is not None and address.security.jwks is not None
        ]
        while sources:
            for source in sources:
                if source.is_refresh_due:
                    await asyncio.to_thread(source.refresh)
            await asyncio.sleep(KEYS_SCAN_S)

    async def _renew_certificates(self) -> None:
        """Take renewed certificates for the connections to come."""
        contexts: list[tuple[str, ServerTls | ClientTls]] = [
            (f"listener {address.name}", address.security.tls)
            for address in self._addresses
            if address.security is not None and address.security.tls is not None
        ]
        if self._client_tls is not None:
            contexts.append(("this broker, where it connects to others,", self._client_tls))
        while contexts:
            await asyncio.sleep(CERTIFICATES_SCAN_S)
            for name, tls in contexts:
                try:
                    if tls.reload_if_changed():
                        logger.info("%s has a new certificate", name)
                except KafkaError as error:
                    logger.warning("%s keeps its certificate: %s", name, error.message)


class KafkaListener:
    """What the connections of one listener share."""

    def __init__(
        self,
        server: KafkaServer,
        name: str,
        loop: asyncio.AbstractEventLoop,
        security: ListenerSecurity | None = None,
    ) -> None:
        self.name = name
        self.loop = loop
        self.services = server.services
        self.stats = server.stats
        self.request_log = server.request_log
        self._server = server
        self.apis: dict[int, Api] = {}
        self.measured_apis: dict[int, Api] = {}
        for api in set(by_kind().values()):
            self._take(api)
        self.buffers = server.buffers
        self.memory = server.memory
        self.quotas = server.quotas
        self.spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = server.spawn
        self.fail: Callable[[InvariantViolated], None] = server.fail
        self.congestion_control = b""
        """The congestion control that the kernel chooses for connections; set before the first is accepted."""
        self.frame_bytes_max = server.config.socket_request_max_bytes
        self.in_flight_max = server.config.in_flight_requests_max
        self.queued_bytes_max = server.config.queued_response_bytes_max
        self._security = security
        self.handshakes = HandshakeTurns(server.config.tls_handshakes_per_second_max)
        self.silent: dict[TlsHandshake, None] = {}
        self._turn: asyncio.TimerHandle | None = None
        self._logins = (
            Logins(
                security.config,
                security.passwords,
                lambda: server.services.metadata.image.scram,
                jwks=security.jwks,
                find_token=self._find_token,
            )
            if security is not None and security.protocol.has_sasl
            else None
        )
        self._connections = server.connections
        self._connections_max = server.config.max_connections
        self._reserved = server.config.inter_broker_connections_reserved
        self._dirty: list[Connection] = []
        self._refused_noted: dict[tuple[int, str], tuple[float, int]] = {}
        """When the last line was written, and how many requests were refused since; by API and advice."""

    def find_api(self, kind: int) -> Api | None:
        """The API of a kind, api key << 16 | version, that is not in `apis` yet; None when none serves it."""
        api = api_of(kind >> 16)
        if api is not None and kinds_of(api)[0] not in self.apis:
            self._take(api)
        return self.apis.get(kind)

    def _take(self, api: Api) -> None:
        kinds = kinds_of(api)
        if self._server.wrap is not None:
            api = self._server.wrap(api)
        self.apis |= dict.fromkeys(kinds, api)
        if api.is_direct:
            self.measured_apis |= dict.fromkeys(kinds, measuring(api))

    def request_bytes_max(self, kind: int) -> int:
        """The largest frame of a kind, api key << 16 | version, that is taken. What is served by no API may have the usual size."""
        api = self.apis.get(kind) or self.find_api(kind)
        return REQUEST_BYTES_MAX if api is None else api.request_bytes_max

    def note_refused(self, kind: int | None, client_host: str, reason: str, advice: str) -> None:
        """Log that a request closed its connection, once per API, advice and interval.

        kind: api key << 16 | version; None for what has none. advice: a constant that says what to do.
        """
        api = None if kind is None else self.apis.get(kind)
        key = (int(api.key) if api is not None else -1, advice)  # anybody can send API keys without end
        noted_s, unsaid = self._refused_noted.get(key, (0.0, 0))
        now_s = self.loop.time()
        if noted_s and now_s - noted_s < REFUSED_LINE_INTERVAL_S:
            self._refused_noted[key] = (noted_s, unsaid + 1)
            return
        self._refused_noted[key] = (now_s, 0)
        what = ""
        if kind is not None:
            name = next((each.key.name for each in self.apis.values() if each.key == kind >> 16), f"api {kind >> 16}")
            what = f"{name} v{kind & 0xFFFF}: "
        logger.warning(
            "closed a connection of %s: %s%s; %s. Refused since the last such line: %d",
            client_host,
            what,
            reason,
            advice,
            unsaid,
        )

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; False when the node has as many as it may.

        Beyond max.connections only the reserve of other brokers is left: a client that takes of it must show in time
        that it is one. So must everybody while this broker is cut off.
        """
        self.stats.connections_accepted += 1
        count = len(self._connections)
        if self._server.addresses[connection.client_host] >= self._server.address_max(connection.client_host):
            return False
        if count >= self._connections_max or self._server.is_for_brokers_only:
            if count >= self._connections_max + self._reserved:
                return False
            connection.is_on_probation = True
            self.loop.call_later(PROBATION_S, connection.end_probation)
        self._connections[connection] = None
        self._server.addresses[connection.client_host] += 1
        self.stats.connections += 1
        return True

    # -- during the TLS handshake (handshakes.py) ----------------------------------------------------------------------

    @property
    def tls_context(self) -> ssl.SSLContext:
        """The TLS context with the present certificate."""
        assert self._security is not None and self._security.tls is not None, "only listeners with TLS shake hands"
        return self._security.tls.context

    def take_turns(self) -> None:
        """Let those begin whose turn it is, now and later."""
        if self._turn is not None:
            return
        while (handshake := self.handshakes.take(self.loop.time())) is not None:
            handshake.begin()
        if self.handshakes.is_waited_for:
            self._turn = self.loop.call_later(self.handshakes.wait_s(self.loop.time()), self._take_later_turns)

    def _take_later_turns(self) -> None:
        self._turn = None
        self.take_turns()

    def begin_handshake(self, handshake: TlsHandshake) -> bool:
        """Count a socket; False when the node, or its address, has as many as it may."""
        server = self._server
        count = len(self._connections) + len(server.handshakes)
        if count >= self._connections_max + self._reserved:
            return False
        if server.addresses[handshake.client_host] >= server.address_max(handshake.client_host):
            return False
        server.handshakes[handshake] = None
        server.addresses[handshake.client_host] += 1
        return True

    def end_handshake(self, handshake: TlsHandshake) -> None:
        """It is a connection now, which counts itself, or gone."""
        if handshake in self._server.handshakes:
            del self._server.handshakes[handshake]
            self._server.leave(handshake.client_host)

    def note_certificate(self, client_host: str, reason: str) -> None:
        """Have the audit log tell of a certificate that was refused, or that did not come."""
        self.services.audit.login_refused(client_host, user="", listener=self.name, how="certificate", reason=reason)

    def count_closed(self, reason: str) -> None:
        """Count a socket that was closed before it was a connection."""
        self.stats.connections_closed[reason] += 1

    def new_connection(self) -> Connection:
        """What takes over once TLS is established."""
        return Connection(self)

    @property
    def probation_reason(self) -> str:
        """Why a connection that is no broker's may not stay."""
        return CUT_OFF if self._server.is_for_brokers_only else "limit"

    def new_session(self) -> SaslSession | None:
        """The login of a new connection; None without SASL."""
        return self._logins.new_session() if self._logins is not None else None

    def _find_token(self, token_id: str) -> TokenVerifier | None:
        """A delegation token that counts now, as its holder logs in with it."""
        from barnabas_broker.security.sasl.scram import TokenVerifier

        services = self.services
        secret_key = services.config.delegation_token_secret_key
        token = services.metadata.image.tokens.tokens.get(token_id)
        if token is None or not secret_key or services.clock_ms() >= token.expiration_timestamp_ms:
            return None
        password = base64.b64encode(token_hmac(secret_key, token_id)).decode()
        return TokenVerifier(token.owner.removeprefix(USER), password, token.expiration_timestamp_ms)

    def principal_of(self, transport: asyncio.Transport) -> str | None:
        """The client's principal before any login: by its certificate, else anonymous. None: no rule takes its
        certificate."""
        security = self._security
        if security is None or not security.names_clients_by_certificate:
            return ANONYMOUS
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        subject = subject_of(certificate)
        name = map_subject(security.rules, subject)
        if name is None:
            logger.info("no rule of ssl.principal.mapping.rules takes the certificate of %s", subject)
            return None
        return USER + name

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        if connection in self._connections:
            del self._connections[connection]
            self._server.leave(connection.client_host)
            self.stats.connections -= 1

    def flush_soon(self, connection: Connection) -> None:
        """Send this connection's finished answers once what is scheduled in this turn (the drain) has run."""
        if not self._dirty:
            self.loop.call_soon(self._flush)
        self._dirty.append(connection)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            try:
                connection.flush()
            except Exception as bug:  # costs this connection; the answers of those behind it would never leave
                connection.close_for(bug, "the sending of answers to a client")
