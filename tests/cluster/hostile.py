"""What a hostile client sends: frames that lie about their length, their counts or their kind, and slow drips.

Loopback only; every connection ends by itself after a bounded number of bytes.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

HEADER = struct.Struct(">ihhih")
DRIP_BYTES = 5
"""Bytes that a dripping connection sends, one each second."""

Attack = Callable[[socket.socket], None]


def request(api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
    """A framed request with correlation id 7 and client id "x"."""
    payload = struct.pack(">hhih", api_key, version, 7, 1) + b"x" + (b"\0" if is_flexible else b"") + body
    return struct.pack(">i", len(payload)) + payload


def attacks(seed: int) -> Iterator[tuple[str, Attack]]:
    """Endless supply of (name, attack), in turn, random parts drawn from the seed."""
    draw = random.Random(seed)
    metadata = request(3, 12, b"\x02" + bytes(16) + b"\x02t\0\0\0\0", is_flexible=True)
    while True:
        yield "length 0", sends(struct.pack(">i", 0))
        yield "length -1", sends(struct.pack(">i", -1))
        yield "length 2^31-1", sends(struct.pack(">i", 2**31 - 1) + bytes(64))
        yield "length 99 MiB, then nothing", sends(struct.pack(">i", 99 << 20) + bytes(64), is_left_open=True)
        yield "truncated frame", sends(metadata[: draw.randrange(5, len(metadata))], is_left_open=True)
        yield "5-byte compact array", sends(request(3, 12, b"\xff\xff\xff\xff\x0f", is_flexible=True))
        yield "array of 2^31-1", sends(request(3, 4, struct.pack(">i", 2**31 - 1)))
        yield "produce with 2^31-1 topics", sends(request(0, 7, struct.pack(">hhii", -1, -1, 1000, 2**31 - 1)))
        yield (
            "fetch with 2^31-1 topics",
            sends(request(1, 11, struct.pack(">iiiibiii", -1, 0, 0, 1 << 30, 0, 0, -1, 2**31 - 1))),
        )
        yield "unknown API", sends(request(999, 0, b""))
        yield "unknown version", sends(request(3, 99, b""))
        yield "garbage", sends(draw.randbytes(512))
        yield "one byte per second", drips(metadata[:DRIP_BYTES])


def sends(data: bytes, *, is_left_open: bool = False) -> Attack:
    """Send, then wait for the broker to close, or hold the connection for a while."""

    def attack(connection: socket.socket) -> None:
        connection.sendall(data)
        if is_left_open:
            time.sleep(2.0)
            return
        while connection.recv(4096):
            continue

    return attack


def drips(data: bytes) -> Attack:
    """One byte per second."""

    def attack(connection: socket.socket) -> None:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(1.0)

    return attack


def run_attack(port: int, attack: Attack, *, timeout_s: float = 60.0) -> str:
    """Open a connection, attack, and say how it ended: closed, reset, or left (by us)."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        try:
            attack(connection)
        except (ConnectionResetError, BrokenPipeError):
            return "reset"
        except TimeoutError:
            return "not closed"
    return "closed"
