"""Polls: a client that fetches one partition asks with the same bytes again and again, but for an offset or two.

May touch:  fetch_request.py.        Must not touch: the declared classes, the bytes of records.
Invariants: what a poll is said to ask for is what fetch_request.py reads from the same bytes; an answer is byte for byte what
            fetch_response.py makes.
Read next:  barnabas_broker/api/fetch.py, which remembers what polls say.
"""

from __future__ import annotations

import struct as struct_module
from functools import lru_cache
from typing import Any

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages.fetch_fields import pack_int32, unpack_int64
from barnabas_wire.kafka.messages.fetch_request import (
    ONE_AHEAD,
    ONE_FOLLOWER,
    ONE_REQUEST,
    REQUEST_HEAD,
    ParsedFetchRequest,
    parse_fetch_request,
)
from barnabas_wire.kafka.primitives import MalformedMessage, write_compact_string

_pack_int64 = struct_module.Struct(">q").pack
# A poll: the request of one partition, asked with another fetch offset each time. What stands around that:
POLL_BYTES_MAX = 512
_POLL_TAIL_BYTES = {  # behind the fetch offset: fetched epoch, log start, max bytes, nothing forgotten, no rack, no tags
    version: 21 if version >= 12 else 4 + 8 * (version >= 5) + 4 * (version >= 7) + 2 * (version >= 11)
    for version in REQUEST_HEAD
}
_POLL_COUNTS = {  # low byte of the topic count, from the start; of the partition count, from the end; what says one
    version: (head.size, -38, 2)
    if version >= 12
    else (head.size + 3, -_POLL_TAIL_BYTES[version] - (17 if version >= 9 else 13), 1)
    for version, head in REQUEST_HEAD.items()
}
_FOLLOWER_BYTES = ONE_FOLLOWER.size - 1
"""How much longer a follower's poll is, from version 15 on: it says who it is in a tagged field."""
_FOLLOWER_POLL_BYTES = ONE_REQUEST.size + ONE_FOLLOWER.size
_AHEAD_POLL_BYTES = ONE_AHEAD.size + ONE_FOLLOWER.size
_FLUSHED_AT = 19
"""Where the flushed offset stands behind the fetch offset: fetched epoch, log start, max bytes, and what tags it."""
_AHEAD_TAIL_BYTES = _POLL_TAIL_BYTES[15] + _FOLLOWER_BYTES + _AHEAD_POLL_BYTES - _FOLLOWER_POLL_BYTES
_FLUSHED_MOST = (1 << 63) - 1


def split_poll(view: memoryview, position: int, version: int) -> tuple[bytes, int, bytes, int] | None:
    """(what stands before the fetch offset, the offset, what stands behind with zeros for a flushed offset, the flushed offset
    or -1) of a FetchRequest body v4 to v18 of one partition.

    A consumer or follower begins and ends request after request with the same bytes: what they say is worth remembering, and
    parse_poll says it. Of a request without rack and tagged fields, but for a follower's own; for most others None, else bytes
    that parse_poll refuses.
    """
    tail_bytes = _POLL_TAIL_BYTES[version]
    topics_at, partitions_at, one = _POLL_COUNTS[version]
    size = len(view) - position
    if version >= 15 and size in (_FOLLOWER_POLL_BYTES, _AHEAD_POLL_BYTES):
        longer_bytes = _FOLLOWER_BYTES + size - _FOLLOWER_POLL_BYTES
        tail_bytes += longer_bytes
        partitions_at -= longer_bytes
    if size > POLL_BYTES_MAX or size < topics_at - partitions_at:
        return None
    if view[position + topics_at] != one or view[partitions_at] != one:
        return None
    head, offset, tail = _poll_unpacker(size - tail_bytes - 8, tail_bytes)(view, position)
    if tail_bytes != _AHEAD_TAIL_BYTES:
        return head, offset, tail, -1
    (flushed,) = unpack_int64(tail, _FLUSHED_AT)
    return head, offset, b"%b\0\0\0\0\0\0\0\0%b" % (tail[:_FLUSHED_AT], tail[_FLUSHED_AT + 8 :]), flushed


@lru_cache
def _poll_unpacker(head_bytes: int, tail_bytes: int) -> Any:
    return struct_module.Struct(f">{head_bytes}sq{tail_bytes}s").unpack_from


def parse_poll(head: bytes, tail: bytes, version: int) -> ParsedFetchRequest | None:
    """What `head`, any fetch offset and `tail` say, with 0 for the offset, and for the flushed offset if there is one; None when
    that is no poll of one partition.

    The parser reads from front to back: if eight bytes are the fetch offset both when all their bits are 0 and when all are
    1, then every bit of it is theirs, and nothing else depends on them. So it is with the flushed offset, but for its sign.
    """
    is_ahead = len(tail) == _AHEAD_TAIL_BYTES
    most = _pack_int64(_FLUSHED_MOST)
    other_tail = tail[:_FLUSHED_AT] + most + tail[_FLUSHED_AT + 8 :] if is_ahead else tail
    try:
        poll = parse_fetch_request(memoryview(head + bytes(8) + tail), 0, version)
        other = parse_fetch_request(memoryview(head + b"\xff" * 8 + other_tail), 0, version)
    except MalformedMessage:
        return None
    offsets = [
        [(partition.fetch_offset, partition.flushed_offset) for partition in request.partitions]
        for request in (poll, other)
    ]
    return poll if offsets == ([[(0, 0)], [(-1, _FLUSHED_MOST)]] if is_ahead else [[(0, -1)], [(-1, -1)]]) else None


class PollAnswers:
    """Encodes the answers to one poll that bring records: what is the same in all of them is made once."""

    __slots__ = ("_after_offsets", "_before_offsets", "_pack", "framing_bytes")

    RECORDS_BYTES_MIN, RECORDS_BYTES_MAX = (1 << 14) - 1, (1 << 21) - 2
    """So many take a length of three bytes."""
    TAIL = b"\0\0\0"
    """Behind the records: nothing tagged."""
    VERSION_MIN = 12

    def __init__(self, version: int, topic: str | Uuid, index: int, *, is_read_committed: bool) -> None:
        before = bytearray(b"\2")  # one topic
        if version >= 13:
            before += topic  # type: ignore[arg-type]
        else:
            write_compact_string(before, topic)
        self._before_offsets = bytes(before + b"\2" + pack_int32(index) + b"\0\0")  # one partition, no error
        # Not one aborted transaction for who asks, null for who does not; no preferred replica.
        self._after_offsets = (b"\1" if is_read_committed else b"\0") + pack_int32(-1)
        # Zeros behind the correlation id: nothing throttled, no error, no session.
        layout = struct_module.Struct(f">ii11x{len(self._before_offsets)}sqqq5sBBB")
        self._pack = layout.pack
        self.framing_bytes = layout.size + len(self.TAIL)

    def head(self, correlation_id: int, high: int, stable: int, start: int, records_bytes: int) -> bytes:
        """What stands before the records of a frame of framing_bytes + records_bytes, within the bounds above.

        high, stable, start: high watermark, last stable and log start offset.
        """
        length = records_bytes + 1
        return self._pack(
            self.framing_bytes + records_bytes - 4, correlation_id, self._before_offsets, high, stable, start,
            self._after_offsets, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14,
        )  # fmt: skip
