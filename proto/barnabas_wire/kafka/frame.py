"""Frames and headers: where a message begins, where it ends, and whom it answers. Sans-IO.

May touch:  its arguments.            Must not touch: sockets, clock.
Invariants: memory for a frame grows with the bytes that came, not with the size a peer claims; a complete frame inside the
            given data is a slice of it (no copy).
Read next:  schema.py for what stands behind the header; ../client/connection.py for who uses the decoder.

Layout of a frame:            int32 size (without itself), then header and body.
Request header v1:            int16 api key, int16 version, int32 correlation id, nullable string client id (int16 length)
Request header v2 (flexible): the same, then tagged fields; the client id stays a legacy string
Response header v0:           int32 correlation id
Response header v1 (flexible): the same, then tagged fields; ApiVersions keeps v0 in every version (KIP-511)
"""

from __future__ import annotations

import struct

from barnabas_wire.kafka.primitives import (
    Buffer,
    MalformedMessage,
    malformed,
    skip_tagged_fields,
    write_string,
)
from barnabas_wire.kafka.schema import request_header_version, response_header_version

SIZE_BYTES = 4
RESERVED_BYTES_MIN = 64 * 1024
RESERVE_FACTOR = 8
"""A frame that arrives in pieces gets at most this many times the bytes it has brought (and at least the minimum)."""

_unpack_size = struct.Struct(">i").unpack_from
_pack_size = struct.Struct(">i").pack
_pack_request = struct.Struct(">ihhi").pack


def request_head(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """The start of a request frame, its size still zero: append the body, then call `close_frame`."""
    out = bytearray(_pack_request(0, api_key, version, correlation_id))
    write_string(out, client_id)
    if request_header_version(api_key, version) == 2:
        out += b"\0"
    return out


def close_frame(out: bytearray) -> bytearray:
    """Write the size of a frame that is complete."""
    out[0:SIZE_BYTES] = _pack_size(len(out) - SIZE_BYTES)
    return out


def decode_response_header(view: Buffer, api_key: int, version: int, position: int = 0) -> tuple[int, int]:
    """(correlation id, where the body begins) of a response frame without its size. Raises MalformedMessage."""
    try:
        (correlation_id,) = _unpack_size(view, position)
        position += 4
        if response_header_version(api_key, version) == 1:
            position = position + 1 if not view[position] else skip_tagged_fields(view, position, len(view))
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"response header: {error}") from error
    return correlation_id, position


class FrameDecoder:
    """Cuts a byte stream into frames (without their size prefix).

    Two ways in. `feed(data)` takes bytes from any buffer: complete frames come out as slices of `data`, valid as long as it
    is; a frame that arrives in pieces is gathered in memory of its own. `space()` and `filled(count)` let the caller read
    the rest of such a frame straight into that memory: a large response is then copied by the kernel only.
    """

    __slots__ = ("_body", "_filled", "_frame_bytes_max", "_kept", "_retired", "_reuses_memory", "_size", "_size_bytes")

    def __init__(self, *, frame_bytes_max: int, reuses_memory: bool = False) -> None:
        """frame_bytes_max: larger frames, size prefix not counted, are refused with MalformedMessage.

        reuses_memory: a gathered frame is valid only until the next `feed`; saves clearing fresh memory for each.
        """
        self._frame_bytes_max = frame_bytes_max
        self._reuses_memory = reuses_memory
        self._kept = bytearray()
        """Memory for the next frame to be gathered, when it is large enough."""
        self._retired: bytearray | None = None
        """Memory of a frame handed out since the last `feed`."""
        self._size_bytes = bytearray()
        """The size prefix as far as it has come, when the stream stopped within it."""
        self._body: bytearray | None = None
        self._size = 0
        self._filled = 0

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take the next bytes of the stream; returns the frames they complete. Raises MalformedMessage for a bad size."""
        view = data if isinstance(data, memoryview) else memoryview(data)
        if self._retired is not None:
            self._kept, self._retired = self._retired, None
        frames: list[memoryview] = []
        position, end = 0, len(view)
        while position < end:
            if self._body is not None:
                take = min(self._size - self._filled, end - position)
                self._reserve(self._filled + take)
                self._body[self._filled : self._filled + take] = view[position : position + take]
                position += take
                frame = self.filled(take)
                if frame is not None:
                    frames.append(frame)
                continue
            if self._size_bytes or end - position < SIZE_BYTES:
                take = min(SIZE_BYTES - len(self._size_bytes), end - position)
                self._size_bytes += view[position : position + take]
                position += take
                if len(self._size_bytes) < SIZE_BYTES:
                    break
                size = self._checked(_unpack_size(self._size_bytes)[0])
                self._size_bytes.clear()
            else:
                size = self._checked(_unpack_size(view, position)[0])
                position += SIZE_BYTES
            if end - position >= size:
                frames.append(view[position : position + size])
                position += size
            else:
                self._begin(size, end - position)
        return frames

    def space(self) -> memoryview | None:
        """Where the next bytes of a begun frame belong; None between frames and within a size prefix (then use feed)."""
        if self._body is None:
            return None
        if self._filled == len(self._body):
            self._reserve(self._filled + 1)
        return memoryview(self._body)[self._filled : self._size]

    def filled(self, count: int) -> memoryview | None:
        """Say that `count` bytes of `space()` were written; returns the frame once it is complete."""
        assert self._body is not None, "no frame was begun"
        self._filled += count
        assert self._filled <= self._size, "more bytes than the frame has"
        if self._filled < self._size:
            return None
        frame = memoryview(self._body)[: self._size]
        if self._reuses_memory:
            self._retired = self._body
        self._body = None
        return frame

    def _checked(self, size: int) -> int:
        if not 0 <= size <= self._frame_bytes_max:
            malformed(f"frame size of at most {self._frame_bytes_max}", size)
        return size

    def _begin(self, size: int, ready: int) -> None:
        self._size = size
        self._filled = 0
        reserve = min(size, max(RESERVED_BYTES_MIN, RESERVE_FACTOR * ready))
        if len(self._kept) >= reserve:
            self._body, self._kept = self._kept, bytearray()
        else:
            self._body = bytearray(reserve)

    def _reserve(self, needed: int) -> None:
        """Make room for `needed` bytes; a new buffer, since slices of the old one may be in somebody's hands."""
        assert self._body is not None
        if needed <= len(self._body):
            return
        grown = bytearray(min(self._size, max(needed, RESERVE_FACTOR * self._filled)))
        grown[: self._filled] = memoryview(self._body)[: self._filled]
        self._body = grown
