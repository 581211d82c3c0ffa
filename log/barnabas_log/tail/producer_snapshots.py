"""Snapshots of what producers have written: the state just before an offset, so that a start need not read the whole log.

May touch:  the Disk it is given.   Must not touch: clocks, segments.
Invariants: a snapshot that was cut short is never read: the checksum shows it, and an older one serves.
Read next:  producer_state.py (what is kept); producer_replay.py and recovery.py, which continue from one.

Layout of <offset>.snapshot, the state of the producers just before that offset (big-endian):
    0   2 version = 1
    2   4 CRC-32C of byte 6 to the end
    6   4 number of entries
    then per producer, 46 bytes: producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32
    (last offset - first offset of that batch), timestamp i64, coordinator epoch i32 of its last marker (-1 without one), first
    offset of the open transaction i64 (-1 without one). A producer of which only a marker is known has -1 for sequence and offset.
A producer has an entry for each batch that is known of it, oldest first. Kafka writes only the newest one, and refuses the repeat of an
earlier batch after a restart as out of order; the client then begins a new epoch and writes its records a second time. Readers that
keep one entry for each producer, Kafka's among them, keep the last. A crash may leave a cut file: the CRC shows it, an older one serves.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from barnabas_log.disk import Disk, File
from barnabas_log.errors import CorruptCheckpoint
from barnabas_log.tail.producer_state import ProducerBatch, ProducerEntry, ProducerState
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.crc32c import crc32c

_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(state: ProducerState) -> bytes:
    """Content of a snapshot file at the state's end_offset."""
    entries = [
        _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            batch.timestamp_ms,
            entry.coordinator_epoch,
            entry.transaction_start,
        )
        for entry in state
        for batch in entry.batches or (entry.last,)
    ]
    body = b"".join((_COUNT.pack(len(entries)), *entries))
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes, end_offset: Offset) -> ProducerState:
    """The state from a snapshot file. Raises CorruptCheckpoint."""
    if len(content) < _HEAD.size + _COUNT.size:
        raise CorruptCheckpoint(f"a producer snapshot of {len(content)} bytes is cut off")
    version, crc = _HEAD.unpack_from(content)
    body = content[_HEAD.size :]
    if version != _VERSION:
        raise CorruptCheckpoint(f"producer snapshot version {version} is not {_VERSION}")
    (count,) = _COUNT.unpack_from(body)
    if crc32c(body) != crc or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptCheckpoint("the producer snapshot's checksum or length is wrong")
    return ProducerState.of(_entries(body[_COUNT.size :]), end_offset)


def _entries(body: bytes) -> Iterable[ProducerEntry]:
    found: dict[int, ProducerEntry] = {}
    for producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, start in _ENTRY.iter_unpack(body):
        entry = found.setdefault(producer_id, ProducerEntry(producer_id, epoch))
        entry.coordinator_epoch, entry.transaction_start = coordinator_epoch, Offset(start)
        if offset >= 0:
            entry.batches.append(ProducerBatch(sequence, offset, delta, timestamp_ms))
        else:
            entry.marker_ms = timestamp_ms
    return found.values()


def snapshot_path(directory: str, offset: Offset) -> str:
    """File of the snapshot at an offset."""
    return f"{directory}/{offset:020d}.snapshot"


def list_snapshots(disk: Disk, directory: str) -> list[Offset]:
    """Offsets of the snapshot files, rising."""
    return sorted(
        Offset(int(name.removesuffix(".snapshot")))
        for name in disk.list_directory(directory)
        if name.endswith(".snapshot")
        and name == f"{name.removesuffix('.snapshot'):0>20}.snapshot"
        and name[:20].isdecimal()
    )


def load_newest_snapshot(disk: Disk, directory: str, *, at_or_before: Offset) -> ProducerState:
    """The newest sound snapshot not after the offset, or an empty state that holds nothing; cut ones are removed."""
    for offset in reversed(list_snapshots(disk, directory)):
        if offset > at_or_before:
            continue
        path = snapshot_path(directory, offset)
        try:
            return decode_snapshot(disk.read_file(path), offset)
        except CorruptCheckpoint:
            disk.remove(path)
    return ProducerState()


def write_snapshot(disk: Disk, directory: str, state: ProducerState) -> File:
    """Write the state at its end; returns the file, which the caller flushes and closes. A crash before that may tear it: the CRC
    shows it. Raises OSError, and leaves no file then."""
    path = snapshot_path(directory, state.end_offset)
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append([encode_snapshot(state)])
    except OSError:
        file.close()
        disk.remove(path)
        raise
    return file


def remove_snapshots_after(disk: Disk, directory: str, offset: Offset) -> None:
    """Remove the snapshots taken above that offset."""
    for snapshot_offset in list_snapshots(disk, directory):
        if snapshot_offset > offset:
            disk.remove(snapshot_path(directory, snapshot_offset))
