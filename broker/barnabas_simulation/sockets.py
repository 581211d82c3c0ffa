"""TCP of a simulated run: listening sockets and streams in memory, for the product's own listener and client on the virtual loop.

May touch:  the virtual loop, which asks for connections as asyncio's would.   Must not touch: what the bytes mean; real sockets.
Invariants: bytes arrive in the order in which they were sent, in pieces that one generator cuts, or the connection is lost; a host
            that lost its power sends nothing more, and whoever waits for it may never hear of that; a stream takes no more than its
            window ahead of the reader.
Read next:  loop.py, through which asyncio comes here; callers.py, the clients; barnabas_broker/network/connection.py, the other end.

What asyncio's transports do and the product relies on is here too: nothing is read while reading is paused, an end of stream that a
protocol does not keep open closes it, `abort` calls connection_lost a turn later, writers are called as long as there is room.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from random import Random
from typing import Any

from barnabas_wire.lazy_dataclass import dataclass

CALLER: ContextVar[str] = ContextVar("CALLER", default="somewhere")
"""The host from which a task connects."""
RENO = b"reno"
"""Every simulated socket's congestion control: nothing is paced."""
CONNECT_S = 0.001


@dataclass(slots=True)
class StreamFaults:
    """How bad the streams between clients and brokers are; set to nothing when the cluster heals."""

    delay_s: float = 0.0005
    piece_bytes: int = 1 << 20
    """Most bytes of a piece where pieces are cut."""
    cut: float = 0.0
    """Probability that what is sent at once arrives in pieces."""
    slow: float = 0.0
    """Probability that a piece, and with it all behind it, is up to `slow_s` late."""
    slow_s: float = 0.0
    reset: float = 0.0
    """Probability that a piece is lost with its connection; half of these tell both ends."""
    window_bytes: int = 1 << 20
    """What is under way or unread at most, of what a broker sends."""


class SimulatedSocket:
    """What is asked of a socket object. Listening ones and those of clients send nothing."""

    family = None

    def __init__(self, end: StreamEnd | None, own: tuple[str, int], peer: tuple[str, int] | None, number: int = -1):
        self._end, self._own, self._peer, self._number = end, own, peer, number

    def fileno(self) -> int:
        """A number that add_writer knows; -1 of one that is a transport's."""
        return self._number

    def dup(self) -> SimulatedSocket:
        """Another that sends over the same connection."""
        number = -1 if self._end is None else self._end.sockets.next_number()
        return SimulatedSocket(self._end, self._own, self._peer, number)

    def getsockname(self) -> tuple[str, int]:
        """See socket."""
        return self._own

    def getpeername(self) -> tuple[str, int]:
        """See socket."""
        if self._peer is None:
            raise OSError("not connected")
        return self._peer

    def getsockopt(self, *asked: Any) -> bytes:
        """See socket."""
        return RENO

    def setsockopt(self, *asked: Any) -> None:
        """See socket."""

    def listen(self, backlog: int) -> None:
        """See socket."""

    def send(self, data: Any) -> int:
        """As many bytes as there is room for. Raises BlockingIOError for none, and ConnectionResetError."""
        assert self._end is not None, "a listening socket sends nothing"
        return self._end.send(data)

    def close(self) -> None:
        """See socket."""
        if self._end is not None:
            self._end.sockets.remove_writer(self._number)

    def __enter__(self) -> SimulatedSocket:
        return self

    def __exit__(self, *exit_: object) -> None:
        self.close()


class SimulatedServer:
    """Meets asyncio.Server as far as it is used."""

    def __init__(self, sockets: SimulatedSockets, factory: Callable[[], Any], address: tuple[str, int]) -> None:
        self.address = address
        self.factory = factory
        self.is_up = True
        self.backlog: deque[asyncio.Future[None]] = deque()
        self.sockets = (SimulatedSocket(None, address, None),)
        self._all = sockets
        self._is_serving = False

    def is_serving(self) -> bool:
        """See asyncio.Server."""
        return self._is_serving

    async def start_serving(self) -> None:
        """See asyncio.Server. Whoever waits is accepted."""
        self._is_serving = True
        while self.backlog:
            waiting = self.backlog.popleft()
            if not waiting.done():
                waiting.set_result(None)
        await asyncio.sleep(0)

    def close(self) -> None:
        """See asyncio.Server. Whoever waits is refused."""
        self._is_serving = self.is_up = False
        while self.backlog:
            waiting = self.backlog.popleft()
            if not waiting.done():
                waiting.set_exception(ConnectionResetError(f"{self.address} is closed"))
        self._all.unbind(self)


class SimulatedSockets:
    """All sockets of a run."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self.faults = StreamFaults()
        self.note: Callable[[str, int, int], None] = lambda kind, source, target: None
        """Hears of what is sent, and to which port."""
        self.strikes: Callable[[str, int, int], bool] = lambda kind, source, target: True
        """Asked before a connection is lost; False when that fault is left out."""
        self.on_closing: Callable[[StreamEnd], None] = lambda end: None
        """Hears that a broker is about to close a connection by itself."""
        self.resets = 0
        """Connections that the network lost."""
        self.loop = loop
        self.random = random
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._ends: dict[StreamEnd, None] = {}
        """The ends of streams that brokers hold, in the order in which they were made."""
        self._writers: dict[int, tuple[StreamEnd, Callable[[], None]]] = {}
        self._number = 0

    def next_number(self) -> int:
        """A number for the next socket or port."""
        self._number += 1
        return self._number

    # -- asyncio's side --------------------------------------------------------------------------------------------

    def bind(self, factory: Callable[[], Any], host: str, port: int) -> SimulatedServer:
        """See AbstractEventLoop.create_server."""
        server = SimulatedServer(self, factory, (host, port))
        if (host, port) in self._servers:
            raise OSError(f"{host}:{port} is taken")
        self._servers[host, port] = server
        return server

    def unbind(self, server: SimulatedServer) -> None:
        """It is closed; another may have its address by now."""
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[StreamEnd, Any]:
        """See AbstractEventLoop.create_connection."""
        await asyncio.sleep(CONNECT_S * (0.5 + self.random.random()))
        server = self._servers.get((host, port))
        if server is None:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        if not server.is_serving():
            waiting: asyncio.Future[None] = self.loop.create_future()
            server.backlog.append(waiting)
            await waiting
        caller = CALLER.get(), 1_000_000 + self.next_number()
        near, far = StreamEnd(self, own=caller, peer=(host, port)), StreamEnd(self, own=(host, port), peer=caller)
        near.other, far.other = far, near
        self._ends[far] = None
        self.note("connect", caller[1], port)
        far.begin(server.factory())
        protocol = factory()
        near.begin(protocol)
        try:
            await asyncio.sleep(CONNECT_S * (0.5 + self.random.random()))
        except asyncio.CancelledError:
            near.abort()
            raise
        return near, protocol

    def add_writer(self, number: int, callback: Callable[[], None]) -> None:
        """See AbstractEventLoop.add_writer."""
        end = next(each for each in self._ends if number in each.numbers)
        self._writers[number] = end, callback
        end.wake_writers()

    def remove_writer(self, number: int) -> bool:
        """See AbstractEventLoop.remove_writer."""
        return self._writers.pop(number, None) is not None

    def write_more(self, end: StreamEnd) -> None:
        """There is room."""
        for number in tuple(end.numbers):
            if (found := self._writers.get(number)) is not None and end.room > 0:
                found[1]()
        end.wake_writers()

    def has_writer(self, end: StreamEnd) -> bool:
        """Whether somebody waits for room."""
        return any(number in self._writers for number in end.numbers)

    # -- power -----------------------------------------------------------------------------------------------------

    def power_off(self, host: str) -> None:
        """All that this host has bound and connected is gone in this instant. What it has sent may still arrive."""
        for address in [address for address in self._servers if address[0] == host]:
            server = self._servers.pop(address)
            server.is_up = False
            server.close()
        for end in [end for end in self._ends if end.own[0] == host]:
            end.die(is_told=self.random.random() < 0.5)

    def forget(self, end: StreamEnd) -> None:
        """A connection is gone."""
        self._ends.pop(end, None)

    def heal(self) -> None:
        """Every stream is good again."""
        self.faults = StreamFaults()


class StreamEnd(asyncio.Transport):
    """One end of a connection, as its owner's protocol has it."""

    other: StreamEnd

    def __init__(self, sockets: SimulatedSockets, *, own: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "sockname": own})
        self.sockets = sockets
        self.own, self.peer = own, peer
        self.numbers: set[int] = set()
        """The numbers of the sockets that send here."""
        self.protocol: Any = None
        self.is_dead = False
        """Whether nothing comes or goes any more."""
        self._socket = _FirstSocket(self)
        self._unread: deque[Any] = deque()
        self._unread_bytes = 0
        self._under_way_bytes = 0
        """Bytes on the way to the other end."""
        self._last_s = 0.0
        self._is_paused = False
        self._is_closing = False
        self._is_read_soon = False
        self._is_writable_soon = False

    # -- the owner's side ------------------------------------------------------------------------------------------

    def begin(self, protocol: Any) -> None:
        """It is there."""
        self.protocol = protocol
        protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio. A client has no use for its socket."""
        return self._socket if name == "socket" else super().get_extra_info(name, default)

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._is_closing

    def is_reading(self) -> bool:
        """See asyncio."""
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        """See asyncio."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """See asyncio."""
        self._is_paused = False
        self._read_soon()

    def write(self, data: Any) -> None:
        """See asyncio. Any amount is taken."""
        if not self._is_closing and not self.is_dead:
            self._transmit(bytes(data))

    def write_eof(self) -> None:
        """See asyncio."""
        if not self.is_dead:
            self._transmit(_END)

    def can_write_eof(self) -> bool:
        """See asyncio."""
        return True

    def send(self, data: Any) -> int:
        """See SimulatedSocket.send."""
        if self.is_dead or self._is_closing:
            raise ConnectionResetError("the connection is gone")
        if self.room <= 0:
            raise BlockingIOError
        taken = bytes(data[: self.room])
        self._transmit(taken)
        return len(taken)

    @property
    def room(self) -> int:
        """Bytes that may be sent now."""
        return self.sockets.faults.window_bytes - self._under_way_bytes - self.other._unread_bytes

    def close(self) -> None:
        """See asyncio."""
        self._close(None)

    def abort(self) -> None:
        """See asyncio. Whoever has bytes left to read resets the connection."""
        self._close(None, is_reset=bool(self._unread))

    def _close(self, error: Exception | None, *, is_reset: bool = False) -> None:
        if self._is_closing:
            return
        if not self.is_dead:
            self.sockets.on_closing(self)
            self._transmit(_RESET if is_reset else _END)
        self._is_closing = True
        self.sockets.loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        self.is_dead = True
        self.sockets.forget(self)
        self._unread.clear()
        self._unread_bytes = 0
        self.protocol.connection_lost(error)

    # -- the way ---------------------------------------------------------------------------------------------------

    def _transmit(self, data: Any) -> None:
        """Send in pieces, each no sooner than the one before it."""
        sockets = self.sockets
        faults, random = sockets.faults, sockets.random
        pieces = [data]
        if data is not _END and data is not _RESET:
            self._under_way_bytes += len(data)
            sockets.note("bytes", len(data), self.peer[1])
            if faults.cut and random.random() < faults.cut:
                pieces = []
                while data:
                    size = random.randint(1, faults.piece_bytes)
                    pieces.append(data[:size])
                    data = data[size:]
            if faults.reset and random.random() < faults.reset and sockets.strikes("reset", self.own[1], self.peer[1]):
                pieces[-1] = _LOST
        for piece in pieces:
            delay_s = faults.delay_s * (0.5 + random.random())
            if faults.slow and random.random() < faults.slow:
                delay_s += random.random() * faults.slow_s
            self._last_s = max(sockets.loop.time() + delay_s, math.nextafter(self._last_s, math.inf))
            sockets.loop.call_at(self._last_s, self.other.arrive, piece)

    def arrive(self, piece: Any) -> None:
        """A piece is here, or the end of the stream, or of the connection."""
        if piece is _RESET:
            self._break()
        elif piece is _LOST:
            self.sockets.resets += 1
            self.sockets.note("reset", self.own[1], self.peer[1])
            self.other._break()
            self._break()
        elif self.is_dead or self._is_closing:
            if piece is not _END and not self._is_powerless:
                self.sockets.loop.call_soon(self.other.arrive, _RESET)
        else:
            if piece is not _END:
                self.other._under_way_bytes -= len(piece)
                self._unread_bytes += len(piece)
            self._unread.append(piece)
            if not self._is_read_soon:
                self._read()

    _is_powerless = False

    def die(self, *, is_told: bool) -> None:
        """Its host has no power any more. is_told: the other end learns of it, soon."""
        self.is_dead = self._is_powerless = True
        self._unread.clear()
        self._unread_bytes = 0
        self.sockets.forget(self)
        if is_told:
            self.sockets.loop.call_later(self.sockets.faults.delay_s, self.other.arrive, _RESET)

    def _break(self) -> None:
        if not self.is_dead and not self._is_closing:
            self.is_dead = True
            self._close(ConnectionResetError("reset by peer"))

    def _read_soon(self) -> None:
        if self._unread and not self._is_read_soon:
            self._is_read_soon = True
            self.sockets.loop.call_soon(self._read)

    def _read(self) -> None:
        """Give the protocol what is there, a read at a time, until it has enough."""
        self._is_read_soon = False
        if not self._unread or self._is_paused or self._is_closing or self.is_dead:
            return
        piece = self._unread.popleft()
        if piece is _END:
            if not self.protocol.eof_received():
                self.close()
            return
        buffer = self.protocol.get_buffer(-1)
        size = min(len(buffer), len(piece))
        buffer[:size] = piece[:size]
        if size < len(piece):
            self._unread.appendleft(piece[size:])
        self._unread_bytes -= size
        self.protocol.buffer_updated(size)
        self.other.wake_writers()
        self._read_soon()

    def wake_writers(self) -> None:
        """Call whoever waits for room, a turn later, if there is any."""
        if not self._is_writable_soon and self.numbers and self.room > 0 and self.sockets.has_writer(self):
            self._is_writable_soon = True
            self.sockets.loop.call_soon(self._writable)

    def _writable(self) -> None:
        self._is_writable_soon = False
        self.sockets.write_more(self)


class _FirstSocket(SimulatedSocket):
    """A transport's own: asyncio lets no other code wait for its number."""

    def __init__(self, end: StreamEnd) -> None:
        super().__init__(end, end.own, end.peer)

    def dup(self) -> SimulatedSocket:
        """See SimulatedSocket.dup."""
        twin = super().dup()
        assert self._end is not None, "made with one"
        self._end.numbers.add(twin.fileno())
        return twin


_END, _RESET, _LOST = object(), object(), object()
"""In place of a piece: the sender says no more, has forgotten the connection, or the network has."""
