"""Metrics as a client pushes them, in bytes of OpenTelemetry's that nothing of ours has written."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

CUMULATIVE, DELTA = 2, 1


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes((number,))


def field(number: int, body: bytes) -> bytes:
    """A field of protobuf that has a length."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def labels(texts: Mapping[str, str], *, number: int) -> bytes:
    pairs = (field(1, key.encode()) + field(2, field(1, value.encode())) for key, value in texts.items())
    return b"".join(field(number, pair) for pair in pairs)


def point(value: float, **texts: str) -> bytes:
    """With a time, which nobody reads."""
    return field(
        1,
        varint(3 << 3 | 1)
        + struct.pack("<Q", 1_700_000_000)
        + b"\x21"
        + struct.pack("<d", value)
        + labels(texts, number=7),
    )


def gauge(name: str, value: float, **texts: str) -> bytes:
    return field(2, field(1, name.encode()) + field(5, point(value, **texts)))


def total(name: str, value: float, *, temporality: int = DELTA, **texts: str) -> bytes:
    body = point(value, **texts) + bytes((2 << 3, temporality, 3 << 3, 1))
    return field(2, field(1, name.encode()) + field(7, body))


def pushed(metrics: Sequence[bytes], **resource: str) -> bytes:
    """MetricsData of one client."""
    return field(1, field(1, labels(resource, number=1)) + field(2, b"".join(metrics)))
