"""One client connection on an asyncio loop: pipelined calls, large responses received into memory of exactly their size.

May touch:  its socket, the running loop.   Must not touch: files, other connections.
Invariants: what a call returns is memory of its own (see `reuses_memory`); after an error or a time-out the connection is
            closed, for the order of answers is then unknown.
Read next:  connection.py (the rules), cluster.py (many of these).

Asyncio's streams cost four to ten times more CPU per MB than a BufferedProtocol (measured), so this is one. A response that
does not fit the receive buffer is read by the kernel straight into its own memory.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from barnabas_wire.client.connection import RESPONSE_BYTES_MAX, ClientConnection
from barnabas_wire.client.security import PLAINTEXT, ClientSecurity, SaslLogin, login_steps
from barnabas_wire.kafka.frame import FrameDecoder
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition, encode_fetch_request
from barnabas_wire.kafka.messages.fetch_response import ParsedFetchResponse, parse_fetch_response
from barnabas_wire.kafka.primitives import Buffer, MalformedMessage
from barnabas_wire.kafka.schema import decode_response, message_classes

RECEIVE_BYTES = 64 * 1024
CLOSE_TIMEOUT_S = 1.0
_MISSING_ANSWER = "the connection was lost before the answer came"


class AioConnection(asyncio.BufferedProtocol):
    """A connection to one broker. Make it with `connect`; calls may overlap and are answered in order.

    Every call raises OSError (connection lost), TimeoutError (and the connection is closed), UnsupportedVersion or
    MalformedMessage. Error codes inside a response are the caller's to read. A cancelled call's answer is dropped on arrival.
    """

    def __init__(self, *, client_id: str, response_bytes_max: int, reuses_memory: bool) -> None:
        self._state: ClientConnection[asyncio.Future[memoryview]] = ClientConnection(client_id=client_id)
        self._decoder = FrameDecoder(frame_bytes_max=response_bytes_max, reuses_memory=reuses_memory)
        self._receive = memoryview(bytearray(RECEIVE_BYTES))
        self._is_direct = False
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._error: BaseException | None = None
        self._is_writable = asyncio.Event()
        self._is_writable.set()

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        reuses_memory: bool = False,
        security: ClientSecurity = PLAINTEXT,
    ) -> AioConnection:
        """Connect, learn the broker's versions and log in, within timeout_s. Raises KafkaError too, when the login is refused.

        reuses_memory: a raw response is valid only until the next call; for a fetcher, which has one call at a time.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            try:
                _, connection = await loop.create_connection(
                    lambda: cls(
                        client_id=client_id, response_bytes_max=response_bytes_max, reuses_memory=reuses_memory
                    ),
                    host,
                    port,
                    ssl=None if security.tls is None else security.tls(),
                )
            except (ValueError, OverflowError) as error:
                raise OSError(f"{host!r}, port {port}, is no address: {error}") from error
            try:
                await connection._negotiate(timeout_s)
                if security.login is not None:
                    await connection._log_in(security.login, timeout_s)
            except BaseException:
                connection._abort(None)
                raise
        return connection

    @property
    def is_closed(self) -> bool:
        """Whether no further call can succeed."""
        return self._transport is None or self._transport.is_closing()

    def version_for(self, api_key: int) -> int:
        """Highest version of an API that both sides speak; raises UnsupportedVersion if there is none."""
        return self._state.version_for(api_key)

    async def call(self, request: Any, *, version: int | None = None, timeout_s: float) -> Any:
        """Send a declared request and return its decoded response (None for a produce with acks=0, which has none)."""
        api_key = request.API_KEY
        if version is None:
            version = self._state.version_for(api_key)
        if api_key == ApiKey.PRODUCE and request.acks == 0:
            self._write(self._state.request(request, version, None))
            await self._is_writable.wait()
            return None
        future: asyncio.Future[memoryview] = self._loop.create_future()
        self._write(self._state.request(request, version, future))
        body = await self._answer(future, timeout_s)
        return decode_response(message_classes(api_key)[1], version, body)

    async def call_raw(self, api_key: int, version: int, body: Buffer, *, timeout_s: float) -> memoryview:
        """Send a request body that is encoded already; returns the response body (header cut off) in one piece."""
        future: asyncio.Future[memoryview] = self._loop.create_future()
        self._write(self._state.request_raw(api_key, version, body, future))
        return await self._answer(future, timeout_s)

    async def fetch(
        self,
        partitions: list[FetchRequestPartition],
        *,
        version: int | None = None,
        replica_id: int = -1,
        replica_epoch: int = -1,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        rack_id: str = "",
        timeout_s: float | None,
    ) -> ParsedFetchResponse:
        """One fetch over the hand-written codec; records are slices of the response, never copied.

        session_id, session_epoch: of a fetch session (KIP-227); none unless given.
        timeout_s: None leaves it to the caller to cancel.
        """
        if version is None:
            version = self._state.version_for(ApiKey.FETCH)
        body = bytearray()
        encode_fetch_request(
            body,
            version,
            partitions,
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session_id,
            session_epoch=session_epoch,
            rack_id=rack_id,
        )
        future: asyncio.Future[memoryview] = self._loop.create_future()
        self._write(self._state.request_raw(ApiKey.FETCH, version, body, future))
        answer = await (future if timeout_s is None else self._answer(future, timeout_s))
        return parse_fetch_response(answer, 0, version)

    async def close(self) -> None:
        """Close the connection; calls without an answer fail with OSError. What a stalled peer does not take is given up."""
        if self._transport is None:
            return
        self._transport.close()  # sends what is still buffered: a produce without acknowledgement
        timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)
        try:
            await asyncio.shield(self._closed)
        finally:
            timer.cancel()

    async def _negotiate(self, timeout_s: float) -> None:
        request, version = self._state.versions_request()
        for attempt in (version, 0):
            future: asyncio.Future[memoryview] = self._loop.create_future()
            self._write(self._state.request(request, attempt, future))
            body = await self._answer(future, timeout_s)
            if attempt == 0:
                self._state.learn_old_versions(body)
            elif self._state.learn_versions(body):
                return

    async def _log_in(self, login: SaslLogin, timeout_s: float) -> None:
        steps = login_steps(login)
        request = next(steps)
        while True:
            response = await self.call(request, timeout_s=timeout_s)
            try:
                request = steps.send(response)
            except StopIteration:
                return

    def _write(self, frame: bytearray) -> None:
        if self._transport is None or self._transport.is_closing():
            self._state.abandon()
            raise ConnectionResetError(_MISSING_ANSWER if self._error is None else str(self._error))
        self._transport.write(frame)

    async def _answer(self, future: asyncio.Future[memoryview], timeout_s: float) -> memoryview:
        # a timer of its own instead of asyncio.timeout: a third of its cost, and fetches come by the thousand
        timer = self._loop.call_later(timeout_s, self._expire, future, timeout_s)
        try:
            return await future
        finally:
            timer.cancel()

    def _expire(self, future: asyncio.Future[memoryview], timeout_s: float) -> None:
        if not future.done():
            future.set_exception(TimeoutError(f"no answer within {timeout_s:.3g} s"))
            self._abort(None)

    def _abort(self, error: BaseException | None) -> None:
        if error is not None and self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: the rest of a begun response into its own memory, anything else into the receive buffer."""
        space = self._decoder.space()
        self._is_direct = space is not None
        return self._receive if space is None else space

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came: answer the calls whose responses are complete."""
        try:
            if self._is_direct:
                frame = self._decoder.filled(nbytes)
                if frame is not None:
                    self._resolve(frame)
                return
            received = self._receive[:nbytes]
            for frame in self._decoder.feed(received):
                # a slice of the receive buffer: the next read overwrites it, so it leaves as a copy
                self._resolve(memoryview(bytes(frame)) if frame.obj is received.obj else frame)
        except MalformedMessage as error:
            self._abort(error)

    def _resolve(self, frame: memoryview) -> None:
        answer = self._state.answer(frame)
        if not answer.token.done():
            answer.token.set_result(answer.body)

    def eof_received(self) -> bool:
        """The broker will send no more: close."""
        return False

    def pause_writing(self) -> None:
        """The broker reads slowly: producers without acknowledgement wait."""
        self._is_writable.clear()

    def resume_writing(self) -> None:
        """The broker reads again."""
        self._is_writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every call that waits."""
        reason = self._error or exc
        for future in self._state.abandon():
            if not future.done():
                failure = ConnectionResetError(f"{_MISSING_ANSWER}: {reason}" if reason else _MISSING_ANSWER)
                failure.__cause__ = reason
                future.set_exception(failure)
        self._transport = None
        self._is_writable.set()
        if not self._closed.done():
            self._closed.set_result(None)
