"""Frames whole, byte by byte, with a tail; sizes that lie; headers of both kinds against kio."""

from __future__ import annotations

import io
import tracemalloc
from random import Random

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.serial import entity_writer

from barnabas_wire.kafka import frame as wire
from barnabas_wire.kafka.frame import FrameDecoder
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.kafka.schema import UnsupportedVersion, decode_request, decode_response
from tests.support.frames import (
    RequestHeader,
    decode_request_header,
    encode_request_frame,
    encode_response_frame,
    response_head,
)

SIZES = (0, 1, 3, 100, 70_000, 5, 700_000)


def stream(random: Random) -> tuple[bytes, list[bytes]]:
    frames = [random.randbytes(size) for size in SIZES]
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames), frames


def fed(decoder: FrameDecoder, data: bytes, step: int) -> list[bytes]:
    found = []
    for start in range(0, len(data), step):
        found += [bytes(frame) for frame in decoder.feed(data[start : start + step])]
    return found


@pytest.mark.parametrize("reuses_memory", [False, True])
@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64, 4096, 65536, 10**9])
def test_however_the_stream_is_cut_the_frames_are_the_same(step: int, reuses_memory: bool) -> None:
    data, frames = stream(Random(step))
    if step < 64:
        data, frames = data[: sum(SIZES[:4]) + 16], frames[:4]
    decoder = FrameDecoder(frame_bytes_max=1 << 20, reuses_memory=reuses_memory)
    assert fed(decoder, data, step) == frames


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0", b"\0\0\0\x05", b"\0\0\0\x05abcd"])
def test_a_tail_waits_for_its_rest(tail: bytes) -> None:
    decoder = FrameDecoder(frame_bytes_max=100)
    assert [bytes(frame) for frame in decoder.feed(b"\0\0\0\x01x" + tail)] == [b"x"]
    rest = (b"\0\0\0\x05abcde")[len(tail) :]
    assert [bytes(frame) for frame in decoder.feed(rest)] == [b"abcde"]


@pytest.mark.parametrize("reuses_memory", [False, True])
def test_a_begun_frame_can_be_received_in_place(reuses_memory: bool) -> None:
    decoder = FrameDecoder(frame_bytes_max=1 << 22, reuses_memory=reuses_memory)
    random = Random(5)
    for size in (3_000_000, 200, 100_000, 3_000_000):
        frame = random.randbytes(size)
        data = memoryview(size.to_bytes(4, "big") + frame)
        assert decoder.space() is None
        assert decoder.feed(data[:50]) == []
        position, got = 50, None
        while got is None:
            space = decoder.space()
            assert space is not None and len(space) > 0
            step = min(len(space), len(data) - position, 60_000)
            space[:step] = data[position : position + step]
            position += step
            got = decoder.filled(step)
        assert got == frame and position == len(data)


def test_a_complete_frame_is_a_slice_and_not_a_copy() -> None:
    data = bytearray(b"\0\0\0\x03abc\0\0\0\x02de")
    frames = FrameDecoder(frame_bytes_max=10).feed(data)
    assert [bytes(frame) for frame in frames] == [b"abc", b"de"]
    assert all(frame.obj is data for frame in frames)


def test_a_gathered_frame_stays_when_memory_is_not_reused() -> None:
    decoder = FrameDecoder(frame_bytes_max=10)
    decoder.feed(b"\0\0\0\x03a")
    (first,) = decoder.feed(b"bc\0\0\0\x03x")
    (second,) = decoder.feed(b"yz")
    assert (bytes(first), bytes(second)) == (b"abc", b"xyz")


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\x65"])
def test_a_size_that_is_negative_or_too_large_is_malformed(size: bytes) -> None:
    with pytest.raises(MalformedMessage):
        FrameDecoder(frame_bytes_max=100).feed(size + b"x")
    decoder = FrameDecoder(frame_bytes_max=100)
    with pytest.raises(MalformedMessage):
        fed(decoder, size, 1)


def test_memory_follows_the_bytes_that_came_and_not_the_size_that_is_claimed() -> None:
    tracemalloc.start()
    try:
        decoders = [FrameDecoder(frame_bytes_max=100 << 20) for _ in range(100)]
        for decoder in decoders:
            decoder.feed((100 << 20).to_bytes(4, "big") + b"x")
        assert tracemalloc.get_traced_memory()[1] < 100 * 80 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("client_id", [None, "", "client-ü"])
@pytest.mark.parametrize(("api_key", "version"), [(3, 8), (3, 9), (18, 2), (18, 3), (18, 99), (1, 11), (1, 12), (0, 1)])
def test_request_headers_are_kios(api_key: int, version: int, client_id: str | None) -> None:
    head = wire.request_head(api_key, version, 77, client_id)
    assert decode_request_header(bytes(head) + b"body", 4) == (
        RequestHeader(api_key, version, 77, client_id),
        len(head),
    )
    assert decode_request_header(memoryview(head), 4)[1] == len(head)
    is_flexible = (api_key, version) in ((3, 9), (18, 3), (18, 99), (1, 12))
    kio_class = KioRequestHeaderV2 if is_flexible else KioRequestHeaderV1
    out = io.BytesIO()
    entity_writer(kio_class)(
        out,
        kio_class(request_api_key=api_key, request_api_version=version, correlation_id=77, client_id=client_id),
    )
    assert out.getvalue() == head[4:]
    for cut in range(4, len(head)):
        with pytest.raises(MalformedMessage):
            decode_request_header(memoryview(head)[:cut], 4)


def test_a_header_with_tagged_fields_is_read() -> None:
    head = wire.request_head(3, 12, 1, "c")[4:-1] + b"\x01\x09\x02ab"
    assert decode_request_header(head)[1] == len(head)


def test_an_unknown_api_is_unsupported() -> None:
    for api_key in (4, 73, 999, -1):
        with pytest.raises(UnsupportedVersion):
            decode_request_header(api_key.to_bytes(2, "big", signed=True) + b"\0\0" + bytes(4) + b"\xff\xff")


@pytest.mark.parametrize("version", [0, 8, 9, 13])
def test_whole_frames_both_ways(version: int) -> None:
    request = encode_request_frame(MetadataRequest(), version, 5, "c")
    (frame,) = FrameDecoder(frame_bytes_max=1000).feed(request)
    header, position = decode_request_header(frame)
    assert header == RequestHeader(ApiKey.METADATA, version, 5, "c")
    assert decode_request(ApiKey.METADATA, version, frame, position) == MetadataRequest()
    (frame,) = FrameDecoder(frame_bytes_max=1000).feed(encode_response_frame(MetadataResponse(), version, 5))
    correlation_id, position = wire.decode_response_header(frame, ApiKey.METADATA, version)
    assert correlation_id == 5
    assert decode_response(MetadataResponse, version, frame, position) == MetadataResponse()


def test_api_versions_answers_without_tagged_fields_in_its_header() -> None:
    assert response_head(ApiKey.API_VERSIONS, 4, 5) == bytes(4) + b"\0\0\0\x05"
    assert response_head(ApiKey.METADATA, 9, 5) == bytes(4) + b"\0\0\0\x05\0"
    for cut in range(4):
        with pytest.raises(MalformedMessage):
            wire.decode_response_header(bytes(4)[:cut], ApiKey.METADATA, 9)


def test_reused_memory_serves_the_next_frame_but_never_two_at_once() -> None:
    decoder = FrameDecoder(frame_bytes_max=1000, reuses_memory=True)

    def frame(letter: bytes, size: int) -> bytes:
        return size.to_bytes(4, "big") + letter * size

    assert decoder.feed(frame(b"a", 100)[:50]) == []
    (first,) = decoder.feed(frame(b"a", 100)[50:])
    assert decoder.feed(frame(b"b", 90)[:50]) == []
    # the second frame ends and a third begins in the same bytes: the second must outlive this feed
    (second,) = decoder.feed(frame(b"b", 90)[50:] + frame(b"c", 80)[:50])
    assert second.obj is first.obj, "memory is reused"
    assert bytes(second) == b"b" * 90
    (third,) = decoder.feed(frame(b"c", 80)[50:])
    assert bytes(third) == b"c" * 80
