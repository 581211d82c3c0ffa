"""Bytes in, frames out, without a socket: where the next bytes go, what is a whole frame, what is kept of the rest.

May touch:  the receive buffers.      Must not touch: sockets, event loops, handlers, answers.
Invariants: the frames are those of the byte stream however it was cut; no byte is copied that belongs to a whole frame of the
            shared buffer; a frame that is refused is refused once its first eight bytes are there, before room is made for it;
            a buffer of the pool is given back once.
Read next:  connection.py, which drives it; receive_buffers.py.

Frame: int32 size (big endian, without itself), then `size` bytes. Valid sizes: 10, which a request header takes, to
socket.request.max.bytes, and to the API's own bound in the handler table, which is known with the first four bytes of the frame.

How it is driven, also by tests, which need bytes alone:

    buffer = reader.get_buffer()          # read into its beginning, any number of bytes
    if reader.received(nbytes):
        for frame in reader.frames():     # raises FrameRefused
            ...                           # done with the frame, or has copied: it is a view of memory that the next read overwrites
            reader.postpone()                 # and leave the loop: this frame and all behind it wait; read no more bytes
                                          # until frames() has been taken up again

Frames that are held are in a copy of at most one receive buffer. Whoever leaves the loop for good calls drop().
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from barnabas_broker.network.receive_buffers import ReceiveBuffers, size_for
from barnabas_broker.network.request_memory import READ_BYTES
from barnabas_wire.kafka.errors import InvariantViolated

FRAME_BYTES_MIN = 10
KIND_END = 8
"""Where api key and version end, counted from the size on: so much must have come before a large frame gets a buffer."""
STASHED_FRAME_BYTES_MAX = 64 * 1024
"""A frame up to this size that came in part is put before the next read: its rest and all that follows come in one read.
Reading its rest alone would cost every second turn of the loop (measured with 16 KiB requests)."""
_NOTHING = memoryview(b"")
_unpack_size = struct.Struct(">i").unpack_from


class FrameRefused(Exception):
    """The peer sent what is no frame, or one that is too large."""


class InvalidFrameSize(FrameRefused):
    """A size that no frame may have: what follows it has no meaning."""


class OversizedFrame(FrameRefused):
    """A frame larger than its API takes; `kind` is api key << 16 | version."""

    def __init__(self, kind: int, frame_bytes: int, bytes_max: int) -> None:
        super().__init__(f"{frame_bytes:,} bytes, at most {bytes_max:,} are taken")
        self.kind = kind


class FrameReader:
    """The receiving side of one connection."""

    __slots__ = (
        "_buffers",
        "_bytes_max_of",
        "_end",
        "_filled",
        "_frame_bytes",
        "_frame_bytes_max",
        "_large",
        "_large_view",
        "_lent",
        "_memory",
        "_position",
        "_postponed_bytes",
        "_shared",
        "_stash",
        "_view",
        "has_postponed",
    )

    def __init__(self, buffers: ReceiveBuffers, *, frame_bytes_max: int, bytes_max_of: Callable[[int], int]) -> None:
        """
        Args:
            frame_bytes_max: largest size of any frame, in bytes.
            bytes_max_of: by api key << 16 | version: the largest frame that is worth room, in bytes.
        """
        self._buffers = buffers
        self._memory = buffers.memory
        self._shared = buffers.shared
        self._frame_bytes_max = frame_bytes_max
        self._bytes_max_of = bytes_max_of
        self._stash = b""
        """The beginning of a small frame, its size prefix included; goes before what is read next."""
        self._large: bytearray | None = None
        """A large frame that arrives in pieces, its size prefix included."""
        self._large_view = _NOTHING
        """The part of `_large` that the frame may fill."""
        self._filled = 0
        self._frame_bytes = 0
        self._view = buffers.shared
        self._position = 0
        self._end = 0
        """`_view[_position:_end]` is what `frames` goes through: at rest the shared buffer, so that a read sets its end alone."""
        self._lent: bytearray | None = None
        """The buffer of a large frame that is whole, until its frame is done with."""
        self._postponed_bytes = 0
        """The size of the copy in which frames wait."""
        self.has_postponed = False
        """Whether frames wait for `frames` to be taken up again; no bytes may be read meanwhile."""

    def get_buffer(self) -> memoryview:
        """Where the next bytes go: behind what is stashed, in the shared buffer, or the rest of a large frame."""
        if self._large is not None:
            if self._filled == len(self._large_view):
                self._grow()
            return self._large_view[self._filled :]
        stash = self._stash
        shared = self._shared
        if not stash:
            return shared[:READ_BYTES] if self._memory.is_pressed else shared
        size = len(stash)
        shared[:size] = stash
        return shared[size : size + READ_BYTES] if self._memory.is_pressed else shared[size:]

    def received(self, nbytes: int) -> bool:
        """Note that the first `nbytes` of get_buffer() were filled; returns whether there may be a whole frame now."""
        if self.has_postponed:
            raise InvariantViolated("bytes were read while frames wait")
        if self._large is not None:
            self._filled += nbytes
            return self._filled == len(self._large_view) and self._is_large_whole()
        if self._stash:
            nbytes += len(self._stash)
            self._set_stash(b"")
        self._end = nbytes
        return True

    def frames(self) -> Iterator[memoryview]:
        """Every whole frame in turn, without its size; the rest is kept when the last one was taken.

        Raises InvalidFrameSize, OversizedFrame.
        """
        view = self._view
        position = self._position
        end = self._end
        frame_bytes_max = self._frame_bytes_max
        self.has_postponed = False
        while end - position >= 4:
            size = _unpack_size(view, position)[0]
            if size < FRAME_BYTES_MIN or size > frame_bytes_max:
                raise InvalidFrameSize(f"a frame of {size} bytes")
            following = position + 4 + size
            if following > end:
                if end - position >= KIND_END:
                    kind = _unpack_size(view, position + 4)[0]
                    bytes_max = self._bytes_max_of(kind)
                    if size > bytes_max:
                        raise OversizedFrame(kind, size, bytes_max)
                break
            self._position = position
            yield view[position + 4 : following]
            position = following
        if position < end:
            self._keep_rest(view, position, end)
        self._position = 0
        if view is not self._shared:
            self._rest()

    def postpone(self) -> None:
        """Keep the frame that `frames` gave last, and all that follows, for the next call of `frames`."""
        view = self._view
        if view is self._shared:  # others will read into it
            self._view = memoryview(bytes(view[self._position : self._end]))
            self._end -= self._position
            self._postponed_bytes = self._end
            self._memory.take(self._postponed_bytes)
            self._position = 0
        self.has_postponed = True

    @property
    def kept_bytes(self) -> int:
        """Memory of this connection alone: what has come of a frame, and frames that wait."""
        kept = len(self._stash) + self._postponed_bytes
        if self._large is not None:
            kept += len(self._large)
        return kept if self._lent is None else kept + len(self._lent)

    def wanted(self) -> tuple[int, bool]:
        """Bytes of memory that the next read takes beyond what is kept, and whether they are for a large frame."""
        if self._large is not None:
            if self._filled < len(self._large_view):
                return 0, True
            return size_for(received_bytes=self._filled, frame_bytes=self._frame_bytes) - self._filled, True
        received = len(self._stash)
        if received < 4:
            return 0, False
        frame_bytes = 4 + _unpack_size(self._stash, 0)[0]
        if frame_bytes <= STASHED_FRAME_BYTES_MAX:
            return frame_bytes - received, False
        return size_for(received_bytes=received, frame_bytes=frame_bytes), True

    def drop(self) -> None:
        """Let go of everything: the connection is closed."""
        self._set_stash(b"")
        self._position = self._end = 0
        self.has_postponed = False
        self._rest()
        self._drop_large()

    def _rest(self) -> None:
        """The frames of another view than the shared buffer are done with."""
        self._view = self._shared
        if self._postponed_bytes:
            self._memory.give_back(self._postponed_bytes)
            self._postponed_bytes = 0
        if self._lent is not None:
            lent, self._lent = self._lent, None
            self._buffers.give_back(lent)

    def _keep_rest(self, view: memoryview, position: int, end: int) -> None:
        """Keep the beginning of a frame: a copy of what came, or a separate buffer when the frame is large."""
        received = end - position
        # Its size was checked by `frames`.
        frame_bytes = 4 + _unpack_size(view, position)[0] if received >= 4 else 4
        is_small = frame_bytes <= STASHED_FRAME_BYTES_MAX or received < KIND_END
        if is_small or (received <= STASHED_FRAME_BYTES_MAX and not self._memory.has_room(is_large=True)):
            self._set_stash(bytes(view[position:end]))
            return
        buffer = self._buffers.take(received_bytes=received, frame_bytes=frame_bytes)
        buffer[:received] = view[position:end]
        self._set_large(buffer, received, frame_bytes)

    def _set_stash(self, stash: bytes) -> None:
        difference = len(stash) - len(self._stash)
        self._stash = stash
        if difference > 0:
            self._memory.take(difference)
        elif difference:
            self._memory.give_back(-difference)

    def _set_large(self, buffer: bytearray, filled: int, frame_bytes: int) -> None:
        self._large = buffer
        self._large_view = memoryview(buffer)[:frame_bytes]
        self._filled = filled
        self._frame_bytes = frame_bytes

    def _is_large_whole(self) -> bool:
        """Whether the large frame, whose buffer is full, is whole; if not, its buffer grows with the next read."""
        buffer = self._large
        assert buffer is not None
        filled = self._filled
        if filled < self._frame_bytes:
            return False
        self._view = self._large_view
        self._position = 0
        self._end = filled
        self._lent = buffer
        self._large = None
        self._large_view = _NOTHING
        return True

    def _grow(self) -> None:
        buffer, filled = self._large, self._filled
        assert buffer is not None
        larger = self._buffers.take(received_bytes=filled, frame_bytes=self._frame_bytes)
        larger[:filled] = buffer
        self._drop_large()
        self._set_large(larger, filled, self._frame_bytes)

    def _drop_large(self) -> None:
        if self._large is not None:
            self._large_view = _NOTHING
            self._buffers.give_back(self._large)
            self._large = None
