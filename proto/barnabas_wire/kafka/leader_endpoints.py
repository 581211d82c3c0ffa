"""Where the leaders named in an answer are reached, so that the client need not ask for metadata (KIP-951): Produce and Fetch.

May touch:  primitives.py.           Must not touch: the declared messages.
Invariants: the bytes are those of the declared NodeEndpoint of either message.
Read next:  messages/produce.py, messages/fetch_response.py.

Layout: compact array of (int32 node id, compact string host, int32 port, compact string? rack, tagged fields).
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

from barnabas_wire.kafka.primitives import (
    malformed,
    read_compact_string,
    read_uvarint,
    skip_tagged_fields,
    write_compact_string,
    write_uvarint,
)

_int32 = struct.Struct(">i")


class LeaderEndpoint(NamedTuple):
    """A leader and the address of the listener that the request came in on."""

    node_id: int
    host: str
    port: int
    rack: str | None


def encode_leader_endpoints(endpoints: Collection[LeaderEndpoint]) -> bytes:
    """The array, as the value of its tagged field."""
    out = bytearray(write_uvarint(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        out += _int32.pack(node_id)
        write_compact_string(out, host)
        out += _int32.pack(port)
        write_compact_string(out, rack)
        out += b"\0"
    return bytes(out)


def read_leader_endpoints(view: memoryview, p: int, end: int) -> list[LeaderEndpoint]:
    """The array from `p` on. Raises MalformedMessage, IndexError, struct.error."""
    endpoints: list[LeaderEndpoint] = []
    count, p = read_uvarint(view, p)
    if not count:
        malformed("array", -1)
    for _ in range(count - 1):
        (node_id,) = _int32.unpack_from(view, p)
        host, p = read_compact_string(view, p + 4, end)
        (port,) = _int32.unpack_from(view, p)
        rack, p = read_compact_string(view, p + 4, end)
        p = skip_tagged_fields(view, p, end)
        endpoints.append(
            LeaderEndpoint(node_id, malformed("NodeEndpoint.host", -1) if host is None else host, port, rack)
        )
    return endpoints
