"""The five compression types of a record batch, by their number in the batch attributes.

May touch:  cramjam, zlib.            Must not touch: sockets, files, clock.
Invariants: a type's number never changes; decompress never returns more than the caller allows, and never allocates more
            than that on the word of the input (a few bytes can claim gigabytes).
Read next:  batch.py, which stores the number in the low three bits of its attributes.

Formats, as Java's clients write them and all clients read them:
    gzip      one or more gzip members
    snappy    xerial framing: magic 82 'SNAPPY' 00, int32 version 1, int32 compatible 1, then (int32 length, raw snappy block)*;
              some clients send one raw snappy block without framing: accepted too
    lz4       LZ4 frame with independent blocks (Java refuses blocks that depend on each other), 64 KiB blocks
    zstd      zstd frames, often without content size (streaming writers)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum

import cramjam

from barnabas_wire.kafka.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview


class CompressionType(IntEnum):
    """Bits 0–2 of the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptCompressedData(KafkaError):
    """The bytes are not what their compression type says, or would grow beyond what the caller allows."""

    code = ErrorCode.CORRUPT_MESSAGE


XERIAL_HEADER = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
XERIAL_BLOCK_BYTES = 32 * 1024
_GZIP_STEP_BYTES = 256
_GZIP_MAGIC = b"\x1f\x8b"
_LZ4_LEVEL = 1  # ten times faster than cramjam's default, a few per cent larger (measured)
_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_GROWTH_MAX = 255
_ZSTD_LEVEL = 3  # Java's default
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 1 << 17
_SKIPPABLE_MAGIC = range(0x184D2A50, 0x184D2A60)


def compress(kind: CompressionType, data: Buffer, *, level: int | None = None) -> bytes:
    """Compress the records section of a batch.

    level: gzip -1 to 9, lz4 1 to 17, zstd -131072 to 22 as their libraries count; None is our choice. Snappy has none.
    """
    if kind == CompressionType.NONE:
        return bytes(data)
    return _COMPRESSORS[kind](data, level)


def decompress(kind: CompressionType, data: Buffer, *, bytes_max: int) -> bytes:
    """Decompress the records section of a batch; raises CorruptCompressedData, also when more than bytes_max would come out."""
    if kind == CompressionType.NONE:
        if len(data) > bytes_max:
            raise _too_large(bytes_max)
        return bytes(data)
    try:
        return _DECOMPRESSORS[kind](data, bytes_max)
    except (cramjam.DecompressionError, zlib.error, ValueError, IndexError, OSError) as error:
        raise CorruptCompressedData(f"{kind.name.lower()}: {error}") from error


def _too_large(bytes_max: int) -> CorruptCompressedData:
    return CorruptCompressedData(f"decompresses to more than {bytes_max} bytes")


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    out: list[bytes] = []
    position, end, room = 0, len(view), bytes_max
    while position < end:
        member = zlib.decompressobj(wbits=31)
        # A member copies what it is given and does not need: so it gets little at first, else many small ones would be quadratic.
        step = _GZIP_STEP_BYTES
        while not member.eof:
            if position == end:
                raise CorruptCompressedData("gzip: the stream is cut short")
            given = view[position : position + step]
            part = member.decompress(given, room + 1)
            room -= len(part)
            if room < 0:
                raise _too_large(bytes_max)
            if part:
                out.append(part)
            position += len(given) - len(member.unused_data)
            step *= 2
        if view[position : position + 2] != _GZIP_MAGIC:  # as gzip itself does, Java's clients read no further
            break
    return b"".join(out)


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _decompress_snappy(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != XERIAL_HEADER[:8]:
        return _decompress_snappy_block(view, bytes_max)
    out = bytearray()
    position, end = len(XERIAL_HEADER), len(view)
    if position > end:
        raise CorruptCompressedData("snappy: the header is cut short")
    while position < end:
        if bytes(view[position : position + 8]) == XERIAL_HEADER[:8]:  # streams may be concatenated
            position += len(XERIAL_HEADER)
            continue
        start = position + 4
        position = start + int.from_bytes(view[position:start], "big")
        if position > end:
            raise CorruptCompressedData("snappy: a block is cut short")
        out += _decompress_snappy_block(view[start:position], bytes_max - len(out))
    return bytes(out)


def _decompress_snappy_block(block: memoryview, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise _too_large(bytes_max)
    return bytes(cramjam.snappy.decompress_raw(block))


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    level = _LZ4_LEVEL if level is None else level
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it takes no memoryview
    return bytes(compressor.finish())


def _decompress_lz4(data: Buffer, bytes_max: int) -> bytes:
    if _lz4_bound(memoryview(data), bytes_max) > bytes_max:
        return _decompress_bounded(cramjam.lz4.decompress_into, data, bytes_max)
    return bytes(cramjam.lz4.decompress(data))


def _lz4_bound(view: memoryview, enough: int) -> int:
    """No fewer bytes than the frames give, from their block sizes alone; stops counting beyond `enough`."""
    bound, p, end = 0, 0, len(view)
    while p < end and bound <= enough:
        magic = int.from_bytes(view[p : p + 4], "little")
        if magic in _SKIPPABLE_MAGIC:
            p += 8 + int.from_bytes(view[p + 4 : p + 8], "little")
            continue
        if magic != _LZ4_MAGIC:
            raise CorruptCompressedData(f"lz4: no frame begins with {magic:#x}")
        flags = view[p + 4]
        block_bytes = _LZ4_BLOCK_BYTES.get(view[p + 5] >> 4 & 7, 0)
        p += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while bound <= enough:
            size = int.from_bytes(view[p : p + 4], "little")
            if p + 4 > end:
                raise CorruptCompressedData("lz4: the frame is cut short")
            p += 4
            if not size:
                break
            is_raw, size = size >> 31, size & 0x7FFF_FFFF
            bound += min(block_bytes, size if is_raw else size * _LZ4_GROWTH_MAX)
            p += size + (4 if flags & 0x10 else 0)
        p += 4 if flags & 0x04 else 0
    return bound


def first_lz4_frame(data: Buffer) -> Buffer:
    """What Java's clients read of an lz4 section: the frame that it begins with. Raises CorruptCompressedData where none does."""
    view = memoryview(data)
    try:
        return view[: _lz4_frame_end(view)]
    except IndexError:
        raise CorruptCompressedData("lz4: the frame is cut short") from None


def _lz4_frame_end(view: memoryview) -> int:
    magic = int.from_bytes(view[:4], "little")
    if magic != _LZ4_MAGIC:
        raise CorruptCompressedData(f"lz4: no frame begins with {magic:#x}")
    flags = view[4]
    p, end = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0), len(view)
    while p + 4 <= end:
        size = int.from_bytes(view[p : p + 4], "little") & 0x7FFF_FFFF
        p += 4
        if not size:
            return p + (4 if flags & 0x04 else 0)
        p += size + (4 if flags & 0x10 else 0)
    raise CorruptCompressedData("lz4: the frame is cut short")


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL if level is None else level))


def _decompress_zstd(data: Buffer, bytes_max: int) -> bytes:
    if _zstd_bound(memoryview(data), bytes_max) > bytes_max:
        return _decompress_bounded(cramjam.zstd.decompress_into, data, bytes_max)
    return bytes(cramjam.zstd.decompress(data))


def _zstd_bound(view: memoryview, enough: int) -> int:
    """No fewer bytes than the frames give, from their block headers alone (RFC 8878 3.1.1); stops counting beyond `enough`."""
    bound, p, end = 0, 0, len(view)
    while p < end and bound <= enough:
        magic = int.from_bytes(view[p : p + 4], "little")
        if magic in _SKIPPABLE_MAGIC:
            p += 8 + int.from_bytes(view[p + 4 : p + 8], "little")
            continue
        if magic != _ZSTD_MAGIC:
            raise CorruptCompressedData(f"zstd: no frame begins with {magic:#x}")
        descriptor = view[p + 4]
        is_single_segment = descriptor >> 5 & 1
        content_size_bytes = (is_single_segment, 2, 4, 8)[descriptor >> 6]
        p += 5 + (1 - is_single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
        is_last = False
        while not is_last and bound <= enough:
            if p + 3 > end:
                raise CorruptCompressedData("zstd: the frame is cut short")
            header = int.from_bytes(view[p : p + 3], "little")
            is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            bound += min(size, _ZSTD_BLOCK_BYTES) if kind < 2 else _ZSTD_BLOCK_BYTES
            p += 3 + (1 if kind == 1 else size)
        p += 4 if descriptor & 4 else 0
    return bound


def _decompress_bounded(decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, bytes_max: int) -> bytes:
    """For input that might grow beyond the limit: into a buffer of the limit's size, which the codec will not exceed."""
    out = bytearray(bytes_max)
    try:
        size = decompress_into(data, out)
    except cramjam.DecompressionError as error:
        del out  # the error keeps this frame
        raise CorruptCompressedData(f"does not decompress into {bytes_max} bytes: {error}") from error
    return bytes(memoryview(out)[:size])


_COMPRESSORS: dict[CompressionType, Callable[[Buffer, int | None], bytes]] = {
    CompressionType.GZIP: _compress_gzip,
    CompressionType.SNAPPY: _compress_snappy,
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[CompressionType, Callable[[Buffer, int], bytes]] = {
    CompressionType.GZIP: _decompress_gzip,
    CompressionType.SNAPPY: _decompress_snappy,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}
