"""Record batch v2: the one byte range that everything in the house moves.

May touch:  crc32c.py, compression.py, kafka/.     Must not touch: files, sockets, clocks.
Invariants: a header is read without copying the batch; base offset and leader epoch lie before the part under the CRC,
            so the log stamps them without a new checksum; a length is believed only within the bytes that remain.
Read next:  compression.py, then barnabas_log/tail/log_tail.py, which stamps and stores these.

Layout (big-endian, 61 bytes of header; KIP-98):
    offset width field                  meaning
         0     8 base offset            given by the leader; not under the CRC
         8     4 batch length           bytes after this field: whole size = 12 + batch length
        12     4 partition leader epoch given by the leader; not under the CRC
        16     1 magic                  2
        17     4 crc                    CRC-32C of byte 21 to the end
        21     2 attributes             bits 0-2 codec, 3 timestamp type (1 = log append time), 4 transactional,
                                        5 control, 6 base timestamp is a delete horizon
        23     4 last offset delta      last offset = base offset + this
        27     8 base timestamp         ms; record timestamps are deltas to it
        35     8 max timestamp          ms
        43     8 producer id            -1 none
        51     2 producer epoch         -1 none
        53     4 base sequence          -1 none; wraps from 2^31-1 to 0
        57     4 record count
        61     … records                one compressed blob unless codec is 0
A crash may leave any prefix of a batch at the end of a file, or zeros: a length under 49 or a wrong CRC shows it.
Record: length varint, attributes i8 = 0, timestamp delta varlong, offset delta varint, key length varint (-1 null),
key, value length varint (-1 null), value, header count varint, {key length, key, value length (-1 null), value}; all
varints zigzag.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from barnabas_wire.kafka.ids import NO_EPOCH, Epoch, Offset
from barnabas_wire.records.compression import CompressionType, compress, decompress
from barnabas_wire.records.crc32c import crc32c
from barnabas_wire.records.walk import CorruptBatch as CorruptBatch
from barnabas_wire.records.walk import read_varint, write_varint
from barnabas_wire.tuples import new_tuple

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and batch length: what the batch length does not count."""
CRC_START: Final = 21
"""First byte under the CRC."""
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40
"""KIP-534: the base timestamp says when the tombstones or the marker of the batch may go; time deltas count from there."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
PREFIX: Final = struct.Struct(">qiibI")
"""The 21 bytes before CRC_START: base offset, batch length, leader epoch, magic, crc."""
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")

_BATCH_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
_DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
_RECORD_BYTES_MIN: Final = 7


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, in file order."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: Epoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record (also of one that compaction took away)."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """First offset after this batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def compression(self) -> CompressionType:
        """Codec of the records; raises CorruptBatch for a number that names none."""
        try:
            return CompressionType(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise CorruptBatch(f"compression type {self.attributes & COMPRESSION_MASK} is unknown") from None

    @property
    def is_control(self) -> bool:
        """Whether its records are markers of the system and not data."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones or the marker in it may go, once a cleaner has set that (KIP-534)."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record bears max_timestamp_ms instead of its own time."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)


class Record(NamedTuple):
    """One record of a batch, opened."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """(name, content). A name is bytes that nobody checked: see header_name."""


def header_name(data: bytes) -> str:
    """A header's name as text, whatever its bytes: what is no UTF-8 is kept as lone surrogates, which header_name_bytes gives back."""
    return data.decode(errors="surrogateescape")


def header_name_bytes(name: str) -> bytes:
    """A header's name as it is on the wire and as a person gets it; the inverse of header_name."""
    return name.encode(errors="surrogateescape")


HeaderFields = tuple[int, ...]
"""A BatchHeader, or its fields without the name, which would be a third of what reading them costs."""

(
    BASE_OFFSET_FIELD,
    BATCH_LENGTH_FIELD,
    LEADER_EPOCH_FIELD,
    MAGIC_FIELD,
    CRC_FIELD,
    LAST_OFFSET_DELTA_FIELD,
    MAX_TIMESTAMP_FIELD,
) = map(
    BatchHeader._fields.index,
    (
        "base_offset",
        "batch_length",
        "partition_leader_epoch",
        "magic",
        "crc",
        "last_offset_delta",
        "max_timestamp_ms",
    ),
)
"""Where the fields are in HeaderFields. A loop over batches takes them into local names first: then they cost what a number costs."""


def read_header(view: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Raises CorruptBatch if fewer than 61 bytes remain or its length cannot be one.

    The records may still be cut off: compare size_bytes with what remains.
    """
    if position < 0 or len(view) - position < HEADER_BYTES:
        raise CorruptBatch(f"a batch header has {HEADER_BYTES} bytes, only {len(view) - position} remain")
    header = new_tuple(BatchHeader, HEADER.unpack_from(view, position))
    if header.batch_length < _BATCH_LENGTH_MIN:
        raise CorruptBatch(f"batch length {header.batch_length} is shorter than a header")
    return header


def stamp(buffer: bytearray | memoryview, position: int, *, base_offset: Offset, leader_epoch: Epoch) -> None:
    """Write base offset and leader epoch into the batch at `position`, in place; the CRC stays right."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def crc_is_valid(view: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the checksum fits; False too when the batch is cut off."""
    end = position + header.size_bytes
    if end > len(view):
        return False
    return crc32c(memoryview(view)[position + CRC_START : end]) == header.crc


def iterate_batches(view: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch, in order; stops before a partial last one.

    Raises CorruptBatch at a length that cannot be one. Does not check the CRC.
    """
    position = 0
    end = len(view)
    while end - position >= HEADER_BYTES:
        header = read_header(view, position)
        if position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def build_batch(
    records: Sequence[Record],
    *,
    leader_epoch: Epoch = NO_EPOCH,
    compression: CompressionType = CompressionType.NONE,
    is_control: bool = False,
    is_transactional: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch of the given records, whose offsets must rise; the first gives the base offset.

    Raises ValueError for no records or offsets that do not rise.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    base_offset = previous_offset = records[0].offset
    base_timestamp_ms = max_timestamp_ms = records[0].timestamp_ms
    body = bytearray()
    for index, record in enumerate(records):
        if index and record.offset <= previous_offset:
            raise ValueError(f"offset {record.offset} does not rise above {previous_offset}")
        previous_offset = record.offset
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
        _encode_record(body, record, base_offset, base_timestamp_ms)
    attributes = (
        int(compression) | (TRANSACTIONAL_FLAG if is_transactional else 0) | (CONTROL_FLAG if is_control else 0)
    )
    payload = bytes(body) if compression == CompressionType.NONE else compress(compression, bytes(body))
    return sealed_batch(
        payload,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=previous_offset - base_offset,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def sealed_batch(
    payload: Buffer,
    *,
    attributes: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    record_count: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: Epoch = NO_EPOCH,
) -> bytes:
    """The batch around a records section that is encoded, and compressed as its attributes say."""
    checked = (
        _AFTER_CRC.pack(
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
        + payload
    )
    length = CRC_START - LOG_OVERHEAD_BYTES + len(checked)
    return PREFIX.pack(base_offset, length, leader_epoch, MAGIC, crc32c(checked)) + checked


def iterate_records(batch: Buffer, *, decompressed_bytes_max: int = _DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of the one batch at the start of `batch`, opened lazily; the CRC is not checked here.

    Raises CorruptBatch for anything that does not add up, and whatever decompress raises past `decompressed_bytes_max`.
    """
    header = read_header(batch)
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic} is not {MAGIC}")
    if header.size_bytes > len(batch):
        raise CorruptBatch(f"the batch has {header.size_bytes} bytes, only {len(batch)} remain")
    payload = records_section(batch, header, decompressed_bytes_max=decompressed_bytes_max)
    position = 0
    append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    for _ in range(header.record_count):
        record, position = _decode_record(payload, position, header, append_time_ms)
        yield record
    if position != len(payload):
        raise CorruptBatch(f"{len(payload) - position} bytes are left after the last record")


def records_section(
    batch: Buffer, header: BatchHeader, *, decompressed_bytes_max: int = _DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The records of the batch at the start of `batch`, decompressed where they are compressed.

    Raises CorruptBatch where the count of records cannot be right, and whatever decompress raises past `decompressed_bytes_max`.
    """
    payload = bytes(batch[HEADER_BYTES : header.size_bytes])
    if header.compression != CompressionType.NONE:
        payload = decompress(header.compression, payload, bytes_max=decompressed_bytes_max)
    if not 0 <= header.record_count <= len(payload) // _RECORD_BYTES_MIN:
        raise CorruptBatch(f"{header.record_count} records do not fit into {len(payload)} bytes")
    return payload


def with_records_section(
    batch: Buffer,
    kind: CompressionType,
    *,
    level: int | None = None,
    decompressed_bytes_max: int = _DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The one batch at the start of `batch` with its records section in another codec; no record is opened.

    level: the codec's own, None for ours. Raises as records_section does.
    """
    header = read_header(batch)
    payload = compress(kind, records_section(batch, header, decompressed_bytes_max=decompressed_bytes_max), level=level)
    attributes = header.attributes & ~COMPRESSION_MASK | kind
    checked = _AFTER_CRC.pack(attributes, *header[6:]) + payload
    length = CRC_START - LOG_OVERHEAD_BYTES + len(checked)
    return PREFIX.pack(*header[:1], length, *header[2:4], crc32c(checked)) + checked


def with_max_timestamp(batch: Buffer, header: BatchHeader, max_timestamp_ms: int) -> bytes:
    """The one batch at the start of `batch` with another greatest time and the checksum of that."""
    checked = _AFTER_CRC.pack(*header[5:8], max_timestamp_ms, *header[9:]) + bytes(
        batch[HEADER_BYTES : header.size_bytes]
    )
    return PREFIX.pack(*header[:4], crc32c(checked)) + checked


def with_fewer_records(
    header: BatchHeader,
    records: bytes,
    *,
    record_count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    delete_horizon: bool,
    level: int | None = None,
) -> bytes:
    """The batch of `header` as compaction leaves it: the same offsets, producer and codec around the records that are left.

    records: uncompressed, their deltas counting from the header's base offset and from `base_timestamp_ms`; empty for a batch that
    stays for its producer's last sequence or its last offset alone.
    """
    attributes = header.attributes & ~(DELETE_HORIZON_FLAG | (0 if record_count else COMPRESSION_MASK))
    if delete_horizon:
        attributes |= DELETE_HORIZON_FLAG
    kind = CompressionType(attributes & COMPRESSION_MASK)
    payload = records if kind == CompressionType.NONE else compress(kind, records, level=level)
    checked = (
        _AFTER_CRC.pack(
            attributes,
            header.last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            record_count,
        )
        + payload
    )
    length = CRC_START - LOG_OVERHEAD_BYTES + len(checked)
    return PREFIX.pack(header.base_offset, length, header.partition_leader_epoch, MAGIC, crc32c(checked)) + checked


def empty_batch(offset: Offset, leader_epoch: Epoch) -> bytes:
    """A batch of no record and no producer that keeps one offset, as compaction leaves them."""
    checked = _AFTER_CRC.pack(0, 0, -1, -1, -1, -1, -1, 0)
    return PREFIX.pack(offset, HEADER_BYTES - LOG_OVERHEAD_BYTES, leader_epoch, MAGIC, crc32c(checked)) + checked


def _encode_record(out: bytearray, record: Record, base_offset: int, base_timestamp_ms: int) -> None:
    body = bytearray(1)
    write_varint(body, record.timestamp_ms - base_timestamp_ms)
    write_varint(body, record.offset - base_offset)
    _write_nullable(body, record.key)
    _write_nullable(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_nullable(body, header_name_bytes(name))
        _write_nullable(body, value)
    write_varint(out, len(body))
    out += body


def _decode_record(
    payload: bytes, position: int, header: BatchHeader, append_time_ms: int | None
) -> tuple[Record, int]:
    length, position = read_varint(payload, position)
    end = position + length
    if length < _RECORD_BYTES_MIN - 1 or end > len(payload):
        raise CorruptBatch(f"a record of {length} bytes at {position} passes the end of {len(payload)}")
    timestamp_delta_ms, position = read_varint(payload, position + 1)
    offset_delta, position = read_varint(payload, position)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise CorruptBatch(f"offset delta {offset_delta} is outside 0..{header.last_offset_delta}")
    key, position = _read_nullable(payload, position, end)
    value, position = _read_nullable(payload, position, end)
    header_count, position = read_varint(payload, position)
    if not 0 <= header_count <= (end - position) // 2:
        raise CorruptBatch(f"{header_count} headers do not fit into {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        name, position = _read_nullable(payload, position, end)
        content, position = _read_nullable(payload, position, end)
        if name is None:
            raise CorruptBatch("a record header has a null key")
        headers.append((header_name(name), content))
    if position != end:
        raise CorruptBatch(f"a record ends at {position} instead of {end}")
    timestamp_ms = header.base_timestamp_ms + timestamp_delta_ms if append_time_ms is None else append_time_ms
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, tuple(headers)), position


def _write_nullable(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # zigzag of -1
        return
    write_varint(out, len(value))
    out += value


def _read_nullable(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position)
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise CorruptBatch(f"a field of {length} bytes at {position} passes its record's end at {end}")
    return payload[position : position + length], position + length
