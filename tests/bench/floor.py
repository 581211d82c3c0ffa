"""What the machine costs without a broker: receive, check the CRC, write, answer; and send a file.

May touch:  sockets, one file.        Must not touch: broker code.
Invariants: it does what no broker can leave out, and nothing else: no offsets, no indexes, no epochs, no metadata.
Read next:  blaster.py, which drives it with the very frames that the broker gets.

    python -m tests.bench.floor produce FILE BATCH_START      asyncio, BufferedProtocol, one writev and one send per wake-up
    python -m tests.bench.floor fetch FILE RECORDS_BYTES      asyncio: 4 bytes in, a head, a sendfile and a tail out

Both print the port they listen on. The fetch floor runs on an event loop, as whatever serves many clients must: a loop of
blocking calls shows 0.05 to 0.3 ms/MB for the same bytes, because the kernel then does much of the sending in the
receiver's time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys

from fastcrc.crc32 import iscsi as crc32c

ANSWER = struct.Struct(">iixB").pack  # size, correlation id, no tagged fields; then as long as a produce answer is
ANSWER_BYTES = 60
TAIL = bytes(3)
CRC_AT = 17
CRC_FROM = 21
SHARED = memoryview(bytearray(1024 * 1024))
STASHED_FRAME_BYTES_MAX = 64 * 1024


class ProduceFloor(asyncio.BufferedProtocol):
    """Receives as the broker does (the rest of a small frame together with what follows, a large frame in a buffer of
    its own), so that nothing but the broker's work lies between the two figures."""

    def __init__(self, descriptor: int, batch_start: int) -> None:
        self._file = descriptor
        self._batch_start = batch_start - 4
        self._stash = b""
        self._large: memoryview | None = None
        self._filled = 0
        self._spare = memoryview(b"")
        self._socket: socket.socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send past the transport, as the broker does."""
        self._socket = transport.get_extra_info("socket").dup()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Behind the stash in the shared buffer, or the rest of a large frame."""
        if self._large is not None:
            return self._large[self._filled :]
        size = len(self._stash)
        SHARED[:size] = self._stash
        return SHARED[size:]

    def buffer_updated(self, nbytes: int) -> None:
        """Every whole frame of this wake-up, then one write and one send."""
        frames: list[memoryview] = []
        if self._large is not None:
            self._filled += nbytes
            if self._filled < len(self._large):
                return
            frames.append(self._large[4:])
            self._large = None
        else:
            position, end = 0, nbytes + len(self._stash)
            self._stash = b""
            while end - position >= 4:
                size = 4 + int.from_bytes(SHARED[position : position + 4], "big")
                if position + size > end:
                    break
                frames.append(SHARED[position + 4 : position + size])
                position += size
            if position < end:
                rest = SHARED[position:end]
                size = 4 + int.from_bytes(rest[:4], "big") if len(rest) >= 4 else 4
                if size <= STASHED_FRAME_BYTES_MAX:
                    self._stash = bytes(rest)
                else:
                    if len(self._spare) < size:
                        self._spare = memoryview(bytearray(size))
                    self._large = self._spare[:size]
                    self._large[: len(rest)] = rest
                    self._filled = len(rest)
        if not frames:
            return
        pieces: list[memoryview | bytes] = []
        answers = []
        start = self._batch_start
        for frame in frames:
            batch = frame[start:]
            body = bytes(batch[CRC_FROM : 12 + int.from_bytes(batch[8:12], "big")])
            if crc32c(body) != int.from_bytes(batch[CRC_AT:CRC_FROM], "big"):
                raise SystemExit("bad CRC")
            pieces += [batch[:CRC_FROM], body]
            answers.append(ANSWER(ANSWER_BYTES - 4, int.from_bytes(frame[4:8], "big"), 2) + bytes(ANSWER_BYTES - 10))
        for first in range(0, len(pieces), 1000):
            os.writev(self._file, pieces[first : first + 1000])
        self._socket.send(b"".join(answers))

    def connection_lost(self, exc: BaseException | None) -> None:
        """The run is over."""
        self._socket.close()


async def serve_produce(path: str, batch_start: int) -> None:
    """One file, any number of connections."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o644)
    server = await asyncio.get_running_loop().create_server(
        lambda: ProduceFloor(descriptor, batch_start), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class FetchFloor(asyncio.BufferedProtocol):
    """Answers each 4 bytes with a head, `records_bytes` of the file and a tail, one request at a time."""

    def __init__(self, descriptor: int, records_bytes: int) -> None:
        self._file = descriptor
        self._file_bytes = os.fstat(descriptor).st_size
        self._records_bytes = records_bytes
        self._head = struct.pack(">i", ANSWER_BYTES - 4 + records_bytes) + bytes(ANSWER_BYTES - 4 - len(TAIL))
        self._position = 0
        self._left = 0
        self._socket: socket.socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send past the transport, as the broker does."""
        self._socket = transport.get_extra_info("socket").dup()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The shared buffer: a request is 4 bytes."""
        return SHARED

    def buffer_updated(self, nbytes: int) -> None:
        """The next request."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        self._socket.send(self._head)
        self._left = self._records_bytes
        if not self._send():
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._writable)

    def _writable(self) -> None:
        if self._send():
            asyncio.get_running_loop().remove_writer(self._socket.fileno())

    def _send(self) -> bool:
        try:
            while self._left:
                start = self._position + self._records_bytes - self._left
                self._left -= os.sendfile(self._socket.fileno(), self._file, start, self._left)
            self._socket.send(TAIL)
        except BlockingIOError:
            return False
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        self._position += self._records_bytes
        if self._position + self._records_bytes > self._file_bytes:
            self._position = 0
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        """The run is over."""
        self._socket.close()


async def serve_fetch(path: str, records_bytes: int) -> None:
    """One file, any number of connections."""
    descriptor = os.open(path, os.O_RDONLY)
    server = await asyncio.get_running_loop().create_server(
        lambda: FetchFloor(descriptor, records_bytes), "127.0.0.1", 0
    )
    # As the broker does: where BBR is the kernel's default, it paces even loopback by timers.
    server.sockets[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        asyncio.run(serve_produce(sys.argv[2], int(sys.argv[3])))
    else:
        asyncio.run(serve_fetch(sys.argv[2], int(sys.argv[3])))
