"""What lies between an accepted socket and a TLS connection: whether there is room, whose turn it is, the handshake.

May touch:  its socket.               Must not touch: frames, handlers.
Invariants: a handshake, which costs this node about a millisecond, is paid for at most so many times a second whoever asks; a turn is
            taken when the client's first byte is there, and addresses take turns, so that no client is kept out by
            others' silence or haste; a client that must wait too long, or does not finish in time, is closed; bytes
            that came with the handshake are not lost.
Read next:  connection.py, which takes over; listener.py.

Not obvious: asyncio would read the first bytes away from the handshake to come. The transport is paused, and a copy of its
descriptor is watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

HANDSHAKE_TIMEOUT_S = 10.0
"""The time for the first byte, for a turn, and for the handshake, each."""
SHUTDOWN_TIMEOUT_S = 1.0
SILENT_MAX = 1_000
"""Sockets of a listener that have said nothing yet; the one that has been silent for longest makes room."""
LIMIT = "limit"
FAILED = "handshake"
CERTIFICATE_REASONS = frozenset(("CERTIFICATE_VERIFY_FAILED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"))
"""OpenSSL's words for a client that may be somebody, and did not show it."""
"""Why a connection is closed that never spoke TLS, or not with us."""


class HandshakeTurns:
    """Decides whose handshake is next: after an empty second as many as a second has, then one each 1/rate s; addresses
    take turns. Pure."""

    def __init__(self, per_second_max: int) -> None:
        self._interval_s = 1 / per_second_max
        self._burst_s = 1.0
        self._next_s = 0.0
        self._waiting: dict[str, deque[TlsHandshake]] = {}
        """By address, the one whose turn is next first."""

    def join(self, handshake: TlsHandshake) -> None:
        """It waits for its turn from now on."""
        self._waiting.setdefault(handshake.client_host, deque()).append(handshake)

    def leave(self, handshake: TlsHandshake) -> None:
        """It waits no more, if it did."""
        queue = self._waiting.get(handshake.client_host)
        if queue is not None and handshake in queue:
            queue.remove(handshake)
            if not queue:
                del self._waiting[handshake.client_host]

    def take(self, now_s: float) -> TlsHandshake | None:
        """The one whose turn it is; None while none may begin."""
        if not self._waiting or self.wait_s(now_s) > 0:
            return None
        self._next_s = max(self._next_s, now_s - self._burst_s) + self._interval_s
        address, queue = next(iter(self._waiting.items()))
        del self._waiting[address]
        handshake = queue.popleft()
        if queue:
            self._waiting[address] = queue
        return handshake

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next turn."""
        return max(0.0, max(self._next_s, now_s - self._burst_s) + self._interval_s - now_s)

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)


class TlsListener(Protocol):
    """What this asks of the listener that accepted the socket."""

    loop: asyncio.AbstractEventLoop
    handshakes: HandshakeTurns
    silent: dict[TlsHandshake, None]
    """Sockets that have said nothing yet, the oldest first."""
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

    @property
    def tls_context(self) -> ssl.SSLContext:
        """The TLS context with the present certificate."""
        ...

    def take_turns(self) -> None:
        """Let those begin whose turn it is, now and later."""
        ...

    def begin_handshake(self, handshake: TlsHandshake) -> bool:
        """Count a socket; False when the node, or its address, has as many as it may."""
        ...

    def end_handshake(self, handshake: TlsHandshake) -> None:
        """It is a connection now, or gone."""
        ...

    def note_certificate(self, client_host: str, reason: str) -> None:
        """Have the audit log tell of a certificate that was refused, or that did not come."""
        ...

    def count_closed(self, reason: str) -> None:
        """Count a socket that was closed before it was a connection."""
        ...

    def new_connection(self) -> asyncio.BufferedProtocol:
        """What takes over a TLS connection."""
        ...


class TlsHandshake(asyncio.Protocol):
    """Protocol of one accepted socket until TLS is established. Runs on the data loop only."""

    def __init__(self, listener: TlsListener) -> None:
        self._listener = listener
        self._early = bytearray()
        self._peek: socket.socket | None = None
        """A copy of the socket, while its first byte is waited for."""
        self._timer: asyncio.TimerHandle | None = None
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
        transport.pause_reading()
        listener = self._listener
        self._peek = transport.get_extra_info("socket").dup()
        listener.loop.add_reader(self._peek, self._speaks)
        self._timer = listener.loop.call_later(HANDSHAKE_TIMEOUT_S, self._give_up, FAILED)
        listener.silent[self] = None
        if len(listener.silent) > SILENT_MAX:
            next(iter(listener.silent))._give_up(LIMIT)

    def begin(self) -> None:
        """It is this one's turn."""
        self._stop_waiting()
        self._task = self._listener.spawn(self._run())

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
        else:
            self._give_up(FAILED)

    def _speaks(self) -> None:
        """The first byte is there, or the end."""
        assert self._peek is not None, "the copy is watched while it is open"
        first = b""
        with contextlib.suppress(OSError):  # reset
            first = self._peek.recv(1, socket.MSG_PEEK)
        if not first:
            self._give_up(FAILED)
            return
        self._stop_waiting()
        self._timer = self._listener.loop.call_later(HANDSHAKE_TIMEOUT_S, self._give_up, LIMIT)
        self._listener.handshakes.join(self)
        self._listener.take_turns()

    def _stop_waiting(self) -> None:
        """Neither for a byte nor for a turn."""
        listener = self._listener
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._peek is not None:
            listener.loop.remove_reader(self._peek)
            self._peek.close()
            self._peek = None
        listener.silent.pop(self, None)
        listener.handshakes.leave(self)

    def _give_up(self, reason: str) -> None:
        self._stop_waiting()
        self._listener.end_handshake(self)
        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        self._listener.count_closed(reason)
        self.transport.abort()

    async def _run(self) -> None:
        listener = self._listener
        try:
            transport = await listener.loop.start_tls(
                self.transport,
                self,
                listener.tls_context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            if isinstance(error, ssl.SSLError) and error.reason in CERTIFICATE_REASONS:
                listener.note_certificate(self.client_host, str(error))
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
