"""What is in a snapshot file: Kafka's `<end offset>-<epoch>.checkpoint`, written in slices and proved before it is used.

May touch:  its arguments.            Must not touch: asyncio, files, what a metadata record means.
Invariants: a snapshot without its footer, with a wrong checksum or a gap, or of another end than its name says is refused whole;
            what is written here is what Kafka's own RecordsSnapshotReader and dump tool read.
Read next:  snapshots.py, which writes one beside the control loop; broker/metadata/snapshot_files.py, which keeps them.

Layout (KIP-630): v2 batches, offsets from 0 without gaps, all with the epoch of the snapshot's id:
    control batch   SnapshotHeader, KRaftVersion, Voters      (a pure broker that knows no voters: SnapshotHeader)
    data batches    the records of the whole image, compressed: partitions repeat the same brokers, directories and topic ids
    control batch   SnapshotFooter
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas_quorum.driver.committed import UNOPENED, data_batch
from barnabas_quorum.driver.control_batches import (
    KRAFT_VERSION,
    control_batch,
    control_records,
    decode_header,
    decode_kraft_version,
    decode_voters,
    footer_record,
    header_record,
    voters_records,
)
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.records.batch import (
    HEADER_BYTES,
    MAGIC,
    CorruptBatch,
    crc_is_valid,
    iterate_records,
    read_header,
)
from barnabas_wire.records.compression import CompressionType, CorruptCompressedData
from barnabas_wire.records.control import ControlRecordType

logger = logging.getLogger(__name__)

COMPRESSION = CompressionType.ZSTD
"""Measured, bytes per partition: 13 in place of 100 in topics of 100 partitions, 40 in place of 148 in topics of one; writing
and loading take no longer."""
READ_BYTES = 1024 * 1024
"""What is read of a snapshot at a time."""
BATCH_BYTES_MAX = 64 * 1024 * 1024
"""No batch of a snapshot may be longer: a damaged length must not make a buffer."""


class DamagedSnapshot(KafkaError):
    """A snapshot is cut short or changed; the message says where."""

    code = ErrorCode.CORRUPT_MESSAGE


class SnapshotHead(NamedTuple):
    """What a snapshot says of itself before its records."""

    last_contained_log_timestamp_ms: int
    kraft_version: int
    voters: VoterSet | None
    """The voters as of the snapshot's end; None where whoever wrote it knew none."""
    end_offset: int = -1
    """What its records lead up to; -1 where whoever wrote it did not say."""


def snapshot_batches(
    groups: Iterable[Sequence[bytes]],
    *,
    epoch: Epoch,
    timestamp_ms: int,
    voters: VoterSet | None,
    end_offset: int = -1,
) -> Iterator[bytes]:
    """The batches of a snapshot, one after the other, so that its writer can rest between two.

    Args:
        groups: the encoded records of the image; each group becomes one batch.
        epoch, end_offset: of the snapshot's id.
        timestamp_ms: when the last record that went into the image was appended.
        voters: as of the snapshot's end, if they are known.
    """
    head = [header_record(last_contained_log_timestamp_ms=timestamp_ms, end_offset=end_offset)]
    if voters is not None and voters.kraft_version > 0:
        head += voters_records(voters)
    offset = Offset(0)
    yield control_batch(head, base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)
    offset = Offset(offset + len(head))
    for group in groups:
        batch = data_batch(group, base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms, compression=COMPRESSION)
        offset = batch.end_offset
        yield batch.data
    yield control_batch([footer_record()], base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)


def bootstrap_snapshot(voters: VoterSet, records: Sequence[bytes] = ()) -> bytes:
    """`00000000000000000000-0000000000.checkpoint`: the first voters (KIP-853), and encoded records that a new cluster begins with
    (KIP-900)."""
    groups = (records,) if records else ()
    return b"".join(snapshot_batches(groups, epoch=Epoch(0), timestamp_ms=0, voters=voters))


def bootstrap_records(data: bytes, *, name: str = "the bootstrap checkpoint") -> list[bytes]:
    """The encoded records in a bootstrap checkpoint. Raises DamagedSnapshot, naming `name`."""
    found = SnapshotRecords(lambda position, size: data[position : position + size], name=name)
    return [record for group in found.groups() for record in group]


def bootstrap_voters(data: bytes, *, name: str = "the bootstrap checkpoint") -> VoterSet:
    """The voters in a bootstrap checkpoint; raises DamagedSnapshot, naming `name`, when it is cut, changed, or holds none."""
    head = prove_snapshot(lambda position, size: data[position : position + size], name=name)
    if head.voters is None:
        raise DamagedSnapshot(f"{name} names no voters; restore it from another controller's directory")
    return head.voters


def prove_snapshot(read: Callable[[int, int], bytes], *, name: str, end_offset: int = -1) -> SnapshotHead:
    """Read all of a snapshot and check every batch. `read(position, size)` gives fewer bytes only at the end. end_offset: of its id.

    Raises DamagedSnapshot, naming `name` and the byte.
    """
    head = SnapshotRecords(read, name=name).prove()
    if -1 not in (head.end_offset, end_offset) and head.end_offset != end_offset:
        raise DamagedSnapshot(f"{name} holds the snapshot that ends at offset {head.end_offset}: it has another's name")
    return head


class SnapshotRecords:
    """The records of one snapshot, in order, proved batch by batch while they are read."""

    def __init__(self, read: Callable[[int, int], bytes], *, name: str) -> None:
        """`name` goes into errors."""
        self._batches = _proved_batches(read, name)
        self._name = name
        self._is_whole = False
        self.head = SnapshotHead(-1, 0, None)
        """Known after the first group."""

    def prove(self) -> SnapshotHead:
        """Look at every batch without opening the data; returns the head. Raises DamagedSnapshot."""
        for _ in self._data_batches():
            pass
        return self.head

    def groups(self) -> Iterator[tuple[bytes, ...]]:
        """The encoded records, batch by batch; a batch that is as it was written and cannot be opened all the same is one bad
        record (committed.py). Raises DamagedSnapshot: then what came before must not be used either."""
        for batch in self._data_batches():
            try:
                yield tuple(record.value or b"" for record in iterate_records(batch))
            except (CorruptBatch, CorruptCompressedData) as error:
                logger.error("%s: a batch cannot be opened: %s", self._name, error)
                yield (UNOPENED + batch[HEADER_BYTES:],)

    def _data_batches(self) -> Iterator[bytes]:
        is_first = True
        for batch in self._batches:
            if self._is_whole:
                raise DamagedSnapshot(f"{self._name} goes on after its footer")
            if not read_header(batch).is_control:
                if is_first:
                    raise DamagedSnapshot(f"{self._name} does not begin with a header")
                yield batch
                continue
            self._take_control(batch, is_first=is_first)
            is_first = False
        if not self._is_whole:
            raise DamagedSnapshot(f"{self._name} is cut short: it has no footer")

    def _take_control(self, batch: bytes, *, is_first: bool) -> None:
        try:
            kinds = [(kind, value) for _, kind, value in control_records(batch)]
            if is_first and (not kinds or kinds[0][0] != ControlRecordType.SNAPSHOT_HEADER):
                raise DamagedSnapshot(f"{self._name} does not begin with a header")
            for kind, value in kinds:
                if kind == ControlRecordType.SNAPSHOT_HEADER:
                    header = decode_header(value)
                    self.head = self.head._replace(
                        last_contained_log_timestamp_ms=header.last_contained_log_timestamp,
                        end_offset=header.end_offset,
                    )
                elif kind == ControlRecordType.KRAFT_VERSION:
                    self.head = self.head._replace(kraft_version=decode_kraft_version(value))
                    if self.head.kraft_version > KRAFT_VERSION:
                        raise DamagedSnapshot(
                            f"{self._name} needs kraft.version {self.head.kraft_version}, this code reads up to "
                            f"{KRAFT_VERSION}: start the version of Barnabas that wrote it"
                        )
                elif kind == ControlRecordType.KRAFT_VOTERS:
                    self.head = self.head._replace(voters=decode_voters(value))
                elif kind == ControlRecordType.SNAPSHOT_FOOTER:
                    self._is_whole = True
        except (CorruptBatch, MalformedMessage) as error:
            raise DamagedSnapshot(f"{self._name}: {error}") from None


def _proved_batches(read: Callable[[int, int], bytes], name: str) -> Iterator[bytes]:
    """Batch after batch, with checksum, offset and length checked."""
    position, expected = 0, Offset(0)
    chunk, chunk_start = b"", 0
    while True:
        at = position - chunk_start
        if len(chunk) - at < HEADER_BYTES:
            chunk, chunk_start, at = read(position, READ_BYTES), position, 0
            if not chunk:
                return
        try:
            header = read_header(chunk, at)
        except CorruptBatch:
            raise DamagedSnapshot(f"{name} is cut short at byte {position}") from None
        size = header.size_bytes
        if not HEADER_BYTES <= size <= BATCH_BYTES_MAX:
            raise DamagedSnapshot(f"{name} is damaged at byte {position}: a batch of {size} bytes")
        if len(chunk) - at < size:
            chunk, chunk_start, at = read(position, max(READ_BYTES, size)), position, 0
        batch = chunk[at : at + size]
        if len(batch) < size:
            raise DamagedSnapshot(f"{name} is cut short at byte {position + len(batch)}")
        if (
            header.magic != MAGIC
            or header.base_offset != expected
            or header.last_offset_delta < 0
            or not crc_is_valid(batch, 0, header)
        ):
            raise DamagedSnapshot(f"{name} is damaged at byte {position}")
        yield batch
        position += size
        expected = header.next_offset
