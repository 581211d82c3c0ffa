"""One client connection: bytes to frames, frames taken up in order, answers through one output in request order.

May touch:  its socket, the shared receive buffer, FileRanges.   Must not touch: logs, metadata (the handlers do).
Invariants: answers leave strictly in request order and never interleave; a FileRange is released exactly once, also
            when the connection is lost; whatever a client sends or omits costs bounded memory and its own connection.
Read next:  framing.py (bytes to frames), requests.py (a frame to its handler), output.py (the output).

Not obvious:
- While a handler's awaitable is pending, or too much waits to be answered or read by the client, frames stay unread:
  in the kernel, and at most one receive buffer of them in the frame reader.
- asyncio forbids add_writer on a transport's own descriptor, and its write buffer must never be mixed with sendfile:
  sending goes through a duplicate descriptor, transport.write is never called.
- The answers of one loop iteration are sent together: the replica manager's drain runs by call_soon after all reads of
  the iteration, the listener's flush by call_soon after the drain.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import termios
from collections import deque
from time import perf_counter
from typing import Protocol

from barnabas_broker.api.slot import Part, release_parts
from barnabas_broker.network.framing import FrameReader, InvalidFrameSize, OversizedFrame
from barnabas_broker.network.host_address import address_as_text
from barnabas_broker.network.output import SocketOutput
from barnabas_broker.network.phases import PHASES
from barnabas_broker.network.receive_buffers import ReceiveBuffers
from barnabas_broker.network.request_log import RequestLog
from barnabas_broker.network.request_memory import ANSWER_BYTES
from barnabas_broker.network.requests import UNAUTHENTICATED, ClientRequests, RequestListener
from barnabas_broker.network.socket_calls import send_paced_to_another_host
from barnabas_broker.network.tls_output import TlsOutput
from barnabas_wire.kafka.ids import ANONYMOUS

logger = logging.getLogger(__name__)

LOGIN_TIMEOUT_S = 30.0
"""How long a client may take to log in."""
TURN_REQUESTS_MAX = 128
"""Requests of one connection that are taken up in one turn of the loop: a read brings tens of thousands of small ones, a second of work."""
TLS_UNREAD_BYTES = 64 * 1024
"""What asyncio reads and keeps, encrypted, of a connection that is not read. By default it is 256 KiB."""


class ConnectionListener(RequestListener, Protocol):
    """What a connection asks of the listener that accepted it, beyond what its requests do: buffers, limits, its books."""

    buffers: ReceiveBuffers
    congestion_control: bytes
    frame_bytes_max: int
    in_flight_max: int
    queued_bytes_max: int
    request_log: RequestLog | None
    """None: no request is logged."""

    def note_certificate(self, client_host: str, reason: str) -> None:
        """Have the audit log tell of a certificate that was refused."""
        ...

    def principal_of(self, transport: asyncio.Transport) -> str | None:
        """The client's principal before any login: by its certificate, else anonymous. None refuses it."""
        ...

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; False when the node has as many as it may."""
        ...

    def forget(self, connection: Connection) -> None:
        """Count a connection that is gone."""
        ...

    def flush_soon(self, connection: Connection) -> None:
        """Call the connection's flush once in this turn, behind what is scheduled."""
        ...


class Connection(ClientRequests, asyncio.BufferedProtocol):
    """Protocol of one accepted socket. Runs on the data loop only."""

    __slots__ = (
        "_answered_bytes",
        "_is_admitted",
        "_is_consuming",
        "_is_paused",
        "_is_starved",
        "_output",
        "_reader",
        "_transport",
        "is_dirty",
        "last_active",
    )
    _listener: ConnectionListener

    def __init__(self, listener: ConnectionListener) -> None:
        super().__init__(listener)
        self._transport: asyncio.Transport
        self._output: SocketOutput | TlsOutput
        self._reader = FrameReader(
            listener.buffers,
            frame_bytes_max=listener.frame_bytes_max,
            bytes_max_of=self._request_bytes_max if self._is_guarded else listener.request_bytes_max,
        )
        self._answered_bytes = 0
        """Bytes of the answers in `_slots`: they count as queued before the output has them, or one read could bring any number."""
        self._is_admitted = False
        self._is_paused = False
        self._is_starved = False
        """Whether it is not read because requests take too much memory."""
        self._is_consuming = False
        self.is_dirty = False
        self.last_active = 0.0

    def __repr__(self) -> str:
        words = [f"{self.client_host} {self.principal}: {len(self._slots)} answers due"]
        states = (("paused", self._is_paused), ("starved", self._is_starved), ("closed", self._is_closed))
        return ", ".join([*words, *(word for word, is_so in states if is_so)])

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket, or close it when the node has too many."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        self.client_port = peer[1] if peer else 0
        if self._listener.name in self._listener.services.auto_listeners:
            self.reached_at = address_as_text(transport.get_extra_info("sockname"))
        self.last_active = perf_counter()
        if not self._listener.admit(self):
            self.close("limit")
            return
        principal = self._listener.principal_of(transport)
        if principal is None:
            self._listener.note_certificate(
                self.client_host, "no rule of ssl.principal.mapping.rules takes its subject"
            )
            self.close(UNAUTHENTICATED)
            return
        self._become(principal)
        if principal != ANONYMOUS:
            self._listener.services.audit.logged_in(
                principal, self.client_host, listener=self._listener.name, how="certificate"
            )
        throttle_ms = self._listener.quotas.connection_throttle_ms(self.client_host)
        if throttle_ms:
            transport.pause_reading()
            self._listener.loop.call_later(throttle_ms / 1000, self.close, "throttled")
            return
        if self._is_guarded:
            self._listener.loop.call_later(LOGIN_TIMEOUT_S, self._end_login)
        if transport.get_extra_info("sslcontext") is not None:
            self._is_admitted = True
            transport.set_read_buffer_limits(TLS_UNREAD_BYTES)  # type: ignore[attr-defined]  # of asyncio's TLS transports alone
            send_paced_to_another_host(transport.get_extra_info("socket"), self._listener.congestion_control)
            self._output = TlsOutput(
                transport=transport,
                loop=self._listener.loop,
                stats=self._listener.stats,
                memory=self._listener.memory,
                on_progress=self._output_progress,
                on_lost=self.close,
            )
            return
        try:
            socket = transport.get_extra_info("socket").dup()
        except OSError as error:  # EMFILE: others have taken what was meant for connections
            logger.warning("a connection from %s is closed: %s", self.client_host, error)
            self.close("limit")
            return
        self._is_admitted = True
        send_paced_to_another_host(socket, self._listener.congestion_control)
        self._output = SocketOutput(
            socket=socket,
            loop=self._listener.loop,
            stats=self._listener.stats,
            memory=self._listener.memory,
            on_progress=self._output_progress,
            on_lost=self.close,
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came: handle every whole frame, keep the rest."""
        stats = self._listener.stats
        stats.bytes_in += nbytes
        stats.wake_ups += 1
        if self._reader.received(nbytes):
            self._take_frames()
        memory = self._listener.memory
        if memory.is_pressed and not self._is_closed and not self._is_starved and memory.must_wait(self):
            self._is_starved = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """TLS only: the client reads slowly."""
        if isinstance(self._output, TlsOutput):
            self._output.pause()

    def resume_writing(self) -> None:
        """TLS only: the client reads again."""
        if isinstance(self._output, TlsOutput):
            self._output.resume()

    def eof_received(self) -> None:
        """The client said all it had to say; as with Kafka, what waits for it is dropped."""
        self._count_closed("client")

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of everything that this connection held."""
        self._count_closed("client")
        self._listener.forget(self)
        slots, self._slots = self._slots, deque()
        for slot in slots:
            slot.connection = None
            if slot.is_done:
                release_parts(slot.parts)
            elif slot.cancel is not None:
                slot.cancel()
        held, self.held = self.held, {}
        for let_go in held.values():
            let_go()
        if self._is_admitted:
            self._output.close()
        self._reader.drop()
        self._listener.memory.forget(self)

    def close(self, reason: str) -> None:
        """Close at once, count why. Safe at any time and more than once."""
        self._count_closed(reason)
        self._transport.abort()

    @property
    def kept_bytes(self) -> int:
        """Memory that this connection takes of what all requests of the node may take, and would give back."""
        return self._waiting_bytes + self._reader.kept_bytes + (self._output.kept_bytes if self._is_admitted else 0)

    @property
    def has_sent_more(self) -> bool:
        """Whether bytes of the client wait in the kernel."""
        descriptor = self._transport.get_extra_info("socket").fileno()
        waiting = bytearray(4)
        if descriptor >= 0:
            fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
        return any(waiting)

    def wanted(self) -> tuple[int, bool]:
        """Bytes of memory that the next read takes, and whether they are for a large request."""
        return self._reader.wanted()

    def go_on_reading(self) -> None:
        """There is memory for the rest of a request."""
        self._is_starved = False
        if not self._is_paused and not self._is_closed:
            self._transport.resume_reading()

    @property
    def is_waited_for(self) -> bool:
        """Whether the client waits for an answer of ours: such a connection is not idle."""
        return any(not slot.is_done for slot in self._slots)

    def _count_closed(self, reason: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._listener.stats.connections_closed[reason] += 1

    # ---- frames to handlers

    def _take_frames(self) -> None:
        """Handle the whole frames that are there, as far as there is room for their answers; send what is ready."""
        slots = self._slots
        listener = self._listener
        in_flight_max = listener.in_flight_max
        # The property's call would cost every read what the phases of requests cost (phases.py).
        queued_bytes_max = self._queued_bytes_max if listener.memory.is_pressed else listener.queued_bytes_max
        output = self._output
        reader = self._reader
        now = perf_counter()
        left = TURN_REQUESTS_MAX
        self._is_consuming = True
        try:
            for frame in reader.frames():
                self.last_active = now
                left -= 1
                if left < 0:
                    self._move_answers()
                    self._postpone()
                    listener.loop.call_soon(self._go_on)
                    return
                if (
                    self._is_exclusive
                    or len(slots) >= in_flight_max
                    or output.queued_bytes + self._answered_bytes >= queued_bytes_max
                ):
                    # Answers given meanwhile may already be able to leave.
                    self._move_answers()
                    if self._is_full():
                        self._postpone()
                        return
                if self.quota is None:
                    self._take_frame(frame, now)
                else:
                    self._take_charged(frame, now, self.quota)
                if self._is_closed:
                    break
        except InvalidFrameSize as error:
            self._close_refused("frame", None, str(error))
        except OversizedFrame as error:
            self._close_greedy(error.kind, str(error))
        finally:
            self._is_consuming = False
        if self._is_closed:
            reader.drop()
            return
        if slots:
            if slots[0].is_done:
                self._move_answers()
            if slots and not self.is_dirty:
                # Produces of this read are answered by the drain that runs before this flush.
                self.is_dirty = True
                listener.flush_soon(self)
        if self._is_paused:
            self._is_paused = False
            if not self._is_starved:
                self._transport.resume_reading()

    @property
    def _queued_bytes_max(self) -> int:
        """Bytes of answers that may wait; few while memory is scarce, but another broker's."""
        listener = self._listener
        most = listener.queued_bytes_max
        return most if self.is_of_broker or not listener.memory.is_pressed else min(most, ANSWER_BYTES)

    def _is_full(self) -> bool:
        """Whether no further request may be taken up: too much waits to be answered, or to be read by the client."""
        listener = self._listener
        return (
            self._is_exclusive
            or len(self._slots) >= listener.in_flight_max
            or self._output.queued_bytes + self._answered_bytes >= self._queued_bytes_max
        )

    def _postpone(self) -> None:
        """Stop reading; keep the frames already read for later."""
        self._reader.postpone()
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Something was answered or sent: take up the postponed frames when there is room."""
        if not self._reader.has_postponed or self._is_consuming or self._is_closed:
            return
        if self._is_full():
            return
        self._take_frames()

    # ---- answers to the output

    def slot_filled(self, size_bytes: int) -> None:
        """An answer is there: sent at the end of the read we are in, or by the listener's flush of this turn."""
        self._answered_bytes += size_bytes
        if not self._is_consuming and not self.is_dirty:
            self.is_dirty = True
            self._listener.flush_soon(self)

    def flush(self) -> None:
        """Send the answers whose turn has come; called by the listener once per loop iteration."""
        self.is_dirty = False
        if self._is_closed:
            return
        slots = self._slots
        if slots and slots[0].is_done:
            self._move_answers()
            if self._reader.has_postponed:
                self._go_on()

    def _move_answers(self) -> None:
        """Hand the finished head of the queue to the output. A flat loop: it runs once per request of any kind."""
        slots = self._slots
        parts: list[Part] = []
        queued_bytes = before = 0
        api_key, started, alike = -1, 0.0, 0
        stats = self._listener.stats
        times = stats.request_time_s
        log = self._listener.request_log
        now = perf_counter()
        while slots and slots[0].is_done:
            slot = slots.popleft()
            if log is not None:
                log.note(self, slot, now)
            if slot.started != started or slot.api_key != api_key:
                if alike:
                    (times.get(api_key) or stats.time_of(api_key)).note(now - started, alike, queued_bytes - before)
                    before = queued_bytes
                api_key, started, alike = slot.api_key, slot.started, 0
            alike += 1
            parts += slot.parts
            queued_bytes += slot.size_bytes
        if alike:
            (times.get(api_key) or stats.time_of(api_key)).note(now - started, alike, queued_bytes - before)
        self.last_active = now
        self._answered_bytes -= queued_bytes
        self._output.send(parts, queued_bytes)
        if self.measured:
            self._note_measured(now)

    def _note_measured(self, moved: float) -> None:
        """Note when answers that are measured left their queue, and count those that the socket has taken."""
        is_sent = not self._output.queued_bytes
        waiting = []
        for slot in self.measured:
            if slot in self._slots:
                waiting.append(slot)
                continue
            slot.moved = slot.moved or moved
            slot.parts = ()  # the output has them
            if is_sent:
                self._listener.stats.note_phases(slot.api_key, zip(PHASES, slot.phases(perf_counter()), strict=True))
            else:
                waiting.append(slot)
        self.measured = waiting

    def _output_progress(self) -> None:
        self.last_active = perf_counter()
        if self.measured:
            self._note_measured(self.last_active)
        self._go_on()
