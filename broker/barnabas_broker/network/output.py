"""The output of one connection: bytes and file ranges leave in the order they were put, partial writes are continued.

May touch:  its duplicate of the connection's socket, FileRanges.   Must not touch: frames, handlers.
Invariants: one writer per socket, so nothing is ever interleaved; each FileRange is released exactly once, when its
            last byte is sent or the output closes; a file shorter than promised closes the connection (the client was
            given a size).
Read next:  connection.py.

One turn sends at most TURN_BYTES_MAX, so that one big fetch does not block every other connection of the loop
(measured: 8 MiB responses give a loop lag p99 of 33 ms, 2 MiB 5 ms). For the same reason a range that is not in the page
cache is read ahead by a thread before sendfile, which would wait for the disk on the loop: one consumer of old records
must not block the producers. Whether it is there is asked of the kernel, about a microsecond.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket as sockets
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from barnabas_broker.api.slot import Part, release_parts
from barnabas_broker.network.request_memory import RequestMemory
from barnabas_broker.network.socket_calls import cork, send_file
from barnabas_broker.network.stats import NetworkStats
from barnabas_log.disk import File, FileRange
from barnabas_log.disk_calls import is_cached

TURN_BYTES_MAX = 2 * 1024 * 1024
JOINED_BYTES_MAX = 64 * 1024
_READ_AHEAD_BYTES = 256 * 1024


class SocketOutput:
    """Owns the sending side of a socket."""

    __slots__ = (
        "_descriptor",
        "_is_closed",
        "_is_corked",
        "_is_reading_ahead",
        "_is_waiting",
        "_kept_bytes",
        "_loop",
        "_memory",
        "_on_lost",
        "_on_progress",
        "_parts",
        "_sent_end",
        "_sent_file",
        "_socket",
        "_stats",
        "_warm",
        "queued_bytes",
    )

    def __init__(
        self,
        *,
        socket: sockets.socket,
        loop: asyncio.AbstractEventLoop,
        stats: NetworkStats,
        memory: RequestMemory,
        on_progress: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> None:
        """`socket` is a duplicate owned by the output; `on_progress` is called when a slow client has read something."""
        self._socket = socket
        self._descriptor = socket.fileno()
        self._loop = loop
        self._stats = stats
        self._memory = memory
        self._kept_bytes = 0
        """Counted as memory: what waited when the socket took no more, and what came since; without ranges, which are none."""
        self._on_progress = on_progress
        self._on_lost = on_lost
        self._parts: deque[Part] = deque()
        self._is_waiting = False
        self._is_closed = False
        self._is_corked = False
        self._is_reading_ahead = False
        self._warm: tuple[File, int] | None = None
        """The file that was read ahead last, and up to where."""
        self._sent_file: File | None = None
        self._sent_end = 0
        """The file that was sent from last, and up to where."""
        self.queued_bytes = 0

    def send(self, parts: Sequence[Part], size_bytes: int) -> None:
        """Queue answers and send what the socket takes now, the rest when it takes more."""
        self._parts.extend(parts)
        self.queued_bytes += size_bytes
        if self._is_waiting or self._is_reading_ahead or self._is_closed:
            if self._is_waiting and not self._is_closed:
                self._keep(parts)
            return
        if self._send():
            return
        self._is_waiting = True
        self._keep(self._parts)
        self._loop.add_writer(self._descriptor, self._writable)

    def close(self) -> None:
        """Drop what is queued and the descriptor."""
        if self._is_closed:
            return
        self._is_closed = True
        self._let_go()
        if self._is_waiting:
            self._loop.remove_writer(self._descriptor)
        parts, self._parts = self._parts, deque()
        self.queued_bytes = 0
        release_parts(parts)
        self._socket.close()

    def _writable(self) -> None:
        if self._send():
            self._is_waiting = False
            self._let_go()
            self._loop.remove_writer(self._descriptor)
        self._on_progress()

    @property
    def kept_bytes(self) -> int:
        """Memory of answers that a slow client has not read."""
        return self._kept_bytes

    def _keep(self, parts: Iterable[Part]) -> None:
        kept = sum(len(part) for part in parts if type(part) is not FileRange)
        self._kept_bytes += kept
        self._memory.take(kept)

    def _let_go(self) -> None:
        self._memory.give_back(self._kept_bytes)
        self._kept_bytes = 0

    def _send(self) -> bool:
        """Send up to a turn's worth. False when the socket must be waited for; True when nothing is left, or the disk
        continues it."""
        parts = self._parts
        left = TURN_BYTES_MAX
        try:
            if len(parts) == 3:
                self._send_one_range()
            while parts and left > 0:
                part = parts[0]
                if type(part) is FileRange:
                    sent = self._send_range(part, left)
                else:
                    sent = self._send_bytes()
                self.queued_bytes -= sent
                self._stats.bytes_out += sent
                left -= sent
        except BlockingIOError:
            return False
        except _ColdRange as cold:
            self._read_ahead(cold.file, cold.position, cold.size)
            return True
        except ShortFile:
            self._on_lost("short_read")
            return True
        except OSError:  # reset by peer, broken pipe: the reading side learns of it too
            self._on_lost("client")
            return True
        if parts:
            return False
        if self._is_corked:
            self._socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, True)
        return True

    def _send_one_range(self) -> None:
        """The usual answer of a fetch, framing, a range and framing, sent flat: a third of the steps of the general way,
        which takes what this leaves, and whatever is not alike."""
        parts = self._parts
        head, part, tail = parts
        if type(part) is not FileRange or type(head) is FileRange or type(tail) is FileRange:
            return
        file, position, size = part
        if size > TURN_BYTES_MAX:
            return
        try:
            source = file.send_descriptor()
        except OSError:  # a simulated disk has no descriptors
            return
        warm = self._warm
        if (warm is None or warm[0] is not file or position >= warm[1]) and self._is_cold(source, part, size):
            return
        total = 0
        send = self._socket.send
        if not self._is_corked:
            self._cork()
        try:
            total = send(head)  # type: ignore[arg-type]
            if total < len(head):
                parts[0] = memoryview(head)[total:]  # type: ignore[arg-type]
                return
            parts.popleft()
            sent = send_file(self._descriptor, source, position, size)
            total += sent
            self._stats.bytes_sent_from_files += sent
            self._sent_file, self._sent_end = file, position + sent
            if sent < size:  # also when the file is shorter than promised: the general way meets its end
                parts[0] = FileRange(file, position + sent, size - sent)
                return
            parts.popleft()
            file.release()
            sent = send(tail)  # type: ignore[arg-type]
            total += sent
            if sent < len(tail):
                parts[0] = memoryview(tail)[sent:]  # type: ignore[arg-type]
                return
            parts.popleft()
        finally:
            self.queued_bytes -= total
            self._stats.bytes_out += total

    def _cork(self) -> None:
        """From the first range on the kernel sends full segments only: framing, records and framing travel as one stream.

        Without it the three bytes behind the records are a packet, and a wake-up of the client, of their own. What is left
        when all was given is pushed by TCP_NODELAY, which does so under TCP_CORK too: one call, where taking the cork out
        and putting it in again would be two.
        """
        self._is_corked = True
        cork(self._socket)

    def _send_bytes(self) -> int:
        """One send of the byte parts at the head; returns the bytes taken.

        Small parts are joined: sendmsg of 16 produce answers took 240 us, their join and send 70 us (measured).
        """
        parts = self._parts
        data = parts.popleft()
        if parts:
            run = [data]
            size = len(data)
            while parts and size < JOINED_BYTES_MAX:
                part = parts[0]
                if type(part) is FileRange:
                    if not self._is_corked:
                        self._cork()
                    break
                run.append(part)
                size += len(part)
                parts.popleft()
            if len(run) > 1:
                data = b"".join(run)  # type: ignore[arg-type]
        try:
            sent = self._socket.send(data)  # type: ignore[arg-type]
        except BlockingIOError:
            parts.appendleft(data)
            raise
        if sent < len(data):
            parts.appendleft(memoryview(data)[sent:])  # type: ignore[arg-type]
        return sent

    def _send_range(self, part: FileRange, left: int) -> int:
        """One sendfile of the range at the head; returns the bytes taken. Raises ShortFile."""
        try:
            source = part.file.send_descriptor()
        except OSError:  # a simulated disk has no descriptors
            self._parts[0] = self._read(part)
            return self._send_bytes()
        count = part.size if part.size < left else left
        warm = self._warm
        if (warm is None or warm[0] is not part.file or part.position >= warm[1]) and self._is_cold(
            source, part, count
        ):
            raise _ColdRange(part.file, part.position, count)
        sent = send_file(self._descriptor, source, part.position, count)
        if sent == 0:
            raise ShortFile(f"{part.file.path} ended before {part.position + part.size}")
        self._stats.bytes_sent_from_files += sent
        self._sent_file, self._sent_end = part.file, part.position + sent
        if sent == part.size:
            self._parts.popleft()
            part.file.release()
        else:
            self._parts[0] = FileRange(part.file, part.position + sent, part.size - sent)
        return sent

    def _is_cold(self, descriptor: int, part: FileRange, size: int) -> bool:
        """Whether a range would have to be read from the disk, as its first page and the one before its last show.

        Not the last: the log has just looked at the batch behind the range, most often in that very page.
        """
        position = part.position
        # A reader continues where it stopped, most often in a page of which the beginning was sent a moment ago.
        is_begun = position == self._sent_end and part.file is self._sent_file and position % mmap.PAGESIZE
        if not is_begun and not is_cached(descriptor, position):
            return True
        return size > mmap.PAGESIZE and not is_cached(descriptor, position + size - 1 - mmap.PAGESIZE)

    def _read_ahead(self, file: File, position: int, size: int) -> None:
        """Bring a range into the page cache by a thread, then continue. The file is held meanwhile."""
        self._is_reading_ahead = True
        self._stats.cold_reads += 1
        file.acquire()
        reading = self._loop.run_in_executor(None, _touch, file.send_descriptor(), position, size)

        def done(reading: asyncio.Future[None]) -> None:
            file.release()
            self._is_reading_ahead = False
            if self._is_closed or reading.cancelled():
                return
            if reading.exception() is not None:  # a disk that cannot be read: sendfile would fail alike
                self._on_lost("short_read")
                return
            self._warm = (file, position + size)
            self.send((), 0)
            self._on_progress()

        reading.add_done_callback(done)

    @staticmethod
    def _read(part: FileRange) -> bytes:
        data = part.file.read(part.position, part.size)
        part.file.release()
        if len(data) < part.size:
            raise ShortFile(f"{part.file.path} ended before {part.position + part.size}")
        return data


def _touch(descriptor: int, position: int, size: int) -> None:
    """Read a range and drop it: what is left is the page cache. Runs in a thread."""
    end = position + size
    while position < end:
        data = os.pread(descriptor, min(_READ_AHEAD_BYTES, end - position), position)
        if not data:
            return
        position += len(data)


class _ColdRange(Exception):
    """A range that must be read from the disk first."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(file.path)
        self.file = file
        self.position = position
        self.size = size


class ShortFile(Exception):
    """A log file has fewer bytes than a fetch answer promised."""
