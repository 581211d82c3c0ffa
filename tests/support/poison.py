"""Batches with a right checksum and wrong records, by kind, and odd ones that Kafka takes all the same. Kafka 4.4.0 said which."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from random import Random

import cramjam

from barnabas_wire.records.batch import sealed_batch
from barnabas_wire.records.compression import CompressionType, compress

NONE, GZIP, SNAPPY, LZ4, ZSTD = map(int, CompressionType)
Headers = Sequence[tuple[bytes | None, bytes | None]]


def varint(number: int) -> bytes:
    value = ((number << 1) ^ (number >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int,
    *,
    elapsed_ms: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Headers = (),
    raw_key: bytes | None = None,
    raw_value: bytes | None = None,
    raw_headers: bytes | None = None,
    length: int | None = None,
) -> bytes:
    body = b"\0" + varint(elapsed_ms) + varint(delta)
    body += sized(key) if raw_key is None else raw_key
    body += sized(value) if raw_value is None else raw_value
    if raw_headers is None:
        raw_headers = varint(len(headers)) + b"".join(sized(name) + sized(content) for name, content in headers)
    body += raw_headers
    return varint(len(body) if length is None else length) + body


def batch(
    payload: bytes,
    count: int = 1,
    *,
    codec: int = NONE,
    base_ms: int = 1_700_000_000_000,
    max_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    return sealed_batch(
        payload,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=base_ms if max_ms is None else max_ms,
        record_count=count,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )


_noise = Random(7).randbytes
OK = record(0)
TWO = record(0, value=b"v" * 50) + record(1, value=b"w" * 50)
LZ4_ONE, LZ4_OTHER = (compress(CompressionType.LZ4, record(delta)) for delta in (0, 1))

POISON: dict[str, tuple[bytes, int | None]] = {
    # kind: (batch, index of the record that is to blame)
    "gzip garbage": (batch(b"\x1f\x8b" + _noise(60), codec=GZIP), None),
    "snappy garbage": (batch(b"\x82SNAPPY\0" + _noise(60), codec=SNAPPY), None),
    "lz4 garbage": (batch(b"\x04\x22\x4d\x18" + _noise(60), codec=LZ4), None),
    "zstd garbage": (batch(b"\x28\xb5\x2f\xfd" + _noise(60), codec=ZSTD), None),
    "gzip that is none": (batch(OK * 4, codec=GZIP), None),
    "zlib for gzip": (batch(zlib.compress(TWO), 2, codec=GZIP), None),
    "count 3, two records": (batch(TWO, 3), 2),
    "count 1, two records": (batch(record(0) + record(1)), None),
    "record longer than batch": (batch(record(0, length=500)), 0),
    "record of no byte": (batch(b"\0" + bytes(6)), 0),
    "header with null name": (batch(record(0, headers=[(None, b"x")])), 0),
    "headers: count -1": (batch(record(0, raw_headers=varint(-1))), 0),
    "headers: more than there are": (batch(record(0, raw_headers=varint(3) + sized(b"a") + sized(b"b"))), 0),
    "header value longer than record": (batch(record(0, raw_headers=varint(1) + sized(b"a") + varint(300) + b"x")), 0),
    "header value of length -2": (batch(record(0, raw_headers=varint(1) + sized(b"a") + varint(-2))), 0),
    "offset deltas 0, 0": (batch(record(0) + record(0), 2), 1),
    "offset deltas 1, 0 gzip": (batch(gzip.compress(record(1) + record(0)), 2, codec=GZIP), 1),
    "offset delta 7 of 1": (batch(record(7)), 0),
    "offset delta -1": (batch(record(-1)), 0),
    "trailing bytes": (batch(OK + bytes(4)), None),
    "trailing bytes gzip": (batch(gzip.compress(OK + bytes(4)), codec=GZIP), None),
    "gzip truncated": (batch(gzip.compress(record(0, value=_noise(500)))[:-20], codec=GZIP), None),
    "gzip with a wrong checksum": (batch(gzip.compress(TWO)[:-8] + bytes(8), 2, codec=GZIP), None),
    "snappy cut off": (batch(compress(CompressionType.SNAPPY, TWO)[:-3], 2, codec=SNAPPY), None),
    "zstd cut off": (batch(compress(CompressionType.ZSTD, _noise(300) + TWO)[:-10], 2, codec=ZSTD), None),
    "lz4 of two frames, of which Java reads one": (batch(LZ4_ONE + LZ4_OTHER, 2, codec=LZ4), 1),
    "lz4 without its end": (batch(compress(CompressionType.LZ4, TWO)[:-4], 2, codec=LZ4), None),
    "key of length -2": (batch(record(0, raw_key=varint(-2))), 0),
    "value of length -2": (batch(record(0, raw_value=varint(-2), raw_headers=varint(0) + bytes(2))), 0),
    "offset delta in six bytes": (
        batch(varint(12) + b"\0\0" + b"\x80\x80\x80\x80\x80\0" + sized(b"k") + sized(b"v") + b"\0"),
        0,
    ),
    "record ends before its length": (batch(record(0, raw_headers=varint(0) + bytes(2))), 0),
    "time beyond 64 bits": (batch(record(0, elapsed_ms=(1 << 63) - 1)), None),
}
TAKEN: dict[str, bytes] = {
    # what looks odd and Kafka takes
    "plain": batch(TWO, 2),
    "gzip two members": batch(gzip.compress(record(0)) + gzip.compress(record(1)), 2, codec=GZIP),
    "gzip with zeros behind it": batch(gzip.compress(TWO) + bytes(9), 2, codec=GZIP),
    "gzip with rubbish behind it": batch(gzip.compress(TWO) + b"rubbish", 2, codec=GZIP),
    "snappy without frame": batch(bytes(cramjam.snappy.compress_raw(TWO)), 2, codec=SNAPPY),
    "snappy two frames": batch(
        compress(CompressionType.SNAPPY, record(0)) + compress(CompressionType.SNAPPY, record(1)), 2, codec=SNAPPY
    ),
    "zstd two frames": batch(
        compress(CompressionType.ZSTD, record(0)) + compress(CompressionType.ZSTD, record(1)), 2, codec=ZSTD
    ),
    "lz4 with rubbish behind it": batch(compress(CompressionType.LZ4, TWO) + b"rubbish of no frame", 2, codec=LZ4),
    "header of no value": batch(record(0, headers=[(b"a", None)])),
    "header with an empty name": batch(record(0, headers=[(b"", b"v")])),
    "header name that is no text": batch(record(0, headers=[(b"\xff\xfe", b"v")])),
    "attributes of a record": batch(OK[:1] + b"\x07" + OK[2:]),
    "neither key nor value": batch(record(0, key=None, value=None)),
    "empty key and value": batch(record(0, key=b"", value=b"")),
    "no time": batch(TWO, 2, base_ms=-1),
    "the last is the oldest": batch(record(0) + record(1, elapsed_ms=-90), 2),
}
