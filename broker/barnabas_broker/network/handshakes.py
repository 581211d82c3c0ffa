"""What stands between an accepted socket and a TLS connection: whether there is room, whose turn it is, then the handshake.

May touch:  its socket.               Must not touch: frames, handlers.
Invariants: a handshake, which costs this node about a millisecond, is paid for at most so many times a second whoever asks; who
            must wait too long is closed without one; who does not finish in time is closed; bytes that came with the handshake
            are not lost.
Read next:  connection.py, which takes over; listener.py.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

HANDSHAKE_TIMEOUT_S = 10.0
SHUTDOWN_TIMEOUT_S = 1.0
LIMIT = "limit"
FAILED = "handshake"
"""Why a connection is closed that never spoke TLS, or not with us."""


class HandshakeRate:
    """Gives turns: an empty second first, then one each 1/rate s. Pure."""

    def __init__(self, per_second_max: int) -> None:
        self._interval_s = 1 / per_second_max
        self._burst_s = 1.0
        self._next_s = 0.0

    def take(self, now_s: float) -> float:
        """How long the next one has to wait, seconds; its turn is taken."""
        self._next_s = max(self._next_s, now_s - self._burst_s) + self._interval_s
        return max(0.0, self._next_s - now_s)

    def give_back(self) -> None:
        """Who took a turn last does not use it."""
        self._next_s -= self._interval_s


class TlsListener(Protocol):
    """What this asks of the listener that accepted the socket."""

    loop: asyncio.AbstractEventLoop
    handshakes: HandshakeRate
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

    @property
    def tls_context(self) -> ssl.SSLContext:
        """With the certificate of the moment."""
        ...

    def begin_handshake(self, handshake: TlsHandshake) -> bool:
        """Count a socket; False when the node, or its address, has as many as it may."""
        ...

    def end_handshake(self, handshake: TlsHandshake) -> None:
        """It is a connection now, or gone."""
        ...

    def count_closed(self, reason: str) -> None:
        """Count a socket that was closed before it was a connection."""
        ...

    def new_connection(self) -> asyncio.BufferedProtocol:
        """What takes over a TLS connection."""
        ...


class TlsHandshake(asyncio.Protocol):
    """Protocol of one accepted socket until TLS stands. Runs on the data loop only."""

    def __init__(self, listener: TlsListener) -> None:
        self._listener = listener
        self._early = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._is_lost = False
        self.transport: asyncio.Transport
        self.client_host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a turn, or close the socket when there is no room."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        if not self._listener.begin_handshake(self):
            self._refuse(LIMIT)
            return
        wait_s = self._listener.handshakes.take(self._listener.loop.time())
        if wait_s > HANDSHAKE_TIMEOUT_S:
            self._listener.handshakes.give_back()
            self._listener.end_handshake(self)
            self._refuse(LIMIT)
            return
        transport.pause_reading()
        self._task = self._listener.spawn(self._run(wait_s))

    def data_received(self, data: bytes) -> None:
        """What a client sent in one flight with its last handshake message; the connection gets it first."""
        self._early += data

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client went away before or during the handshake."""
        self._is_lost = True

    def cancel(self) -> None:
        """The listener closes."""
        if self._task is not None:
            self._task.cancel()

    def _refuse(self, reason: str) -> None:
        self._listener.count_closed(reason)
        self.transport.abort()

    async def _run(self, wait_s: float) -> None:
        listener = self._listener
        try:
            if wait_s:
                await asyncio.sleep(wait_s)
            transport = await listener.loop.start_tls(
                self.transport,
                self,
                listener.tls_context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except (OSError, TimeoutError):  # ssl.SSLError is an OSError
            self._refuse(FAILED)
            return
        except BaseException:
            self.transport.abort()
            raise
        finally:
            listener.end_handshake(self)
        if transport is None or self._is_lost:
            listener.count_closed(FAILED)
            return
        self._hand_over(transport)

    def _hand_over(self, transport: asyncio.Transport) -> None:
        connection = self._listener.new_connection()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._early and not transport.is_closing():
            room = memoryview(connection.get_buffer(len(self._early)))
            if len(self._early) > len(room):  # more than one read brings: no client of Kafka's talks so much unasked
                self._refuse(FAILED)
                return
            room[: len(self._early)] = self._early
            connection.buffer_updated(len(self._early))
