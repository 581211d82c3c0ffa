"""The output of one TLS connection: file ranges are read into this process, for asyncio encrypts in memory.

May touch:  its transport, FileRanges.        Must not touch: frames, handlers, the socket below.
Invariants: those of output.py; what the transport has not sent is bounded by its own write buffer, which pauses this output.
Read next:  output.py, that of plain connections; connection.py.

There is no kernel TLS to be had from Python, so sendfile is given up: a range is read SLICE_BYTES at a time, from the page cache on
the loop, else by a thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from barnabas_broker.api.slot import Part, release_parts
from barnabas_broker.network.output import JOINED_BYTES_MAX, TURN_BYTES_MAX
from barnabas_broker.network.request_memory import RequestMemory
from barnabas_broker.network.stats import NetworkStats
from barnabas_log.disk import FileRange
from barnabas_log.disk_calls import is_cached

SLICE_BYTES = 256 * 1024
WRITE_BUFFER_BYTES = 512 * 1024
"""What may wait in the transport before it pauses this output."""


class TlsOutput:
    """Owns the sending side of a TLS transport. The same calls as SocketOutput's."""

    __slots__ = (
        "_is_closed",
        "_is_paused",
        "_is_reading",
        "_kept_bytes",
        "_loop",
        "_memory",
        "_on_lost",
        "_on_progress",
        "_parts",
        "_stats",
        "_transport",
        "queued_bytes",
    )

    def __init__(
        self,
        *,
        transport: asyncio.WriteTransport,
        loop: asyncio.AbstractEventLoop,
        stats: NetworkStats,
        memory: RequestMemory,
        on_progress: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> None:
        """`on_progress` is called when a slow client has read something."""
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport = transport
        self._loop = loop
        self._stats = stats
        self._memory = memory
        self._kept_bytes = 0
        """Counted as memory while the client does not read: see SocketOutput, and the transport's buffer."""
        self._on_progress = on_progress
        self._on_lost = on_lost
        self._parts: deque[Part] = deque()
        self._is_paused = False
        self._is_closed = False
        self._is_reading = False
        """Whether a thread, or the next turn, continues with what is queued."""
        self.queued_bytes = 0

    def send(self, parts: Sequence[Part], size_bytes: int) -> None:
        """Queue answers and hand the transport what it takes now."""
        self._parts.extend(parts)
        self.queued_bytes += size_bytes
        if self._is_paused and not self._is_closed:
            self._keep(parts, 0)
        if not self._is_reading:
            self._pump()

    def pause(self) -> None:
        """The transport's buffer is full."""
        self._is_paused = True
        self._keep(self._parts, WRITE_BUFFER_BYTES)

    def resume(self) -> None:
        """The transport's buffer has room again."""
        self._is_paused = False
        self._let_go()
        if not self._is_closed and not self._is_reading:
            self._pump()
            self._on_progress()

    def close(self) -> None:
        """Drop what is queued."""
        self._is_closed = True
        self._let_go()
        parts, self._parts = self._parts, deque()
        self.queued_bytes = 0
        release_parts(parts)

    @property
    def kept_bytes(self) -> int:
        """Memory of answers that a slow client has not read."""
        return self._kept_bytes

    def _keep(self, parts: Iterable[Part], more: int) -> None:
        kept = more + sum(len(part) for part in parts if type(part) is not FileRange)
        self._kept_bytes += kept
        self._memory.take(kept)

    def _let_go(self) -> None:
        self._memory.give_back(self._kept_bytes)
        self._kept_bytes = 0

    def _pump(self) -> None:
        """Hand over up to a turn's worth."""
        parts = self._parts
        left = TURN_BYTES_MAX
        while parts and left > 0 and not self._is_paused and not self._is_closed:
            part = parts[0]
            if type(part) is FileRange:
                size = min(part.size, SLICE_BYTES)
                if not _is_at_hand(part, size):
                    self._read_aside(part, size)
                    return
                sent = self._take_slice(part, part.file.read(part.position, size), size)
                if not sent:
                    return
            else:
                data = self._joined()
                sent = len(data)
                self._write(data)
            left -= sent
        if parts and not self._is_paused and not self._is_closed:
            self._is_reading = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_reading = False
        if not self._is_closed:
            self._pump()
            self._on_progress()

    def _joined(self) -> bytes | bytearray | memoryview:
        """The byte parts at the head, small ones in one piece: each write is a TLS record and a system call."""
        parts = self._parts
        run = [parts.popleft()]
        size = len(run[0])
        while parts and size < JOINED_BYTES_MAX and type(parts[0]) is not FileRange:
            run.append(parts.popleft())
            size += len(run[-1])
        return run[0] if len(run) == 1 else b"".join(run)  # type: ignore[arg-type,return-value]

    def _take_slice(self, part: FileRange, data: bytes, size: int) -> int:
        """Write a slice of the range at the head; 0 if the file was shorter than promised: then the connection is gone."""
        if len(data) < size:
            self._on_lost("short_read")
            return 0
        if size == part.size:
            self._parts.popleft()
            part.file.release()
        else:
            self._parts[0] = FileRange(part.file, part.position + size, part.size - size)
        self._write(data)
        return size

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self.queued_bytes -= len(data)
        self._stats.bytes_out += len(data)
        self._transport.write(data)

    def _read_aside(self, part: FileRange, size: int) -> None:
        """Read a slice that is not in the page cache by a thread, then continue. The file is held meanwhile."""
        self._is_reading = True
        self._stats.cold_reads += 1
        part.file.acquire()
        reading = self._loop.run_in_executor(None, part.file.read, part.position, size)

        def done(reading: asyncio.Future[bytes]) -> None:
            part.file.release()
            self._is_reading = False
            if self._is_closed or reading.cancelled():
                return
            if reading.exception() is not None:
                self._on_lost("short_read")
            elif self._take_slice(part, reading.result(), size):
                self._pump()
                self._on_progress()

        reading.add_done_callback(done)


def _is_at_hand(part: FileRange, size: int) -> bool:
    """Whether a slice is in the page cache, as its first and last bytes show."""
    try:
        descriptor = part.file.send_descriptor()
    except OSError:  # a simulated disk has no descriptors
        return True
    return is_cached(descriptor, part.position) and is_cached(descriptor, part.position + size - 1)
