"""compression.type: batches of another codec than their topic's are recompressed before they are appended.

May touch:  its arguments.            Must not touch: asyncio, partitions, logs, network.
Invariants: no record is opened, the records section is one blob; what a batch says of its records is kept as the producer wrote it.
Read next:  batch_work.py, where requests wait for this in a pool of threads.

Behaviour: a batch in its topic's codec is never copied here. A batch that is not sound (length, CRC) is passed on as it is: the log
refuses it and knows why. Differences from Kafka: Kafka opens, checks and rebuilds every record, on the request's
thread; here only the codec's bits, the length and the CRC of the header change, as with compression.type=producer. A
records section that grows beyond SECTION_BYTES_MAX is refused.
"""

from __future__ import annotations

import threading

from barnabas_log.config import BatchCompression
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import crc_is_valid, read_header, with_records_section
from barnabas_wire.records.compression import CompressionType, CorruptCompressedData

SECTION_BYTES_MAX = 64 * 1024 * 1024
"""Largest records section that a batch may decompress to."""
FIRST_SECTION_BYTES_MAX = 8 * 1024 * 1024
"""Larger ones are opened one at a time, so that two hostile batches take the memory of one."""
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Codec:
    """What to compress with. level: the codec's own; None where it has none."""

    kind: CompressionType
    level: int | None


CODECS = {
    BatchCompression.UNCOMPRESSED: CompressionType.NONE,
    BatchCompression.GZIP: CompressionType.GZIP,
    BatchCompression.SNAPPY: CompressionType.SNAPPY,
    BatchCompression.LZ4: CompressionType.LZ4,
    BatchCompression.ZSTD: CompressionType.ZSTD,
}


def recompressed(batch: bytes, codec: Codec) -> bytes:
    """The batch with its records section in another codec; the same bytes where it is not one sound batch.

    Raises CorruptBatch or CorruptCompressedData where the records section does not open within SECTION_BYTES_MAX.
    """
    header = read_header(batch)
    if header.size_bytes != len(batch) or not crc_is_valid(memoryview(batch), 0, header):
        return batch
    try:
        return with_records_section(
            batch, codec.kind, level=codec.level, decompressed_bytes_max=FIRST_SECTION_BYTES_MAX
        )
    except CorruptCompressedData:  # or a large one
        with _one_at_a_time:
            return with_records_section(batch, codec.kind, level=codec.level, decompressed_bytes_max=SECTION_BYTES_MAX)
