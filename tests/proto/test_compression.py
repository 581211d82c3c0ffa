"""Every codec both ways, against the standard library and the layouts that Java writes, and bombs."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from random import Random

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec

from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.records.compression import (
    XERIAL_HEADER,
    CompressionType,
    CorruptCompressedData,
    compress,
    decompress,
)

CODECS = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
MIB = 1 << 20


def payloads() -> list[bytes]:
    random = Random(7)
    return [
        b"",
        b"a",
        b"carrier,flight,origin\n" * 9000,
        random.randbytes(100_000),
        bytes(3 * MIB),
        random.randbytes(32 * 1024),
    ]


def by_hand(kind: CompressionType, data: bytes) -> list[bytes]:
    """The same data as other writers make it."""
    if kind == CompressionType.GZIP:
        return [gzip.compress(data), gzip.compress(data[:5]) + gzip.compress(data[5:])]
    if kind == CompressionType.SNAPPY:
        raw = bytes(cramjam.snappy.compress_raw(data))
        framed = XERIAL_HEADER + len(raw).to_bytes(4, "big") + raw
        return [raw, framed]
    if kind == CompressionType.LZ4:
        linked = cramjam.lz4.Compressor(level=4, content_checksum=True, block_linked=True)
        linked.compress(data)
        return [bytes(linked.finish()), bytes(cramjam.lz4.compress(data))]
    streamed = cramjam.zstd.Compressor(5)
    flushed = b""
    for start in range(0, len(data), 50_000):
        streamed.compress(data[start : start + 50_000])
        flushed += bytes(streamed.flush())
    return [bytes(cramjam.zstd.compress(data, 1)), flushed + bytes(streamed.finish())]


@pytest.mark.parametrize("kind", list(CompressionType))
def test_what_is_compressed_comes_back(kind: CompressionType) -> None:
    for data in payloads():
        packed = compress(kind, memoryview(data))
        assert decompress(kind, memoryview(packed), bytes_max=len(data)) == data
        assert decompress(kind, bytearray(packed), bytes_max=64 * MIB) == data


@pytest.mark.parametrize("kind", CODECS)
def test_what_others_write_is_read(kind: CompressionType) -> None:
    for data in payloads():
        for packed in by_hand(kind, data) if data else []:
            assert decompress(kind, packed, bytes_max=len(data)) == data


@pytest.mark.parametrize("kind", CODECS)
def test_a_second_implementation_reads_what_we_write(kind: CompressionType) -> None:
    decode = {
        CompressionType.GZIP: aiokafka_codec.gzip_decode,
        CompressionType.SNAPPY: aiokafka_codec.snappy_decode,
        CompressionType.LZ4: aiokafka_codec.lz4_decode,
        CompressionType.ZSTD: aiokafka_codec.zstd_decode,
    }[kind]
    for data in payloads()[1:]:
        assert decode(compress(kind, data)) == data


def test_snappy_is_framed_as_java_frames_it() -> None:
    packed = compress(CompressionType.SNAPPY, b"x" * 40_000)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    first = int.from_bytes(packed[16:20], "big")
    assert len(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == 32 * 1024
    again = decompress(CompressionType.SNAPPY, packed + packed, bytes_max=80_000)
    assert again == b"x" * 80_000, "streams may be concatenated"


def test_lz4_blocks_are_independent_for_java() -> None:
    flags = compress(CompressionType.LZ4, b"x" * 200_000)[4]
    assert flags & 0x20, "block independence"
    assert not flags & 0x04, "no content checksum"


@pytest.mark.parametrize("kind", list(CompressionType))
def test_one_byte_too_many_is_refused(kind: CompressionType) -> None:
    for data in payloads()[1:]:
        for packed in [compress(kind, data), *(by_hand(kind, data) if kind else [])]:
            with pytest.raises(CorruptCompressedData) as caught:
                decompress(kind, packed, bytes_max=len(data) - 1)
            assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.attack("A2", "a bomb takes no more memory than allowed")
def test_a_bomb_takes_no_more_memory_than_allowed(kind: CompressionType) -> None:
    if kind == CompressionType.SNAPPY:
        bomb = b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 1000  # claims 4 GiB
    elif kind == CompressionType.ZSTD:
        block = ((128 * 1024) << 3 | 1 << 1).to_bytes(3, "little") + b"x"  # RLE: 4 bytes for 128 KiB
        bomb = b"\x28\xb5\x2f\xfd\x00\x58" + block * 40_000
    else:
        bomb = compress(kind, bytes(200 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptCompressedData):
            decompress(kind, bomb, bytes_max=MIB)
        assert tracemalloc.get_traced_memory()[1] < 5 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", CODECS)
def test_broken_input_is_corrupt_and_nothing_else(kind: CompressionType) -> None:
    random = Random(3)
    data = b"carrier,flight,origin\n" * 500
    packed = compress(kind, data)
    for cut in (*range(min(len(packed), 200)), len(packed) - 1):
        is_whole = kind == CompressionType.SNAPPY and cut == len(XERIAL_HEADER)  # a stream of no blocks
        if cut and not is_whole:
            with pytest.raises(CorruptCompressedData):
                decompress(kind, packed[:cut], bytes_max=MIB)
    for _ in range(500):
        broken = bytearray(packed)
        for _ in range(random.choice((1, 1, 5))):
            broken[random.randrange(len(broken))] = random.randrange(256)
        try:
            assert len(decompress(kind, broken, bytes_max=MIB)) <= MIB
        except CorruptCompressedData:
            continue
    with pytest.raises(CorruptCompressedData):
        decompress(kind, b"\x00garbage that is no frame at all", bytes_max=MIB)


@pytest.mark.attack("A2", "many empty members of gzip take linear time")
def test_many_small_members_of_gzip_take_time_by_their_number() -> None:
    """Each used to copy all that came behind it: a batch of 1 MB took a second of CPU."""
    member = gzip.compress(b"")

    def once_s(data: bytes) -> float:
        began_s = time.thread_time()
        assert decompress(CompressionType.GZIP, data, bytes_max=MIB) == b""
        return time.thread_time() - began_s

    def cpu_s(count: int) -> float:
        return min(once_s(member * count) for _ in range(3))  # one may share its core's caches with others

    assert cpu_s(60_000) < 12 * max(cpu_s(10_000), 0.005), "36 times as long, if it is quadratic"


def test_members_of_gzip_follow_each_other_wherever_they_end() -> None:
    random = Random(3)
    for _ in range(300):
        parts = [
            random.randbytes(random.choice((0, 1, 200, 245, 256, 300, 5_000))) for _ in range(random.randrange(1, 6))
        ]
        data = b"".join(gzip.compress(part) for part in parts)
        whole = b"".join(parts)
        assert decompress(CompressionType.GZIP, data, bytes_max=len(whole)) == whole
        assert decompress(CompressionType.GZIP, data + b"what is no member", bytes_max=len(whole)) == whole
        for cut in (data[:-1], data[:-9], data + gzip.compress(b"x")[:12]):
            with pytest.raises(CorruptCompressedData):
                decompress(CompressionType.GZIP, cut, bytes_max=len(whole) + 1)
        if whole:
            with pytest.raises(CorruptCompressedData, match="more than"):
                decompress(CompressionType.GZIP, data, bytes_max=len(whole) - 1)
