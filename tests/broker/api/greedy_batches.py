"""Batches of few bytes that are much work for whoever opens them: records, headers, members, keys and times by the million.

May touch:  the codecs.    Must not touch: sockets, clock.
Invariants: a batch has a right checksum and a header that a broker takes, and fits into a produce request of any client.
Read next:  greedy.py, which sends them; tests/support/poison.py, batches that are wrong.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping

from barnabas_wire.records.compression import CompressionType, compress
from tests.support.poison import batch, record, varint

RECORDS = 300_000
"""Of a batch. To walk over them in plain Python takes a hundred times what a turn of the loop may."""
FEW = 20_000
"""Where another codec than zstd does the same."""
NONE, GZIP, SNAPPY, LZ4, ZSTD = CompressionType


def greedy_batches(now_ms: int) -> Mapping[str, bytes]:
    """By what they have much of."""
    keyed, keyless = record(0), record(0, key=None)
    rising = b"".join(_small(delta) for delta in range(FEW))
    headers = record(0, raw_headers=varint(RECORDS) + bytes(2) * RECORDS)
    dated = {"base_ms": now_ms - 60_000, "max_ms": now_ms}

    def packed(kind: CompressionType, records: bytes, count: int = RECORDS) -> bytes:
        return batch(records if kind is NONE else compress(kind, records), count, codec=kind, **dated)

    return {
        "keyed records, zstd": packed(ZSTD, keyed * RECORDS),
        "keyed records, gzip": packed(GZIP, keyed * FEW, FEW),
        "keyed records, lz4": packed(LZ4, keyed * FEW, FEW),
        "keyed records, snappy": packed(SNAPPY, keyed * FEW, FEW),
        "records without a key": packed(ZSTD, keyless * RECORDS),
        "records as they should be": packed(ZSTD, rising, FEW),
        "headers": packed(NONE, headers, 1),
        "headers, zstd": packed(ZSTD, headers, 1),
        "members of gzip": batch(gzip.compress(b"") * 40_000 + gzip.compress(keyed), codec=GZIP, **dated),
        "blocks of snappy": batch(compress(SNAPPY, keyed) + b"\0\0\0\1\0" * 50_000, codec=SNAPPY, **dated),
        "frames of zstd": batch(compress(ZSTD, b"") * 30_000 + compress(ZSTD, keyed), codec=ZSTD, **dated),
        "a bomb": packed(ZSTD, bytes(63 << 20), 1),
    }


def _small(delta: int) -> bytes:
    return record(delta, key=b"k", value=None)
