"""A ShareFetch answer as the broker sends it, v1 and v2: framing around records that nobody copies.

May touch:  fetch_fields.py, ../leader_endpoints.py.         Must not touch: the declared classes, the bytes of records.
Invariants: the parts of a partition are handed through as they are, such as file ranges; the bytes are those of the declared message.
Read next:  share_fetch.py (the declared message), fetch_response.py (the same for Fetch).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint, encode_leader_endpoints
from barnabas_wire.kafka.messages.fetch_fields import by_topic, pack_int32
from barnabas_wire.kafka.primitives import write_compact_string, write_uvarint

_pack_head = struct.Struct(">iixih").pack
_pack_index_and_error = struct.Struct(">ih").pack
_pack_int16 = struct.Struct(">h").pack
_pack_leader = struct.Struct(">iix").pack
_pack_acquired = struct.Struct(">qqhx").pack
NO_LEADER = (-1, -1)


class ShareFetchResponsePartition(NamedTuple):
    """One partition to answer.

    parts: what makes up the records, handed through untouched (file ranges, bytes); size_bytes: their sum.
    current_leader: (leader id, leader epoch).  acquired: (first offset, last offset, delivery count).
    """

    topic_id: Uuid
    partition: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: tuple[int, int] = NO_LEADER
    parts: Sequence[Any] = ()
    size_bytes: int = 0
    acquired: Sequence[tuple[int, int, int]] = ()


def encode_share_fetch_response(
    correlation_id: int,
    partitions: Sequence[ShareFetchResponsePartition],
    *,
    lock_timeout_ms: int = 0,
    error_code: int = 0,
    error_message: str | None = None,
    node_endpoints: Collection[LeaderEndpoint] = (),
) -> tuple[list[Any], int]:
    """A whole response frame -> (parts in sending order, size of all of them in bytes). v1 and v2 are alike.

    Partitions of one topic must stand together. lock_timeout_ms: how long acquired records are locked.
    """
    out = bytearray(_pack_head(0, correlation_id, 0, error_code))
    first = out
    parts: list[Any] = [out]
    framing_bytes = records_bytes = 0
    write_compact_string(out, error_message)
    out += pack_int32(lock_timeout_ms)
    groups = by_topic(partitions)
    out += write_uvarint(len(groups) + 1)
    for topic_id, members in groups:
        out += topic_id  # type: ignore[arg-type]  # an id
        out += write_uvarint(len(members) + 1)
        for _, index, error, message, ack_error, ack_message, leader, own_parts, size, acquired in members:
            out += _pack_index_and_error(index, error)
            write_compact_string(out, message)
            out += _pack_int16(ack_error)
            write_compact_string(out, ack_message)
            out += _pack_leader(*leader)
            out += write_uvarint(size + 1)
            if size:
                records_bytes += size
                framing_bytes += len(out)
                parts.extend(own_parts)
                out = bytearray()
                parts.append(out)
            out += write_uvarint(len(acquired) + 1)
            for each in acquired:
                out += _pack_acquired(*each)
            out += b"\0"
        out += b"\0"
    out += encode_leader_endpoints(node_endpoints)
    out += b"\0"
    framing_bytes += len(out)
    total = framing_bytes + records_bytes
    first[0:4] = pack_int32(total - 4)
    return parts, total
