"""What a producer's batch must satisfy before it gets an offset. Header only: no record is opened.

May touch:  its arguments.            Must not touch: clocks, files, log state.
Invariants: whatever passes has a sound checksum, says of itself how long it is, and can be sent to any consumer as it is.
Read next:  log_tail.py append_as_leader, the one caller; producer_state.py, which judges sequences next.

The count of records moves the log's end, so it is not believed. Kafka opens every batch and counts (LogValidator); here that is done
off the loop, for the batches that validate.batches names and those of compacted topics, whose records need keys
(batch_inspection.py), and on it the count is held against the length: a
record has at least seven bytes, and a codec expands only so far. What is left to a liar whose batch is not opened is what an honest
one of that length could hold. Only clients' batches are judged: what replicas copy and recovery reads may have lost records to
compaction and keeps its last offset.
"""

from __future__ import annotations

from barnabas_log.config import LogConfig, TimestampType
from barnabas_log.errors import (
    BatchTooLarge,
    InvalidBatch,
    InvalidTimestamp,
    NotOneBatch,
)
from barnabas_wire.records.batch import (
    BATCH_LENGTH_FIELD,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    CorruptBatch,
    HeaderFields,
    read_header,
)
from barnabas_wire.records.crc32c import crc32c

_MAGIC_POSITION = 16
_COMPRESSION_NUMBER_MAX = 4
RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, no key, no value, no headers: a byte each."""
EXPANSION_MAX = (1, 1032, 22, 255, 32_768)
"""By compression number, bytes that one compressed byte may stand for: gzip 258 in 2 bits, snappy 64 in 3 bytes, lz4 255 in one,
zstd a block of 128 KiB in 4 bytes. What frames cost makes the true bounds lower."""
RECORDS_BYTES_MAX = (1 << 31) - 1
"""The most bytes of one batch's records, uncompressed: producers hold it in one buffer, which no client lets grow
beyond an int."""
_NO_TIMESTAMP = -1
_CREATE_TIME = TimestampType.CREATE_TIME
_unpack_header = HEADER.unpack_from


def check_is_one_batch(batches: Buffer) -> HeaderFields:
    """The header, if the bytes are exactly one v2 batch by their own account.

    Raises NotOneBatch (KIP-98: a v2 produce holds one), or CorruptBatch for a length or a format that cannot be. The codes
    are Kafka's: CORRUPT_MESSAGE makes a client send the same bytes again, INVALID_RECORD does not.
    """
    size = len(batches)
    if size > _MAGIC_POSITION and batches[_MAGIC_POSITION] != MAGIC:
        if batches[_MAGIC_POSITION] > MAGIC:
            raise CorruptBatch(f"message format v{batches[_MAGIC_POSITION]} does not exist")
        raise NotOneBatch(f"message format v{batches[_MAGIC_POSITION]} is not served; use v{MAGIC}")
    if size < HEADER_BYTES:
        raise NotOneBatch(f"one batch is expected, {size} bytes hold none")
    header: HeaderFields = _unpack_header(batches)
    if header[BATCH_LENGTH_FIELD] + LOG_OVERHEAD_BYTES != size:
        stated = read_header(batches).size_bytes
        if stated < size:
            raise NotOneBatch(f"one batch is expected, {size - stated} bytes follow the first")
        raise NotOneBatch(f"the batch says {stated} bytes and has {size}")
    return header


def check_producer_batch(header: HeaderFields, config: LogConfig, *, now_ms: int) -> None:
    """Judge the header of a batch from a client.

    Raises BatchTooLarge, InvalidBatch or InvalidTimestamp.
    """
    (
        base_offset,
        length,
        _,
        _,
        _,
        attributes,
        last_offset_delta,
        base_time_ms,
        max_time_ms,
        producer_id,
        epoch,
        sequence,
        count,
    ) = header
    if length + 12 > config.max_message_bytes:
        raise BatchTooLarge(f"a batch of {length + 12} bytes passes max.message.bytes={config.max_message_bytes}")
    if count <= 0 or last_offset_delta != count - 1:
        raise InvalidBatch(f"{count} records do not fit a last offset delta of {last_offset_delta}")
    if base_offset:
        raise InvalidBatch(f"a producer's batch begins at offset 0, not {base_offset}: the log gives offsets")
    if attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG | LOG_APPEND_TIME_FLAG):
        if attributes & CONTROL_FLAG:
            raise InvalidBatch("a client may not write control records")
        if attributes & LOG_APPEND_TIME_FLAG:
            raise InvalidTimestamp("a producer may not claim log append time")
        if producer_id < 0:
            raise InvalidBatch("a transactional batch names no producer")
    if attributes & COMPRESSION_MASK > _COMPRESSION_NUMBER_MAX:
        raise InvalidBatch(f"compression type {attributes & COMPRESSION_MASK} is unknown")
    room = (length + 12 - HEADER_BYTES) * EXPANSION_MAX[attributes & COMPRESSION_MASK]
    if count * RECORD_BYTES_MIN > room or count * RECORD_BYTES_MIN > RECORDS_BYTES_MAX:
        raise InvalidBatch(
            f"{count} records cannot be in {length + 12 - HEADER_BYTES} bytes of compression type {attributes & COMPRESSION_MASK}"
        )
    if producer_id >= 0 and (epoch < 0 or sequence < 0):
        raise InvalidBatch(f"producer {producer_id} without epoch or sequence ({epoch}, {sequence})")
    if config.message_timestamp_type is _CREATE_TIME:
        if max_time_ms != _NO_TIMESTAMP and max_time_ms > now_ms + config.message_timestamp_after_max_ms:
            raise InvalidTimestamp(
                f"timestamp {max_time_ms} is more than message.timestamp.after.max.ms="
                f"{config.message_timestamp_after_max_ms} after the broker's {now_ms}"
            )
        if base_time_ms != _NO_TIMESTAMP and base_time_ms < now_ms - config.message_timestamp_before_max_ms:
            raise InvalidTimestamp(
                f"timestamp {base_time_ms} is more than message.timestamp.before.max.ms="
                f"{config.message_timestamp_before_max_ms} before the broker's {now_ms}"
            )


def check_internal_batches(batches: Buffer) -> list[tuple[BatchHeader, bytes]]:
    """Header and checksummed part of each batch that the broker itself made. Raises CorruptBatch."""
    view, position = memoryview(batches), 0
    whole: list[tuple[BatchHeader, bytes]] = []
    while position < len(view):
        header = read_header(view, position)
        body = bytes(view[position + CRC_START : position + header.size_bytes])
        if len(body) != header.size_bytes - CRC_START or crc32c(body) != header.crc:
            raise CorruptBatch(f"the internal batch at byte {position} is cut off or its checksum is wrong")
        whole.append((header, body))
        position += header.size_bytes
    return whole
