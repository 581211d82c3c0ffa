"""A client that costs next to nothing: prebuilt produce frames out, answers counted; fetches, records dropped.

May touch:  sockets.                  Must not touch: broker code.
Invariants: every answer is looked at (its error codes too); a run ends when all that was sent is answered.
Read next:  __main__.py.

Latency is per request, from the moment its first byte is given to the kernel to its answer. With many requests in
flight it is mostly the queue of the client's own window; a window of 1 measures the broker.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from barnabas_wire.kafka.messages.fetch_response import parse_fetch_response
from barnabas_wire.kafka.messages.produce import ProduceResponse
from barnabas_wire.kafka.schema import decode
from tests.bench.frames import FETCH_VERSION, PRODUCE_VERSION, ProduceFrame, make_fetch

RECEIVE_BYTES = 1 << 20
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket raises that would block."""


class Target(NamedTuple):
    """A partition's leader and the frame for it."""

    host: str
    port: int
    frame: ProduceFrame
    tls: ssl.SSLContext | None = None
    """None: in plain."""


class Blast(NamedTuple):
    """What one run saw."""

    seconds: float
    requests: int
    bytes: int
    """Of record values."""
    records: int
    latencies_s: list[float]

    @property
    def mb_per_s(self) -> float:
        """10^6 bytes of values per second."""
        return self.bytes / self.seconds / 1e6

    def percentile_ms(self, fraction: float) -> float:
        """Latency in ms below which that fraction lies."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] * 1000 if ordered else 0.0


class _Stream:
    """One connection with a window of requests in flight."""

    def __init__(self, target: Target, count: int, window: int, *, is_broker: bool) -> None:
        self.socket = _connect(target.host, target.port, target.tls)
        self.socket.setblocking(False)
        self.frame = target.frame
        self.left = count
        self.window = window
        self.is_broker = is_broker
        self.unanswered: deque[float] = deque()
        self.unsent = memoryview(b"")
        self.received = bytearray()
        self.latencies_s: list[float] = []

    @property
    def is_done(self) -> bool:
        return self.left == 0 and not self.unanswered

    @property
    def may_send(self) -> bool:
        return bool(self.unsent) or (self.left > 0 and len(self.unanswered) < self.window)

    def send(self) -> None:
        while self.may_send:
            if not self.unsent:
                self.unsent = memoryview(self.frame.data)
                self.unanswered.append(time.perf_counter())
                self.left -= 1
            try:
                sent = self.socket.send(self.unsent)
            except NOT_NOW:
                return
            self.unsent = self.unsent[sent:]

    def receive(self) -> None:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except NOT_NOW:
            return
        if not data:
            raise ConnectionError("the server closed the connection amid the run")
        received = self.received
        received += data
        now = time.perf_counter()
        position = 0
        while len(received) - position >= 4:
            size = int.from_bytes(received[position : position + 4], "big")
            if len(received) - position < 4 + size:
                break
            if self.is_broker:
                _check(memoryview(bytes(received[position + 4 : position + 4 + size])))
            position += 4 + size
            self.latencies_s.append(now - self.unanswered.popleft())
        del received[:position]


def _check(answer: memoryview) -> None:
    """Every partition of an answer must be without error. The usual one is looked at by position: one topic, one partition."""
    name_bytes = answer[6] - 1
    if answer[5] == 2 and answer[7 + name_bytes + 5 : 7 + name_bytes + 7] == b"\0\0":
        return
    response: ProduceResponse = decode(ProduceResponse, PRODUCE_VERSION, answer, 5)
    errors = [part.error_code for topic in response.responses for part in topic.partition_responses]
    raise RuntimeError(f"produce failed with error codes {errors}")


def blast(targets: Sequence[Target], *, requests: int, window: int, is_broker: bool = True) -> Blast:
    """Send `requests` in all, spread evenly over the targets, each with up to `window` in flight."""
    share = requests // len(targets)
    streams = [_Stream(target, share, window, is_broker=is_broker) for target in targets]
    poller = select.poll()
    by_descriptor = {}
    for stream in streams:
        by_descriptor[stream.socket.fileno()] = stream
        poller.register(stream.socket, select.POLLIN)
    started = time.perf_counter()
    for stream in streams:
        stream.send()
    while not all(stream.is_done for stream in streams):
        for stream in streams:
            events = select.POLLIN | (select.POLLOUT if stream.may_send else 0)
            poller.modify(stream.socket, events)
        for descriptor, event in poller.poll(30_000) or _silence():
            stream = by_descriptor[descriptor]
            if event & ~select.POLLOUT:
                stream.receive()
                while isinstance(stream.socket, ssl.SSLSocket) and stream.socket.pending():
                    stream.receive()
            stream.send()
    seconds = time.perf_counter() - started
    for stream in streams:
        stream.socket.close()
    return Blast(
        seconds=seconds,
        requests=share * len(streams),
        bytes=sum(stream.frame.value_bytes * share for stream in streams),
        records=sum(stream.frame.record_count * share for stream in streams),
        latencies_s=[latency for stream in streams for latency in stream.latencies_s],
    )


def settle(targets: Sequence[Target], *, timeout_s: float = 20.0) -> None:
    """Send a request to each target until all are taken: brokers learn of a new topic one after another."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            blast(targets, requests=len(targets), window=1)
            return
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _silence() -> list[tuple[int, int]]:
    raise TimeoutError("no answer for 30 s")


def drain(
    host: str,
    port: int,
    topic: str,
    partition: int,
    *,
    end_offset: int,
    max_bytes: int,
    values_share: float,
    batch: tuple[int, int] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Blast:
    """Fetch a partition from its start to `end_offset`, one request after another.

    `batch`: bytes and records of every batch, where they are all alike. Else their headers are looked at one by one, which
    at 16 KiB takes this reader as long as the broker needs for the next answer, and cools the broker's CPU meanwhile.
    `values_share`: bytes of values per byte of records, to count MB of values.
    """
    connection = _connect(host, port, tls)
    request, offset_at = make_fetch(topic, partition, offset=0, max_bytes=max_bytes)
    frame = bytearray(request)
    buffer = memoryview(bytearray(max_bytes + (1 << 20)))
    offset = 0
    records_bytes = 0
    latencies: list[float] = []
    started = time.perf_counter()
    while offset < end_offset:
        struct.pack_into(">q", frame, offset_at, offset)
        asked = time.perf_counter()
        connection.sendall(frame)
        size = int.from_bytes(_receive(connection, buffer[:4]), "big")
        answer = _receive(connection, buffer[:size])
        latencies.append(time.perf_counter() - asked)
        found = parse_fetch_response(answer, 5, FETCH_VERSION).partitions[0]
        if found.error_code:
            raise RuntimeError(f"fetch failed with error code {found.error_code}")
        if batch is None:
            next_offset = _end_of(found.records, offset)
        else:
            next_offset = offset + len(found.records) // batch[0] * batch[1]
        if next_offset == offset and not len(found.records):
            raise RuntimeError(f"nothing at offset {offset} below {end_offset}")
        records_bytes += len(found.records)
        offset = next_offset
    seconds = time.perf_counter() - started
    connection.close()
    return Blast(seconds, len(latencies), int(records_bytes * values_share), offset, latencies)


def drain_floor(host: str, port: int, *, requests: int, records_bytes: int, values_share: float) -> Blast:
    """The same against the bare sendfile loop."""
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(records_bytes + 4096))
    latencies: list[float] = []
    started = time.perf_counter()
    for _ in range(requests):
        asked = time.perf_counter()
        connection.sendall(b"next")
        size = int.from_bytes(_receive(connection, buffer[:4]), "big")
        _receive(connection, buffer[:size])
        latencies.append(time.perf_counter() - asked)
    seconds = time.perf_counter() - started
    connection.close()
    return Blast(seconds, requests, int(requests * records_bytes * values_share), 0, latencies)


def _connect(host: str, port: int, tls: ssl.SSLContext | None) -> socket.socket:
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection if tls is None else tls.wrap_socket(connection, server_hostname=host)


def _receive(connection: socket.socket, view: memoryview) -> memoryview:
    filled = 0
    while filled < len(view):
        count = connection.recv_into(view[filled:])
        if not count:
            raise ConnectionError("the server closed the connection amid the run")
        filled += count
    return view


def _end_of(records: memoryview, offset: int) -> int:
    """Offset after the last whole batch."""
    position = 0
    while len(records) - position >= 61:
        base, length = struct.unpack_from(">qi", records, position)
        if position + 12 + length > len(records):
            break
        offset = base + struct.unpack_from(">i", records, position + 23)[0] + 1
        position += 12 + length
    return offset
