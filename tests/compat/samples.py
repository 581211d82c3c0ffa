"""Records that clients send to each other, and how long a test waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 60.0
"""Bound of every wait; a wait that is met ends at once."""
FIRST_TIMESTAMP_MS = 1_357_034_400_000
"""1 January 2013, 10:00 UTC."""


class Sample(NamedTuple):
    """One record as every client can say it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def samples(*, with_null_key_and_value: bool = True) -> list[Sample]:
    """Keys, values and headers that are null, empty, binary, large, and many; a second between timestamps.

    Some clients refuse to send a record that has neither key nor value.
    """
    bodies: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"null key", ()),
        (b"null value", None, ()),
        (None, None if with_null_key_and_value else b"", ()),
        (b"", b"", ()),
        (bytes(range(256)), bytes(range(255, -1, -1)), ()),
        ("schlüssel".encode(), "wert-λ-🚀".encode(), ()),
        (b"headers", b"one", (("name", b"value"),)),
        (b"headers", b"many", (("a", b"1"), ("a", b"2"), ("b", b""), ("c", None), ("ü", b"\x00\xff"))),
        (b"compressible", b"x" * 50_000, ()),
        *((b"%d" % n, b"value %d" % n, ()) for n in range(200)),
    ]
    return [
        Sample(key, value, headers, FIRST_TIMESTAMP_MS + 1000 * index)
        for index, (key, value, headers) in enumerate(bodies)
    ]


def until(done: Callable[[], bool], step: Callable[[], object]) -> None:
    """Repeat the step until done; fails at the deadline. The step does its own waiting."""
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, f"not done within {DEADLINE_S} s"
        step()
