"""Bytes in, frames out: the same frames wherever the stream is cut, and no room for what will be refused."""

from __future__ import annotations

import random
import struct

import pytest

from barnabas_broker.network.framing import (
    STASHED_FRAME_BYTES_MAX,
    FrameReader,
    FrameRefused,
    InvalidFrameSize,
    OversizedFrame,
)
from barnabas_broker.network.receive_buffers import FIRST_BYTES, GROWTH, SHARED_BYTES, ReceiveBuffers
from barnabas_broker.network.request_memory import RequestMemory
from barnabas_wire.kafka.errors import InvariantViolated

FRAME_BYTES_MAX = 8 * 1024 * 1024
SMALL_KIND = 18 << 16
"""Of an API that takes SMALL_BYTES_MAX."""
SMALL_BYTES_MAX = 1000


class CountedBuffers(ReceiveBuffers):
    """Knows which buffers are lent."""

    __slots__ = ("lent", "taken_bytes")

    def __init__(self) -> None:
        super().__init__(RequestMemory(1 << 30))
        self.lent: list[bytearray] = []
        self.taken_bytes = 0

    def take(self, *, received_bytes: int, frame_bytes: int) -> bytearray:
        buffer = super().take(received_bytes=received_bytes, frame_bytes=frame_bytes)
        self.lent.append(buffer)
        self.taken_bytes += len(buffer)
        return buffer

    def give_back(self, buffer: bytearray) -> None:
        places = [index for index, lent in enumerate(self.lent) if lent is buffer]
        assert len(places) == 1, "given back twice, or never taken"
        del self.lent[places[0]]
        super().give_back(buffer)


def make_reader(buffers: ReceiveBuffers | None = None) -> FrameReader:
    return FrameReader(
        buffers if buffers is not None else ReceiveBuffers(RequestMemory(1 << 30)),
        frame_bytes_max=FRAME_BYTES_MAX,
        bytes_max_of=lambda kind: SMALL_BYTES_MAX if kind == SMALL_KIND else FRAME_BYTES_MAX,
    )


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def write(reader: FrameReader, data: bytes) -> tuple[int, bool]:
    """As a socket does: fill what is offered. Returns the bytes taken, and whether there may be frames."""
    buffer = reader.get_buffer()
    assert len(buffer) > 0, "a read of nothing means that the peer is gone"
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    return count, reader.received(count)


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """The frames that these bytes complete."""
    frames: list[bytes] = []
    while data:
        count, is_ready = write(reader, data)
        data = data[count:]
        if is_ready:
            frames += [bytes(frame) for frame in reader.frames()]
    return frames


BODIES = [b"\0\0\0\1" + bytes(range(6)), b"\0\0\0\3" + b"x" * 40, b"\0\0\0\1" + b"y" * 6, b"\0\1\0\4" + b"z" * 21]


def test_small_frames_are_the_same_cut_at_every_position() -> None:
    stream = b"".join(map(framed, BODIES))
    for position in range(len(stream) + 1):
        reader = make_reader()
        assert feed(reader, stream[:position]) + feed(reader, stream[position:]) == BODIES


def test_small_frames_are_the_same_cut_at_every_two_positions() -> None:
    stream = b"".join(map(framed, BODIES[:3]))
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            reader = make_reader()
            pieces = stream[:first], stream[first:second], stream[second:]
            assert [frame for piece in pieces for frame in feed(reader, piece)] == BODIES[:3]


def test_a_frame_that_comes_byte_by_byte_is_whole_with_its_last() -> None:
    buffers = ReceiveBuffers(RequestMemory(1 << 30))
    readers = [make_reader(buffers), make_reader(buffers)]  # they share memory: each finds its own beginning again
    stream = framed(BODIES[1])
    for position in range(len(stream)):
        byte = stream[position : position + 1]
        for reader in readers:
            assert feed(reader, byte) == ([BODIES[1]] if position == len(stream) - 1 else [])


@pytest.mark.parametrize(
    "size",
    [
        STASHED_FRAME_BYTES_MAX - 4,
        STASHED_FRAME_BYTES_MAX - 3,
        FIRST_BYTES * GROWTH + 1,
        SHARED_BYTES - 4,
        SHARED_BYTES - 3,
        SHARED_BYTES + 1,
        3_000_000,
    ],
)
def test_a_large_frame_between_small_ones_is_the_same_wherever_it_is_cut(size: int) -> None:
    large = b"\0\0\0\1" + random.Random(size).randbytes(size - 4)
    stream = framed(BODIES[0]) + framed(large) + framed(BODIES[1])
    start = 4 + len(BODIES[0])
    end = start + 4 + size
    edges = [start + k for k in (-1, 0, 1, 3, 4, 5, 7, 8, 9, 4096)] + [end + k for k in (-4096, -1, 0, 1, 4, 8)]
    for cut in edges:
        buffers = CountedBuffers()
        reader = make_reader(buffers)
        frames = feed(reader, stream[:cut]) + feed(reader, stream[cut:])
        assert frames == [BODIES[0], large, BODIES[1]]
        assert not buffers.lent


@pytest.mark.parametrize("seed", range(10))
def test_random_frames_cut_and_held_anywhere_keep_their_bytes_and_order(seed: int) -> None:
    random_ = random.Random(seed)
    sizes = [random_.choice([10, 11, 70, 16_000, 16_384, 70_000, 262_144, 1_048_576, 1_100_000]) for _ in range(12)]
    bodies = [b"\0\0\0\1" + random_.randbytes(size - 4) for size in sizes]
    stream = b"".join(map(framed, bodies))
    buffers = CountedBuffers()
    reader = make_reader(buffers)
    found: list[bytes] = []

    def take() -> None:
        for frame in reader.frames():
            if random_.random() < 0.3:
                reader.postpone()
                return
            found.append(bytes(frame))

    while stream:
        step = random_.choice([1, 3, 100, 5_000, 200_000, 1_000_000])
        count, is_ready = write(reader, stream[:step])
        stream = stream[count:]
        if is_ready:
            take()
        while reader.has_postponed:
            buffers.shared[:] = b"\xee" * len(buffers.shared)  # another connection reads meanwhile
            take()
    assert found == bodies
    assert not buffers.lent


def test_held_frames_wait_as_they_are_and_no_bytes_may_come_meanwhile() -> None:
    reader = make_reader()
    beginning = framed(BODIES[3])[:9]
    stream = b"".join(map(framed, BODIES[:3])) + beginning
    assert write(reader, stream) == (len(stream), True)
    taken: list[bytes] = []
    for frame in reader.frames():
        if len(taken) == 1:
            reader.postpone()
            break
        taken.append(bytes(frame))
    assert taken == BODIES[:1] and reader.has_postponed
    with pytest.raises(InvariantViolated):
        reader.received(1)
    assert [bytes(frame) for frame in reader.frames()] == BODIES[1:3]
    assert not reader.has_postponed
    assert feed(reader, framed(BODIES[3])[9:]) == BODIES[3:]


def test_whole_frames_are_views_of_the_shared_buffer() -> None:
    buffers = ReceiveBuffers(RequestMemory(1 << 30))
    reader = make_reader(buffers)
    write(reader, framed(BODIES[0]) + framed(BODIES[1]))
    assert [frame.obj is buffers.shared.obj for frame in reader.frames()] == [True, True]


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 9, FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_size_that_no_frame_has_is_refused_behind_the_frames_before_it(size: int) -> None:
    reader = make_reader()
    write(reader, framed(BODIES[0]) + struct.pack(">i", size))
    frames = reader.frames()
    assert bytes(next(frames)) == BODIES[0]
    with pytest.raises(InvalidFrameSize):
        next(frames)


@pytest.mark.parametrize("first_bytes", [4, 7, 8, 9])
def test_a_frame_beyond_its_apis_bound_is_refused_with_its_eighth_byte_and_gets_no_room(first_bytes: int) -> None:
    buffers = CountedBuffers()
    reader = make_reader(buffers)
    beginning = struct.pack(">iiB", 5_000_000, SMALL_KIND, 0)
    try:
        assert feed(reader, beginning[:first_bytes]) == []
        assert first_bytes < 8
        feed(reader, beginning[first_bytes:])
    except OversizedFrame as error:
        assert (error.kind, str(error)) == (SMALL_KIND, "5,000,000 bytes, at most 1,000 are taken")
    else:
        pytest.fail("taken")
    assert not buffers.taken_bytes


def test_what_is_refused_is_all_one_error() -> None:
    assert issubclass(InvalidFrameSize, FrameRefused) and issubclass(OversizedFrame, FrameRefused)


def test_a_promised_size_reserves_memory_by_what_came() -> None:
    buffers = CountedBuffers()
    reader = make_reader(buffers)
    stream = struct.pack(">ii", FRAME_BYTES_MAX, 1) + bytes(300_000)
    sent = 0
    while sent < len(stream):
        sent += write(reader, stream[sent : sent + 1000])[0]
        list(reader.frames()) if sent <= 1000 else None
        assert sum(map(len, buffers.lent)) <= max(FIRST_BYTES, 2 * GROWTH * sent)
    reader.drop()
    assert not buffers.lent and buffers.memory.used == 0


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_connection_that_closes_gives_its_buffer_back_once(is_whole: bool) -> None:
    buffers = CountedBuffers()
    reader = make_reader(buffers)
    stream = framed(b"\0\0\0\1" + bytes(200_000))
    for start in range(0, len(stream) - (not is_whole), 50_000):
        if write(reader, stream[start : start + 50_000][: len(stream) - start - (not is_whole)])[1]:
            for _ in reader.frames():
                reader.postpone()
                break
    assert reader.has_postponed == is_whole and len(buffers.lent) == 1
    reader.drop()
    reader.drop()
    assert not buffers.lent and not reader.has_postponed and buffers.memory.used == 0
